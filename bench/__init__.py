"""Benches: what Callboard costs, measured against something simpler in the same run. ``python -m callboard.bench``."""
