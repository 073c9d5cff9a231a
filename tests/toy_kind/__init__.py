"""A second kind of group: a queue whose members get all partitions of their topics.

It has what the kinds of Kafka have that the classic kind has not: several records, several key types, epochs, and a
heartbeat that is answered at once. It proves that a kind of group is new files and rows, and no change elsewhere.
"""
