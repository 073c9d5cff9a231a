"""Actor systems under the control of a test: clock, log, timer and dispatcher move only when the test says so.

- ``ports``: a manual clock, seeded ids, settings, recorded replies, a manual log and a manual alarm.
- ``requests``: functions that build requests.
- ``simulated_group``: one ``ClassicGroup`` without an actor.
- ``simulation``, ``manual_log``, ``transactions``: the whole coordinator on one thread, step by step, in an order that
  a seed decides.
- ``players``: actors on an event loop, on threads or in a simulation.
"""
