"""Where the events of groups go: a ring of the last ones of each awake group, log lines, and observers.

One ``EventLog`` serves all groups of a coordinator, so that its limits hold for all of them together: the memory of the
rings, and the log lines per second. Each group's actor has a ``GroupHistory``.
"""

from __future__ import annotations

import logging
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from ..errors import ErrorCode
from ..recorder.flight_recorder import FlightRecorder
from ..recorder.tracker import Draft, RebalanceTracker
from ..text import LogLine
from .events import DEAD_NAME, GroupEvent, Kind, Reason
from .rebalance_notes import Note

log = logging.getLogger("callboard.actors")

T = TypeVar("T")

EVENTS_KEPT = 32  # of one group
HISTORY_BYTES_MAX = 16 * 1024 * 1024
"""The memory of the events of all groups. Beyond it the group whose last event is the oldest loses its events."""

EVENT_BYTES = 248  # of an event without its strings
RING_BYTES = 480  # of a ring without its events

REBALANCE_LINES_PER_S = 100
MEMBER_LINES_PER_S = 1000
REFUSED_LINES_PER_S = 1
BUG_LINES_PER_S = 1  # with a traceback each
NAME_CHARACTERS_MAX = 255  # in a log line; clients may choose names of 32 KiB

EXPIRED = frozenset({Reason.SESSION_EXPIRED, Reason.DID_NOT_REJOIN, Reason.SYNC_TIMEOUT, Reason.DID_NOT_REVOKE})
TAKEOVERS = frozenset({Reason.STATIC_MEMBER_REPLACED, Reason.REPLACEMENT_NOT_STORED})
FIRST_STATES = frozenset({"PreparingRebalance", "Assigning"})
"""The states in which a rebalance begins, or begins again, in groups of the classic and of the consumer protocol."""

LAST_STATES = frozenset({"Stable", "Empty"})

LEFT = frozenset({Reason.MEMBER_LEFT, Reason.ADMIN, Reason.RESET, Reason.GROUP_IS_FULL})


class GroupObserver(Protocol):
    """Notified of all events of all groups, before their effects."""

    def observe(self, group_id: str, events: Sequence[GroupEvent]) -> None: ...


class RebalanceSummary(NamedTuple):
    """A rebalance that has ended. ``cause``: the event that began it. ``ended``: Stable or Empty.

    ``joined``, ``left``, ``expired``: members since the end of the previous rebalance. ``restarts``: how often it began
    again before its assignment was stored.
    """

    cause: GroupEvent
    ended: GroupEvent
    joined: int
    left: int
    expired: int
    restarts: int

    @property
    def duration_ms(self) -> int:
        return self.ended.monotonic_ms - self.cause.monotonic_ms


class RebalanceTally:
    """Adds up the events of one group to one summary for each rebalance."""

    __slots__ = ("_cause", "_expired", "_joined", "_left", "_restarts")

    def __init__(self) -> None:
        self._cause: GroupEvent | None = None
        self._joined = self._left = self._expired = self._restarts = 0

    def add(self, event: GroupEvent) -> RebalanceSummary | None:
        """The summary if this event ends a rebalance."""
        if event.kind is Kind.STATE_CHANGED:
            return self._change_state(event)
        if event.kind is Kind.MEMBER_ADDED:
            self._joined += event.reason is Reason.MEMBER_JOINED
        else:
            self._left += event.reason in LEFT
            self._expired += event.reason in EXPIRED
        return None

    def _change_state(self, event: GroupEvent) -> RebalanceSummary | None:
        cause = self._cause
        if event.state in FIRST_STATES:
            self._restarts += cause is not None
            self._cause = cause or event
        elif event.state in LAST_STATES or event.state == DEAD_NAME:
            counts = self._joined, self._left, self._expired, self._restarts
            self._cause = None
            self._joined = self._left = self._expired = self._restarts = 0
            if cause is not None and event.state in LAST_STATES:
                return RebalanceSummary(cause, event, *counts)
        return None


