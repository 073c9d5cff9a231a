"""SASL: the bytes of a connection until its client has authenticated, and the principal that it then has."""
