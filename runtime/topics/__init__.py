"""A small topic log in memory: enough for an unchanged consumer to subscribe, poll and receive what a producer sent.

It is a test bench for consumers and no broker: records live as long as the process, names and end offsets longer.
"""
