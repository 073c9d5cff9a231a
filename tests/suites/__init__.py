"""Runs the test suite of kafka-python, downloaded on demand, against the server, with a table of expected failures."""
