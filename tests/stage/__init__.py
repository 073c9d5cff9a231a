"""The stage that tests of the actors play on: time, chance, log and dispatcher are in the test's hands.

- ``ports``: a clock that only the test moves, seeded ids, settings, a place for an answer, a log that the test makes
  durable or fails, an alarm that the test rings.
- ``requests``: short ways to write requests.
- ``company``: one ``ClassicGroup`` without any actor.
- ``dispatcher`` and ``world``: the whole coordinator on one thread, step by step, in an order that a seed decides.
"""
