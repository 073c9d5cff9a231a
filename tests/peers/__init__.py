"""Tests with real Kafka clients over TCP, and the tools that they share: a server process, peers, a raw wire.

A peer is a process, as it is in production: it can be killed without a goodbye, and no library's threads outlive a
test.
"""
