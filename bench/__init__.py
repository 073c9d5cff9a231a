"""``callboard bench``: benchmarks that compare Callboard with a simpler baseline in the same run."""
