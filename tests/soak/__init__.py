"""Long tests for ``make soak``: many seeds and many kills. ``make test`` runs a short form of each."""
