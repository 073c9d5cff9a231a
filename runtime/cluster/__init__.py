"""Several nodes that share the partitions of one log: a store of small values, and the protocol above it."""
