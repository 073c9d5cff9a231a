"""Actor systems for tests. The test controls clock, log, timer and dispatcher.

- ``ports``: a manual clock, seeded ids, settings, recorded replies, a manual log and a manual alarm.
- ``requests``: functions that build requests.
- ``simulated_group``: one ``ClassicGroup`` without an actor.
- ``simulation``, ``manual_log``, ``transactions``: the complete coordinator on one thread, step by step, in an order
  that depends on a seed.
- ``players``: actors on an event loop, on threads or in a simulation.
"""
