"""The whole coordinator under simulation: scenarios, and clients that speak its messages. ``python -m simulation``."""
