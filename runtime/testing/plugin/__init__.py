"""The pytest plugin: a coordinator for tests, its clock, faults and timeline."""
