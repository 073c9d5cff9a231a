"""Access to files: the real disk, a disk in memory with fault injection, and threads for blocking work."""
