"""``callboard groups``: what Kafka's ConsumerGroupCommand does, without Java and against any server.

- commands.py: the command line.
- report.py: what is known about a group, put together from several answers.
- reset.py: which offsets a reset writes, pure.
- show.py: tables for people, JSON for programs.
"""
