"""A coordinator embedded in a program: on the program's event loop, or on a thread of its own.

It changes no global state: no signal handlers, no logging configuration, no garbage collector thresholds. A program can
have several. ``callboard serve`` runs a coordinator in a process of its own.
"""