class LineLimit:
    """Admits so many log lines a second. ``omitted``: lines that were not admitted since the last one that was."""

    __slots__ = ("_begun_ms", "_lines", "_lines_per_s", "omitted")

    def __init__(self, lines_per_s: int) -> None:
        self.omitted = 0
        self._lines_per_s = lines_per_s
        self._lines = 0
        self._begun_ms: int | None = None

    def admits(self, now_ms: int) -> bool:
        """``now_ms``: monotonic."""
        if self._begun_ms is None or now_ms - self._begun_ms >= 1000:
            self._begun_ms, self._lines = now_ms, 0
        self._lines += 1
        is_admitted = self._lines <= self._lines_per_s
        self.omitted += not is_admitted
        return is_admitted

    def take_omitted(self) -> int:
        omitted, self.omitted = self.omitted, 0
        return omitted


class EventLog:
    """The limits, the observers and the flight recorder that all groups of a coordinator share.

    ``bytes_used``: the memory of all events.
    """

    def __init__(self, *observers: GroupObserver, bytes_max: int = HISTORY_BYTES_MAX) -> None:
        self.observers = list(observers)
        self.recorder = FlightRecorder()
        self.bytes_used = 0
        self._bytes_max = bytes_max
        self._histories: OrderedDict[GroupHistory, None] = OrderedDict()  # that with the oldest last event first
        self._rebalance_lines = LineLimit(REBALANCE_LINES_PER_S)
        self._member_lines = LineLimit(MEMBER_LINES_PER_S)
        self._refused_lines = LineLimit(REFUSED_LINES_PER_S)
        self._bug_lines = LineLimit(BUG_LINES_PER_S)

    def notify(self, group_id: str, events: Sequence[GroupEvent]) -> None:
        """Notify the observers. The exception of one is logged, and affects neither the others nor the group."""
        for observer in self.observers:
            try:
                observer.observe(group_id, events)
            except Exception:
                if self._bug_lines.admits(events[-1].monotonic_ms):
                    log.exception("bug in an observer of the events of group %r", _cut(group_id))

    def resized(self, history: GroupHistory, by_bytes: int) -> None:
        """The group has new events. Older events are dropped if the memory of all groups is used up."""
        self.bytes_used += by_bytes
        self._histories[history] = None
        self._histories.move_to_end(history)
        while self.bytes_used > self._bytes_max and self._histories:
            next(iter(self._histories)).clear()

    def forget(self, history: GroupHistory, freed_bytes: int) -> None:
        """The group has no events any more."""
        if self._histories.pop(history, self) is None:
            self.bytes_used -= freed_bytes

    def log_rebalance(self, group_id: str, summary: RebalanceSummary) -> None:
        limit = self._rebalance_lines
        if not log.isEnabledFor(logging.INFO):
            return
        if limit.admits(summary.ended.monotonic_ms):
            log.info(LogLine("group rebalanced", rebalance_fields(group_id, summary, limit.take_omitted())))
        elif limit.omitted == 1:
            log.info("more than %d rebalances in a second: the next lines are omitted", REBALANCE_LINES_PER_S)

    def log_takeover(self, group_id: str, event: GroupEvent) -> None:
        """A static member was replaced, usually without a rebalance."""
        limit = self._rebalance_lines
        if log.isEnabledFor(logging.INFO) and limit.admits(event.monotonic_ms):
            log.info(LogLine("static member taken over", member_fields(group_id, event, limit.take_omitted())))

    def log_refused_record(self, field: str, name: str, error: ErrorCode, now_ms: int) -> None:
        """A record could not be written. ``field``: "group" or "transactional_id". ``now_ms``: monotonic.

        The log has its own line with the reason. These lines are few, because clients repeat their requests.
        """
        limit = self._refused_lines
        if limit.admits(now_ms):
            omitted = limit.take_omitted()
            fields: dict[str, object] = {field: _cut(name), "error": error.name}
            log.warning(LogLine("a record could not be written", fields | ({"omitted": omitted} if omitted else {})))

    def log_members(self, group_id: str, events: Sequence[GroupEvent]) -> None:
        limit = self._member_lines
        if not log.isEnabledFor(logging.DEBUG):
            return
        for event in events:
            if event.kind is not Kind.STATE_CHANGED and limit.admits(event.monotonic_ms):
                log.debug(LogLine(event.kind.value, member_fields(group_id, event, limit.take_omitted())))


