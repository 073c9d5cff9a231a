"""What a start does with a data folder: torn tails, the journal, damage, checks."""
