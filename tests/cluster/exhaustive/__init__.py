"""Exhaustive search of the cluster's own code in small scopes: every order of its store operations and their faults."""