class GroupHistory:
    """The last events of one group, and the rebalance in progress.

    It is cleared when the group is Dead. Call ``clear`` when the group leaves memory in another state.
    """

    __slots__ = ("_bytes", "_event_log", "_group_id", "_tally", "events", "tracker")

    def __init__(self, group_id: str, event_log: EventLog) -> None:
        self.events: list[GroupEvent] = []
        self.tracker = RebalanceTracker(group_id)
        self._group_id = group_id
        self._event_log = event_log
        self._bytes = 0
        self._tally = RebalanceTally()

    def add(self, events: Sequence[GroupEvent]) -> None:
        """Keep, log and report the events of one turn."""
        event_log = self._event_log
        event_log.notify(self._group_id, events)
        self._keep(events)
        event_log.log_members(self._group_id, events)
        for event in events:
            if event.kind is Kind.MEMBER_ADDED and event.reason in TAKEOVERS:
                event_log.log_takeover(self._group_id, event)
            summary = self._tally.add(event)
            if summary is not None:
                event_log.log_rebalance(self._group_id, summary)
        self._record(self.tracker.add, events)
        if events[-1].state == DEAD_NAME:
            self.clear()

    def note(self, notes: Sequence[Note]) -> None:
        """Take the notes of one turn, before its events."""
        self._record(self.tracker.note, notes)

    def _record(self, track: Callable[[T], Draft | None], items: Iterable[T]) -> None:
        """A bug of the flight recorder costs the record of a rebalance, and does not affect the group."""
        try:
            for draft in filter(None, map(track, items)):
                self._event_log.recorder.finish(draft)
        except Exception:
            self.tracker = RebalanceTracker(self._group_id)
            log.exception("bug in the flight recorder: a rebalance of group %r has no record", _cut(self._group_id))

    def _keep(self, events: Sequence[GroupEvent]) -> None:
        before_bytes = self._bytes
        if not self.events:
            self._bytes = RING_BYTES
        added = events[-EVENTS_KEPT:]
        dropped = self.events[: max(len(self.events) + len(added) - EVENTS_KEPT, 0)]
        del self.events[: len(dropped)]
        self.events += added
        self._bytes += sum(map(size_of, added)) - sum(map(size_of, dropped))
        self._event_log.resized(self, self._bytes - before_bytes)

    def clear(self) -> None:
        """Drop the events."""
        self.events.clear()
        self._event_log.forget(self, self._bytes)
        self._bytes = 0


def size_of(event: GroupEvent) -> int:
    """The memory of an event, in bytes, as if it shared its strings with no other."""
    if not event.member_id:
        return EVENT_BYTES
    size = sys.getsizeof
    names = size(event.member_id) + size(event.group_instance_id) + size(event.client_id) + size(event.client_host)
    return EVENT_BYTES + names + size(event.client_reason)


def rebalance_fields(group_id: str, summary: RebalanceSummary, omitted: int) -> dict[str, object]:
    """The fields of the log line of a rebalance. ``omitted``: how many lines of rebalances before it were omitted."""
    fields: dict[str, object] = {
        "group": _cut(group_id),
        "generation": summary.ended.generation,
        "state": summary.ended.state,
        "cause": summary.cause.reason.value,
        **_names(summary.cause),
        "joined": summary.joined,
        "left": summary.left,
        "expired": summary.expired,
        "restarts": summary.restarts,
        "duration_ms": summary.duration_ms,
    }
    return fields | {"omitted": omitted} if omitted else fields


def member_fields(group_id: str, event: GroupEvent, omitted: int) -> dict[str, object]:
    """The fields of the log line of a member. ``omitted``: how many lines of members before it were omitted."""
    fields: dict[str, object] = {
        "group": _cut(group_id),
        "generation": event.generation,
        "state": event.state,
        "cause": event.reason.value,
        **_names(event),
    }
    return fields | {"omitted": omitted} if omitted else fields


def _names(event: GroupEvent) -> dict[str, object]:
    """The names of the event's member that are not empty."""
    names = {
        "member_id": event.member_id,
        "instance_id": event.group_instance_id,
        "client_id": event.client_id,
        "client_host": event.client_host,
        "client_reason": event.client_reason,
    }
    return {field: _cut(name) for field, name in names.items() if name}


def _cut(name: str) -> str:
    return name[:NAME_CHARACTERS_MAX]
