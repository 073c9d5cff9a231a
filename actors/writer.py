"""OffsetWriterActor: collects the records of all groups while a sync runs, then passes them to the log together.

A round is one journal write and one sync for all waiting entries of all partitions. There are never two rounds in
flight. Under load rounds become larger, not more frequent.

The cost of a round hardly depends on its size: a write, a sync, and the messages between the actor and the log. So a
round does not begin with the first entry, but after a turn of the loop that brings no further entries. A single commit
waits for one idle turn, some microseconds. Clients that commit at the same time share a round.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import pykka

from .append_queue import AppendQueue
from .base import DEFERRED, ResilientActor
from .engine_ports import Clock, ReplyTo
from .errors import ErrorCode
from .messages import Append, Drain, Flush, PartitionClosed, PartitionOpened, RoundDone, Written
from .new_tuple import new_tuple
from .ports import NO_EPOCH, NO_EPOCHS, Appended, Entry, Log, are_long
from .steps import Steps

log = logging.getLogger("callboard.actors")

MAX_TURNS = 8
"""Maximum number of turns before a round begins. Without it a steady load would delay the round forever."""

ROUND_MAX = 1000
"""Maximum number of entries in a round. All their groups become ready in one turn. Without a limit, 20,000 groups whose
sessions end together delay all other requests by a second."""

FENCED = ErrorCode.NOT_LEADER_OR_FOLLOWER
"""The log's error for an old epoch. A name of its own because reading an attribute of an enum is slow."""


def ignore_partition(_partition: int, _epoch: int) -> None:
    """The default of ``on_fenced``: a log that no other node writes to refuses no epoch."""


class OffsetWriterActor(ResilientActor):
    """The only actor that appends to the log.

    ``on_fenced`` is called in a turn of this actor with a partition and its epoch when the log has refused that epoch.
    """

    may_pause = True
    handlers = {
        Append: "append",
        Flush: "flush",
        RoundDone: "handle_round_done",
        Drain: "drain",
        PartitionOpened: "open_partition",
        PartitionClosed: "close_partition",
    }

    def __init__(self, log: Log, clock: Clock, on_fenced: Callable[[int, int], None] = ignore_partition) -> None:
        super().__init__()
        self._log = log
        self._clock = clock
        self._on_fenced = on_fenced
        self._epochs: Mapping[int, int] = NO_EPOCHS  # replaced, never changed: the log may keep it
        self._round_epochs = self._epochs  # of the round in flight
        self._waiting = AppendQueue()
        self._in_flight = AppendQueue()
        self._is_flush_scheduled = False
        self._draining: list[ReplyTo] = []

    @property
    def is_idle(self) -> bool:
        """Whether no entry waits and no round is in flight."""
        return not (self._waiting or self._in_flight)

    def measure_bytes(self) -> int:
        """About the bytes of all requests whose records are not durable yet."""
        return self._waiting.measure_bytes() + self._in_flight.measure_bytes()

    def append(self, message: Append) -> None:
        self._waiting.append(message)
        if not (self._in_flight or self._is_flush_scheduled):
            self._schedule_flush()

    def flush(self, message: Flush) -> object:
        entry_count = len(self._waiting)
        if message.entry_count < entry_count < ROUND_MAX and message.turns < MAX_TURNS:
            self.tell_self_after_turn(Flush(entry_count, message.turns + 1))
            return None
        self._is_flush_scheduled = False
        return self._start_round() if self._waiting else None  # else ``close_partition`` has refused them all

    def handle_round_done(self, message: RoundDone) -> None:
        appends, self._in_flight = self._in_flight, AppendQueue()
        for append, outcome in zip(appends, message.outcomes, strict=True):
            if outcome.error is FENCED:
                self._on_fenced(append.entry.partition, self._round_epochs.get(append.entry.partition, NO_EPOCH))
            _notify_owner(append, outcome)
        if self._waiting:
            self._schedule_flush()
        self._reply_to_drain()

    def open_partition(self, message: PartitionOpened) -> None:
        self._epochs = {**self._epochs, message.partition: message.epoch}

    def close_partition(self, message: PartitionClosed) -> None:
        """Entries that wait would get a later epoch if the partition came back, so they fail now."""
        closed = message.partition
        self._epochs = {partition: epoch for partition, epoch in self._epochs.items() if partition != closed}
        for append in self._waiting.take_partition(closed):
            _notify_owner(append, Appended(ErrorCode.NOT_COORDINATOR, -1))
        self._reply_to_drain()

    def drain(self, _message: Drain) -> object:
        """Reply when no entry waits and no round is in flight."""
        assert self.reply_to is not None, "Drain is sent with ask, not with tell"
        self._draining.append(self.reply_to)
        self._reply_to_drain()
        return DEFERRED

    def _schedule_flush(self) -> None:
        self._is_flush_scheduled = True
        self.tell_self_after_turn(Flush(len(self._waiting), turns=1))

    def _start_round(self) -> Steps[None] | None:
        """Append a round. Returns the work if it is long."""
        self._in_flight = self._waiting.take(ROUND_MAX)
        entries, self._round_epochs = [append.entry for append in self._in_flight], self._epochs
        if are_long(entries):
            return self._append_in_steps(entries)
        try:
            self._log.append(entries, self._clock.wall_ms(), self._done, self._epochs)
        except Exception:
            self._done(_failed_round(entries))
        return None

    def _append_in_steps(self, entries: Sequence[Entry]) -> Steps[None]:
        try:
            yield from self._log.append_in_steps(entries, self._clock.wall_ms(), self._done, self._epochs)
        except Exception:
            self._done(_failed_round(entries))

    def _done(self, outcomes: Sequence[Appended]) -> None:
        """Called by the log, from any thread. During a stop this actor may be dead already; then no request waits."""
        with suppress(pykka.ActorDeadError):
            self.actor_ref.tell(RoundDone(outcomes))

    def _reply_to_drain(self) -> None:
        if self.is_idle:
            for reply_to in self._draining:
                reply_to.set(None)
            self._draining.clear()


def _notify_owner(append: Append, outcome: Appended) -> None:
    try:
        append.owner.tell(new_tuple(Written, (outcome, append.entry.records, append.context)))
    except pykka.ActorDeadError:  # a group that was unloaded; as in Kafka, the client has to ask the new owner
        answer = getattr(append.context, "answer", None)
        if answer is not None:
            answer(ErrorCode.NOT_COORDINATOR)


def _failed_round(entries: Sequence[Entry]) -> list[Appended]:
    """After a bug in the log these entries fail, and the next round is tried."""
    log.exception("a round could not be appended")
    return [Appended(ErrorCode.KAFKA_STORAGE_ERROR, -1)] * len(entries)
