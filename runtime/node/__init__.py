"""One server: puts everything together, starts, stops, and watches it."""
