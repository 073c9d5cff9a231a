"""Benches: what Callboard costs, measured against something simpler in the same run. ``callboard bench``."""
