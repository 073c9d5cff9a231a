"""A small topic log in memory: an unchanged consumer can subscribe, poll and receive the records of a producer.

It is a test bench for consumers, not a broker: records are lost when the process ends; topic names and end offsets are
durable.
"""
