"""The recovery of a data folder at a start: torn tails, the journal, damage, checks."""
