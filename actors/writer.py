"""OffsetWriterActor: gathers the records of all groups while a sync runs, then hands them over together.

One round is one journal write and one sync for everything that gathered, whatever the partitions; there are never two
rounds in flight. The more there is to write, the more goes into a round, so the disk is not the limit.

A round costs the same whatever is in it: a sync, and two hand-overs between the loop and the log's thread. So it does
not begin with the first record that comes, but when a turn of the loop brings no more. A lone commit waits for one
idle turn, some microseconds; fifty clients that were answered together go into one round again, and not into a round
of three and one of forty-seven.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

import pykka

from .base import DEFERRED, SteadfastActor
from .engine_ports import Clock, ReplyTo
from .errors import ErrorCode
from .messages import Append, Drain, Flush, RoundDone, Written
from .ports import Appended, Log

log = logging.getLogger("callboard.actors")

MAX_TURNS = 8
"""A round begins after so many turns even if each brings more, or nobody would be answered under steady load."""

ROUND_MAX = 1000
"""Entries of one round. All of it is encoded in one turn, at 10 us each, and all its groups are ready at once when it
is done: with twenty thousand groups whose sessions had ended together, everybody else waited for a second."""


class OffsetWriterActor(SteadfastActor):
    """Owns the only way into the log."""

    handlers = {Append: "gather", Flush: "flush", RoundDone: "round_done", Drain: "drain"}

    def __init__(self, log: Log, clock: Clock) -> None:
        super().__init__()
        self._log = log
        self._clock = clock
        self._gathered: list[Append] = []
        self._in_flight: list[Append] = []
        self._flush_is_due = False
        self._draining: list[ReplyTo] = []

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way to the log."""
        return not (self._gathered or self._in_flight)

    def gather(self, message: Append) -> None:
        self._gathered.append(message)
        if not (self._in_flight or self._flush_is_due):
            self._flush_soon()

    def flush(self, message: Flush) -> None:
        gathered = len(self._gathered)
        if message.gathered < gathered < ROUND_MAX and message.turns < MAX_TURNS:
            self.tell_me_later(Flush(gathered, message.turns + 1))
        else:
            self._flush_is_due = False
            self._start_round()

    def round_done(self, message: RoundDone) -> None:
        done, self._in_flight = self._in_flight, []
        for append, outcome in zip(done, message.outcomes, strict=True):
            self._report(append, outcome)
        if self._gathered:
            self._flush_soon()
        self._answer_drained()

    def drain(self, _message: Drain) -> object:
        """Answered when nothing is on its way to the log any more."""
        assert self.reply_to is not None, "ask for Drain"
        self._draining.append(self.reply_to)
        self._answer_drained()
        return DEFERRED

    def _flush_soon(self) -> None:
        self._flush_is_due = True
        self.tell_me_later(Flush(len(self._gathered), turns=1))

    def _start_round(self) -> None:
        self._in_flight, self._gathered = self._gathered[:ROUND_MAX], self._gathered[ROUND_MAX:]
        entries = [append.entry for append in self._in_flight]
        try:
            self._log.append(entries, self._clock.wall_ms(), self._done)
        except Exception:  # a bug of the log's: whoever waits hears of it, and the next round has its chance
            log.exception("a round could not be appended")
            self._done([Appended(ErrorCode.KAFKA_STORAGE_ERROR, -1)] * len(entries))

    def _done(self, outcomes: Sequence[Appended]) -> None:
        """Called by the log, from any thread; at a stop perhaps when nobody is there to hear it, and nobody waits."""
        with suppress(pykka.ActorDeadError):
            self.actor_ref.tell(RoundDone(outcomes))

    def _report(self, append: Append, outcome: Appended) -> None:
        try:
            append.owner.tell(Written(outcome, append.entry.records, append.context))
        except pykka.ActorDeadError:
            return  # its group was deleted meanwhile; the records are in the log, in order

    def _answer_drained(self) -> None:
        if self.is_idle:
            for reply_to in self._draining:
                reply_to.set(None)
            self._draining.clear()
