"""A coordinator inside of somebody else's program: on its event loop, or on a thread of its own.

It changes nothing that the program shares: no signal handlers, no logging, no thresholds of the interpreter. There may
be any number of them. ``callboard serve`` is the other way: a process that is the coordinator's alone.
"""
