"""Assignors: who gets which partitions. Pure functions, which the leader of a group runs.

- base.py: what an assignor is; table.py: those that have a name.
- range_.py, round_robin.py: Kafka's plain ones. sticky.py, cooperative.py, weighted.py: those that leave members what
  they have; sharing.py, balance.py and claims.py are how. custom.py: a function of one's own.
- wire.py, user_data.py: what members and leaders write to each other. leading.py: what stands in if one fails.
"""
