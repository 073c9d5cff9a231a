"""Simulations of the complete coordinator: scenarios, and clients for them. ``python -m simulation`` repeats seeds."""
