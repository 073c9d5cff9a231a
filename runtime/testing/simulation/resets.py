"""``ResetChecker``: no reset of a running group is undone by a client that has no generation.

A group with members refuses commits without a generation. So if a reset has removed members, such a commit to one of
its partitions that arrived later comes after it, and must be refused until the next generation is Stable, or for at
least a minute, whatever happens to the coordinator meanwhile. Partitions whose offset a reset has deleted are left out:
the next process knows of no guard.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from ....actors.errors import ErrorCode
from ....actors.group.events import STABLE_NAME, GroupEvent, Kind
from ....actors.group.reset_messages import OffsetsReset, ResetOffsets
from ....actors.group.resets import GUARD_MIN_MS
from ....actors.messages import OffsetCommit
from .checkers import Fail
from .history import Exchange, Listener

Partition = tuple[str, int]


class Guard(NamedTuple):
    """``since``: the event after which commits come after the reset. ``until_s``: until when it is guarded."""

    reset: str
    since: float
    until_s: float
    partitions: frozenset[Partition]


class ResetChecker(Listener):
    """``fail`` is called with a text. ``arrived`` in the names of events: at the coordinator."""

    def __init__(self, fail: Fail) -> None:
        self._fail = fail
        self._guards: dict[str, list[Guard]] = defaultdict(list)
        self._consumer_groups: set[str] = set()

    def group_changed(self, group_id: str, event: GroupEvent) -> None:
        if event.is_epoch:
            self._consumer_groups.add(group_id)
        if event.kind is not Kind.MEMBER_REMOVED and event.state == STABLE_NAME:
            self._guards.pop(group_id, None)

    def arrived(self, exchange: Exchange) -> None:
        message = exchange.message
        if isinstance(message, ResetOffsets):
            deleted = frozenset((topic, partition) for topic, partition, offset in message.offsets if offset is None)
            guards = self._guards[message.group_id]
            guards[:] = [guard._replace(partitions=guard.partitions - deleted) for guard in guards]

    def answered(self, exchange: Exchange) -> None:
        message = exchange.message
        if isinstance(message, ResetOffsets):
            self._reset(exchange, message, exchange.answer)
        elif isinstance(message, OffsetCommit) and message.generation_id < 0:
            self._committed(exchange, message)

    def _reset(self, exchange: Exchange, message: ResetOffsets, answer: OffsetsReset) -> None:
        """Commits may overtake a reset of a group without members, or one that waits for the decision before it."""
        if answer.error is not ErrorCode.NONE or answer.guarded_until_ms < 0 or exchange.arrived_s is None:
            return
        waits = not answer.removed or message.group_id in self._consumer_groups
        since = exchange.answered_at if waits else exchange.arrived_at
        partitions = frozenset((topic, partition) for topic, partition, offset in message.offsets if offset is not None)
        until_s = exchange.arrived_s + GUARD_MIN_MS / 1000
        self._guards[message.group_id].append(Guard(str(exchange), since, until_s, partitions))

    def _committed(self, exchange: Exchange, message: OffsetCommit) -> None:
        for commit, error in zip(message.commits, exchange.answer.errors, strict=True):
            for guard in self._guards[message.group_id] if error is ErrorCode.NONE else ():
                is_later = exchange.arrived_at > guard.since and (exchange.arrived_s or 0.0) < guard.until_s
                if is_later and (commit.topic, commit.partition) in guard.partitions:
                    self._fail(f"{exchange} was accepted, and has undone the reset {guard.reset}")
