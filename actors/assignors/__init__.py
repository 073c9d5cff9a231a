"""Assignors compute which member gets which partitions. They are pure functions that the leader of a group runs.

- base.py: the interface; table.py: the built-in assignors by name.
- range_.py, round_robin.py: Kafka's stateless assignors. sticky.py, cooperative.py, weighted.py: members keep what they
  own where possible; allocation.py, balance.py and ownership.py implement that. custom.py: your own function.
- consumer_protocol.py, user_data.py: the messages between members and leader. fallback.py: round robin if an assignor
  fails.
"""
