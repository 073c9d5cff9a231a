"""FlightRecorder: the last rebalance records of all groups of a coordinator, within a limit of memory."""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial

from ..group.events import DEAD_NAME
from ..ports import BackgroundWork, InlineWork
from .assignments import is_cooperative, moves_between
from .causes import COOPERATIVE_FOLLOWUP
from .clients import MemberClients
from .expiries import Expiries
from .now import GroupNow, OffsetsNow
from .record import RebalanceRecord, size_of
from .tracker import Draft

log = logging.getLogger("callboard.actors")

RECORDS_KEPT = 50  # of one group
RECORDER_BYTES_MAX = 4 * 1024 * 1024
"""The memory of the records of all groups. Beyond it the oldest record is dropped."""

Observer = Callable[[RebalanceRecord], None]


class FlightRecorder:
    """``background``: where assignments are compared; its ``done`` must be called where the recorder is used.

    ``topic_name``: the name of a topic by its id in hexadecimal digits, or these. ``observers`` get each record.
    ``bytes_used``: the memory of the records. They outlive the group in memory, and so do ``expiries``.
    """

    def __init__(self, bytes_max: int = RECORDER_BYTES_MAX) -> None:
        self.background: BackgroundWork = InlineWork()
        self.topic_name: Callable[[str], str] = str
        self.observers: list[Observer] = []
        self.bytes_used = 0
        self.clients = MemberClients()
        self.expiries = Expiries()
        self._bytes_max = bytes_max
        self._rings: dict[str, deque[RebalanceRecord]] = {}
        self._ages: OrderedDict[int, RebalanceRecord] = OrderedDict()  # by id, oldest first

    def finish(self, draft: Draft) -> None:
        """Complete a record, and keep it."""
        self.background.run(partial(complete, draft, self.clients), self.keep)

    def keep(self, record: RebalanceRecord) -> None:
        if record.is_epoch and record.moves is not None:
            moved = tuple((self.topic_name(topic), number) for topic, number in record.moves.moved_partitions)
            record = record._replace(moves=record.moves._replace(moved_partitions=moved))
        ring = self._rings.setdefault(record.group_id, deque())
        ring.append(record)
        self._ages[id(record)] = record
        self.bytes_used += size_of(record)
        if len(ring) > RECORDS_KEPT:
            self._drop(ring[0])
        while self.bytes_used > self._bytes_max and self._ages:
            self._drop(next(iter(self._ages.values())))
        for observer in self.observers:
            observer(record)

    def records(self, group_id: str, limit: int = RECORDS_KEPT) -> tuple[RebalanceRecord, ...]:
        """The last records of a group, the newest first."""
        ring = self._rings.get(group_id, ())
        return tuple(reversed(ring))[:limit]

    def absent(self, group_id: str, now_ms: int) -> GroupNow | None:
        """What is known of a group that does not exist, at this wall-clock time."""
        expired = self.expiries.find(group_id)
        return None if expired is None else GroupNow(now_ms, DEAD_NAME, 0, offsets=OffsetsNow(0, expired=expired))

    def _drop(self, record: RebalanceRecord) -> None:
        """Drop a record, which is the oldest one of its group."""
        ring = self._rings[record.group_id]
        ring.popleft()
        if not ring:
            del self._rings[record.group_id]
        del self._ages[id(record)]
        self.bytes_used -= size_of(record)


def complete(draft: Draft, clients: MemberClients) -> RebalanceRecord:
    """The record with what its assignments say, and its clients. It raises nothing: assignments come from clients."""
    try:
        record: RebalanceRecord = clients.complete(draft.record.group_id, _complete(draft))
        return record
    except Exception:
        log.exception("the assignments of group %r could not be compared", draft.record.group_id)
        return draft.record


def _complete(draft: Draft) -> RebalanceRecord:
    record, before, after = draft
    if after is None:
        return record
    moves = moves_between(before, after, record.duration_ms)
    why = record.why
    if why.cause == "subscription_changed" and is_cooperative(record.protocol) and moves is not None and moves.added:
        why = why._replace(cause=COOPERATIVE_FOLLOWUP)
    return record._replace(why=why, moves=moves)
