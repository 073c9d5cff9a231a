"""Long proofs for ``make soak``: many seeds, many kills. ``make test`` runs a short form of each."""
