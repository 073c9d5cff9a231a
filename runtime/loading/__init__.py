"""Loading at the start: reads the log partitions, in this process or in subprocesses, and creates the groups."""
