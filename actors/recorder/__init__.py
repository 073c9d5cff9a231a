"""The flight recorder: a record of each rebalance, and what follows from the records. Pure."""
