"""Loading: reads the partitions of the log at the start, in this process or in subprocesses, and creates the groups."""
