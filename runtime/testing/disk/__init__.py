"""A disk in memory that loses power, fills up and fails, as a test decides."""
