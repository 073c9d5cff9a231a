"""Reads segments: forwards past damage, backwards from the newest record."""
