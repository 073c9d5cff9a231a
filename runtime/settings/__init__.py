"""Settings and options: their table, their parser, changes while the server runs."""
