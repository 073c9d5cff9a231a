"""``callboard worker``: runs a handler in several processes, which share the shards of a group.

- worker_command.py: the command line.
- supervisor.py: starts the processes, restarts those that crash, and stops them.
- restarts.py: the delays before restarts.
- child.py: one process: a member of the group, and the handler.
- handler.py: finds the handler by its name.
"""
