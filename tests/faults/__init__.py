"""Faults of a cluster of real servers, again and again, and what clients notice: outages, lost commits, old answers."""
