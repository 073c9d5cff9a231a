"""Simulation of the coordinator and its members: virtual time, random faults from a seed, and checkers."""
