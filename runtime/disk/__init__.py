"""Access to files: the real disk, a disk in memory, and threads for blocking work."""
