"""Callboard: Kafka's group coordinator, built from actors.

This folder is the import name ``callboard`` itself. It stays light, because importing any part of the package runs it
first; what it offers from other folders is imported by name when it is asked for.
"""

__version__ = "0.1.0"
