"""Member: the client side of a consumer group.

A member joins, computes the assignment if it is the leader, sends heartbeats, gives shards back and resumes from the
committed offsets, in the coordinator's process or over TCP. It reaches the coordinator through a ``Connector``
(``channel.py``).
"""
