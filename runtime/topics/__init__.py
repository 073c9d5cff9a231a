"""A small topic log in memory: an unchanged consumer can subscribe, poll and receive the records of a producer.

It is meant for tests of consumers: records are lost when the process ends; topic names and end offsets are durable.
"""
