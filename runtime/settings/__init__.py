"""Settings and options: the table of settings, their parser, and changes while the server runs."""
