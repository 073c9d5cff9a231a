"""Benchmarks: measure Callboard against a simpler baseline in the same run. ``callboard bench``."""
