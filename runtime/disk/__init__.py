"""Files: the real disk, one in memory that fails on demand, threads for blocking work."""
