"""Crash tests of the log: ``crash_run`` runs it on a disk that crashes, by a seed; ``model`` checks its content."""
