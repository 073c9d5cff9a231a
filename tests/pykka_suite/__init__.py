"""Runs pykka's own tests, downloaded on demand, against the actor engine, through a pytest plugin."""
