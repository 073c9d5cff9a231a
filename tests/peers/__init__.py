"""Tests with real Kafka clients over TCP, and their tools: a server process, peers, and raw requests.

A peer is a client in its own process, so a test can kill it, and no library's threads outlive a test.
"""
