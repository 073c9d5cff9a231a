"""Recovery of a data folder at the start: removes torn writes, replays the journal, and reports damage."""
