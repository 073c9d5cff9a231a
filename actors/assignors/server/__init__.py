"""Assignors of the consumer protocol (KIP-848), which the coordinator runs. Pure.

- base.py: the interface, and what an assignor knows about a group.
- range_.py, homogeneous.py, heterogeneous.py, uniform.py: Kafka's assignors. They give the same partitions to the same
  members as Kafka 4.3.1, whose result depends on the iteration order of Java's hash maps: hash_order.py.
- function.py: a function of your own.
"""
