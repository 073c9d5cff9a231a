"""Connections of clients: framing, the states of a connection, its turns on the event loop, bounds of its memory."""
