"""Violation: what the simulation and the search of the cluster's code look for."""

from __future__ import annotations


class Violation(AssertionError):
    """Something that must never happen has happened."""
