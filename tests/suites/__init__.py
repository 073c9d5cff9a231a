"""Test suites of other projects against this server, downloaded on demand, with a table of expected failures."""
