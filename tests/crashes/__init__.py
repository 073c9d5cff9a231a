"""Crash tests of the log. ``crash_run`` injects faults and power losses by a seed; ``model`` checks the content."""
