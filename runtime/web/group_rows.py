"""The rows of the list of groups, and the cache that makes a row again only if something of it has changed.

The cache does no I/O. It is used by one thread at a time, and gives up the processor between pieces of its work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from sortedcontainers import SortedDict

from ...actors.group.commit_guard import guarded_until_ms
from ...actors.group.events import STABLE_NAME
from ...actors.group.kind import ABSENT_NAME
from ...actors.group.offsets import packed_dates_ms, packed_first_expiry_ms
from ...actors.recorder.now import GroupNow
from ..kafka.node_subjects import ListedState
from ..node.group_figures import GroupFigures, TopicRanges, of_passivated

T = TypeVar("T")

PIECE: Final = 32
"""Groups that are worked on without a look at the clock."""

SETTLED: Final = (STABLE_NAME, ABSENT_NAME)
"""Groups in these states have neither a guard nor offsets that expire."""

EXPIRY_MAX_MS: Final = 7_258_118_400_000
"""2200-01-01. Offsets that expire later never do: so an embedded coordinator keeps them by default."""

WORK_S: Final = 0.001
PAUSE_S: Final = 0.0001
"""The event loop may run in the same process: a thread that only computes would keep it waiting for the interpreter."""


class GroupRow(NamedTuple):
    """A group in the list. ``lag`` by topic and as a sum: None if that of a partition is not known.

    ``members`` and ``topics`` are None for a group that has not been read yet, or cannot be read. ``guarded_until_ms``:
    until when the last reset is guarded. ``expires_ms``: when the first offset expires, of a group without members.
    Both are since 1970.
    """

    group: str
    state: str
    type: str
    protocol_type: str
    members: int | None = None
    topics: Mapping[str, int | None] | None = None
    lag: int | None = None
    guarded_until_ms: int | None = None
    expires_ms: int | None = None


class Limits(NamedTuple):
    """For how long offsets are retained without members, and for how long at most a reset is guarded."""

    retention_ms: int
    longest_guard_ms: int


class GroupsCopy(NamedTuple):
    """All groups at about one moment, ``now_ms`` since 1970."""

    ranges: TopicRanges
    passive: Sequence[Sequence[tuple[str, bytes]]]
    active: Sequence[ListedState]
    unreadable: Sequence[ListedState]
    now_ms: int
    limits: Limits


class FoundGroup(NamedTuple):
    """One group: its row if it has an actor, else its packed data; neither if it is gone."""

    row: GroupRow | None = None
    packed: bytes | None = None


class Pacer:
    """Pauses for a moment whenever a thread has computed for ``WORK_S``."""

    def __init__(self, clock_s: Callable[[], float] = time.perf_counter, sleep: Callable[[float], object] = time.sleep):
        self._clock_s = clock_s
        self._sleep = sleep
        self._since_s = clock_s()

    def pause(self) -> None:
        if self._clock_s() - self._since_s >= WORK_S:
            self._sleep(PAUSE_S)
            self._since_s = self._clock_s()


class RowCache:
    """The rows of all groups, by name. ``changes`` counts those that were set or dropped; ``changed``: their names.

    ``ranges``: the offsets of topics of which the rows were made. ``now_ms``: when the groups were copied last.

    ``types`` reads the type and the protocol type of a packed group.
    """

    def __init__(self, types: Callable[[bytes], tuple[str, str]]) -> None:
        self.rows: SortedDict[str, GroupRow] = SortedDict()
        self.ranges: TopicRanges = {}
        self.now_ms = 0
        self.changes = 0
        self.changed: dict[str, None] = {}
        self._types = types
        self._limits = Limits(0, 0)
        self._packed: dict[str, bytes] = {}

    def take(self, copy: GroupsCopy, pacer: Pacer) -> None:
        """Make the rows of a copy. Groups with an actor keep their figures until ``add`` brings newer ones."""
        changed = _changed_topics(self.ranges, copy.ranges) if copy.limits == self._limits else None
        self.ranges, self.now_ms, self._limits = copy.ranges, copy.now_ms, copy.limits
        there: set[str] = set()
        for groups in copy.passive:
            for packed_piece in _pieces(groups, pacer):
                for group, packed in packed_piece:
                    there.add(group)
                    self._take_passive(group, packed, changed)
        for listed_piece in _pieces((*copy.active, *copy.unreadable), pacer):
            for listed in listed_piece:
                there.add(listed.group)
                self._packed.pop(listed.group, None)
                self._set(_with_state(self.rows.get(listed.group), listed))
        for names in _pieces(tuple(self.rows), pacer):
            for group in names:
                if group not in there:
                    self._drop(group)

    def _take_passive(self, group: str, packed: bytes, changed: set[str] | None) -> None:
        """``changed``: topics; None if the limits have changed."""
        row = self.rows.get(group)
        if row is None or self._packed.get(group) != packed or not _keeps(row, changed):
            self._packed[group] = packed
            self._set(self._passive_row(group, packed))

    def _passive_row(self, group: str, packed: bytes) -> GroupRow:
        retention_ms, longest_guard_ms = self._limits
        row = row_of(of_passivated(group, packed, self.ranges), self._types(packed)[0])
        return row._replace(
            guarded_until_ms=guarded_until_ms(packed_dates_ms(packed), self.now_ms, longest_guard_ms),
            expires_ms=_expiry(packed_first_expiry_ms(packed, retention_ms)),
        )

    def _set(self, row: GroupRow) -> None:
        if self.rows.get(row.group) != row:
            self.rows[row.group] = row
            self._note(row.group)

    def _drop(self, group: str) -> None:
        self._packed.pop(group, None)
        if self.rows.pop(group, None) is not None:
            self._note(group)

    def _note(self, group: str) -> None:
        self.changes += 1
        self.changed[group] = None

    def take_changed(self) -> dict[str, None]:
        """The names that have changed since the last time, each once."""
        changed, self.changed = self.changed, {}
        return changed

    def add(self, rows: Iterable[GroupRow]) -> None:
        """Newer rows of groups with an actor. Those that are gone meanwhile are left out."""
        for row in rows:
            if row.group in self.rows and row.group not in self._packed:
                self._set(row)

    def replace(self, group: str, found: FoundGroup) -> None:
        """The row of one group, as it is after a change."""
        if found.row is not None:
            self._packed.pop(group, None)
            self._set(found.row)
        elif found.packed is not None:
            self._take_passive(group, found.packed, set())
        else:
            self._drop(group)


def _pieces(items: Sequence[T], pacer: Pacer) -> Iterator[Sequence[T]]:
    for first in range(0, len(items), PIECE):
        yield items[first : first + PIECE]
        pacer.pause()


def row_of(figures: GroupFigures, group_type: str) -> GroupRow:
    """The lag of a group without committed offsets is not known."""
    lags = {topic.topic: topic.lag for topic in figures.topics}
    known = [lag for lag in lags.values() if lag is not None]
    return GroupRow(
        figures.group_id,
        figures.state,
        str(group_type),
        figures.protocol_type,
        figures.members,
        {**dict.fromkeys(figures.assigned), **lags},
        sum(known) if known and len(known) == len(lags) else None,
    )


def with_now(row: GroupRow, now: GroupNow | None) -> GroupRow:
    """With what a group with an actor says about itself. None: it was not asked, since it is Stable, or is gone."""
    if now is None:
        return row
    offsets = None if row.members else now.offsets
    expires_ms = None if offsets is None else _expiry(offsets.first_expires_ms)
    return row._replace(guarded_until_ms=now.guarded_until_ms, expires_ms=expires_ms)


def _expiry(time_ms: int | None) -> int | None:
    return None if time_ms is None or time_ms >= EXPIRY_MAX_MS else time_ms


def _with_state(row: GroupRow | None, listed: ListedState) -> GroupRow:
    if row is None:
        return GroupRow(*listed)
    return row._replace(state=listed.state, type=listed.type, protocol_type=listed.protocol_type)


def _changed_topics(before: TopicRanges, after: TopicRanges) -> set[str]:
    """Topics whose offsets have moved, that came or that went."""
    return {topic for topic in before.keys() | after.keys() if before.get(topic) != after.get(topic)}


def _keeps(row: GroupRow, changed: set[str] | None) -> bool:
    return changed is not None and (not changed or not row.topics or changed.isdisjoint(row.topics))
