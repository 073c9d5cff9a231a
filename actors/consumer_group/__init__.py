"""Groups of the consumer protocol (KIP-848): the rules, and the kind of group that uses them. Without I/O.

- records.py: what is durable. state.py: a group as the sum of its records.
- messages.py, checks.py: heartbeats, and which are refused. heartbeat.py: what a heartbeat changes.
- unchanged.py: heartbeats that change nothing.
- members.py: joining, static members. removal.py: leaving, timeouts.
- classic_members.py: members of the classic protocol. conversion.py: the group begins as a classic one, or becomes one.
  policy.py: whether it may. tombstones.py: the records that delete it.
- target.py: when the group needs a new target assignment, and the assignor's part. members_to_assign.py: the members as
  an assignor sees them.
- reconcile.py: how one member gets from its partitions to its target, as a table.
- leaving.py: LeaveGroup. offsets.py: who may commit and fetch offsets. describe.py: ConsumerGroupDescribe.
- subscriptions.py: the topics of members. regexes.py: when regular expressions are resolved, and what a result changes.
- metadata_hash.py: whether a topic has changed.
- plan.py: what a decision wants: records, timers. decision_size.py: whether it is made in steps.
- group.py: one group, for its actor. timers.py: deadlines. notes.py: events. kind.py: how the group is stored.
- invariants.py: what is always true of a group, for tests.
- requests.py: replies to requests for groups that do not exist, or are of another kind.
- environment.py, decision_environment.py: what groups get from outside.

A decision reads a ``GroupState`` and changes nothing; its records do, when they are replayed.
"""
