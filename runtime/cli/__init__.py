"""The command line: ``callboard``."""
