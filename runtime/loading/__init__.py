"""From the log to the groups: reads partitions at start, in this process or beside it."""
