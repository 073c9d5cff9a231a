"""What a pure decision asks for: records to keep, answers to give, alarms to file. The shell carries it out."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from ..engine_ports import ReplyTo
from ..records import Record


class Expiry(NamedTuple):
    """What was deleted because it was old (KIP-211), durably."""

    offsets: int = 0
    groups: int = 0  # of which offsets, or the group itself, were deleted
    deleted_groups: int = 0

    def with_batch(self, offsets: int, *, is_last: bool, ends_group: bool) -> Expiry:
        """One group's tombstones more; ``is_last``: the group has nothing more to delete."""
        return Expiry(self.offsets + offsets, self.groups + is_last, self.deleted_groups + ends_group)

    def since(self, earlier: Expiry) -> Expiry:
        return Expiry(*(now - before for now, before in zip(self, earlier, strict=True)))


class Counts:
    """What the groups of a coordinator have done since it started, for whoever watches it."""

    __slots__ = ("commits", "expired", "expired_sessions", "rebalances")

    def __init__(self) -> None:
        self.commits = 0  # requests with at least one offset that was kept
        self.rebalances = 0  # generations with members that began
        self.expired_sessions = 0
        self.expired = Expiry()


class Answer(NamedTuple):
    reply: ReplyTo
    value: Any


class Effects:
    """Filled by one decision. ``records`` are to be appended together; ``context`` comes back with their outcome."""

    __slots__ = ("alarms", "answers", "context", "counts", "records")

    def __init__(self, counts: Counts | None = None) -> None:
        self.counts = counts or Counts()
        self.records: tuple[Record, ...] = ()
        self.context: Any = None
        self.answers: list[Answer] = []
        self.alarms: dict[Hashable, int | None] = {}

    def answer(self, reply: ReplyTo | None, value: Any) -> None:
        """Answer a parked request; without one (its sender is gone, or nobody asked) there is nothing to do."""
        if reply is not None:
            self.answers.append(Answer(reply, value))

    def keep(self, record: Record, context: Any = None) -> None:
        self.records = (*self.records, record)
        self.context = context


class Deadline:
    """A named deadline over an alarm that is filed as rarely as possible.

    A deadline that moves away (a heartbeat) files nothing: the alarm rings at the old time, finds that it is early, and
    is filed again for the rest. So a session costs one alarm a session timeout, not one a heartbeat.
    """

    __slots__ = ("due_ms", "filed_ms", "name")

    def __init__(self, name: Hashable) -> None:
        self.name = name
        self.due_ms: int | None = None
        self.filed_ms: int | None = None

    def set(self, due_ms: int, effects: Effects) -> None:
        self.due_ms = due_ms
        if self.filed_ms is None or self.filed_ms > due_ms:
            self.filed_ms = due_ms
            effects.alarms[self.name] = due_ms

    def cancel(self, effects: Effects) -> None:
        self.due_ms = None
        if self.filed_ms is not None:
            self.filed_ms = None
            effects.alarms[self.name] = None

    def rang(self, now_ms: int, effects: Effects) -> bool:
        """Its alarm rang. True if the deadline has passed; an early one is filed again, a cancelled one ignored."""
        self.filed_ms = None
        if self.due_ms is None:
            return False
        if self.due_ms > now_ms:
            self.set(self.due_ms, effects)
            return False
        self.due_ms = None
        return True
