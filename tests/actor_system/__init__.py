"""Actor systems that a test controls: clock, log, timer and dispatcher advance only when the test advances them.

- ``ports``: a manual clock, seeded ids, settings, recorded replies, a manual log and a manual alarm.
- ``requests``: functions that build requests.
- ``simulated_group``: one ``ClassicGroup`` without an actor.
- ``simulation``, ``manual_log``, ``transactions``: the whole coordinator on one thread, step by step. A seed determines
  the order of the steps.
- ``players``: actors on an event loop, on threads or in a simulation.
"""
