"""What the coordinator decides. Actors and pure rules; no file, no socket, no thread, no clock of its own.

- ``GroupActor`` (group.py) is one group: its mailbox serialises join, sync, heartbeat, leave, commit and fetch. What it
  decides is in ``ClassicGroup`` (classic.py, rebalance.py, members.py) and ``GroupData`` (offsets.py), both pure.
- ``CoordinatorActor`` (coordinator.py) makes, finds and lists groups.
- ``OffsetWriterActor`` (writer.py) gathers records and is the only way into the log.
- ``TimerActor`` (timer.py) owns the timing wheel and delivers what is due.

The words they share are in messages.py, records.py and errors.py; what the outside supplies is in ports.py.
"""
