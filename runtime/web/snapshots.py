"""Snapshots: the table of all groups of a node, read again and again in the background.

The node's loop copies references to what it has in memory, and answers for groups with an actor, in short pieces. All
else is done in threads.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

import pykka

from ...actors.consumer_group.messages import ConsumerGroupDescribed, DescribeConsumerGroup
from ...actors.consumer_group.records import CONSUMER
from ...actors.errors import ErrorCode
from ...actors.group.expiry import MINUTE_MS
from ...actors.group.offsets import packed_types
from ...actors.group.resets import longest_guard_ms
from ...actors.messages import DescribeGroup, ExplainGroup, Fetched, OffsetFetch
from ...actors.recorder.now import GroupNow
from ...actors.records import CLASSIC
from ..kafka.node_subjects import ListedState
from ..kafka.services import Origin
from ..node.group_figures import TopicRanges, of_classic, of_consumers
from ..node.node import Node
from ..node.topic_ranges import read_ranges
from .backend import PATIENCE_S, Backend, Unavailable
from .change_log import ChangeLog
from .group_rows import SETTLED, FoundGroup, GroupRow, GroupsCopy, Limits, Pacer, RowCache, row_of, with_now
from .group_table import GroupTable

if TYPE_CHECKING:
    from ..node.cluster import Cluster
    from .other_nodes import OtherGroups, OtherNodes

log = logging.getLogger("callboard.runtime.web")

ORIGIN: Final = Origin("callboard-web", "/127.0.0.1", 0)
INTERVAL_S: Final = 1.0
"""Between two readings while pages are asked for. It is longer if a reading takes longer."""

IDLE_INTERVAL_S: Final = 10.0
"""Between two readings while none are."""

IN_USE_S: Final = 60.0
"""So long after a page it is read often."""

BATCH: Final = 16
BATCH_PAUSE_S: Final = 0.01
"""Groups with an actor that are asked at the same time, and the pause after them: other requests are not delayed."""

FIRST_ACTIVE_MAX: Final = 500
"""If there are more groups with an actor, the first table has no figures of them yet."""

LISTED_PIECE: Final = 512
"""Entries that are copied without a pause of the loop."""


class Snapshot(NamedTuple):
    """``read_at_s``: when the reading of its groups began, by the monotonic clock. ``changes``: of the cache then.

    ``now_ms``: when the groups were copied, by the node's clock, since 1970.
    ``incomplete``: the ids of nodes of a cluster of which groups are missing.
    """

    table: GroupTable
    ranges: TopicRanges
    read_at_s: float
    changes: int
    now_ms: int
    incomplete: tuple[int, ...] = ()

    @property
    def age_ms(self) -> int:
        return round((time.monotonic() - self.read_at_s) * 1000)


class Snapshots:
    """The newest table of groups. It is read in a task of the loop that first calls ``get``.

    ``log``: which groups have changed from one table to the next.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.log = ChangeLog()
        self._cache = RowCache(packed_types)
        self._turn = asyncio.Lock()  # of the cache, from a copy of the node's groups until its rows are made
        self._newest: Snapshot | None = None
        self._task: asyncio.Task[None] | None = None
        self._asked = asyncio.Event()
        self._asked_at_s = time.monotonic()
        self._have_first = asyncio.Event()
        self._others: OtherNodes | None = None
        self._incomplete: tuple[int, ...] = ()
        self._reread: set[str] = set()  # groups that were read again since the others were asked

    async def get(self) -> Snapshot:
        """The newest one. Raises Unavailable if there is none after two seconds."""
        self._asked_at_s = time.monotonic()
        self._asked.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._read_repeatedly())
        if self._newest is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._have_first.wait(), PATIENCE_S)
        if self._newest is None:
            raise Unavailable("the groups are being read: ask again in some seconds")
        return self._newest

    async def reread(self, group: str) -> None:
        """Read one group again, after a change. Raises Unavailable."""
        if self._newest is None:
            return
        async with self._turn:
            self._reread.add(group)
            await self._replace(group)
            await self._publish(self._newest.read_at_s)

    async def _replace(self, group: str) -> None:
        found = await self._backend.ask(lambda: find(self._backend.node(), group, self._cache.ranges))
        await asyncio.to_thread(self._cache.replace, group, found)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    # The task --------------------------------------------------------------------------------------------------------

    async def _read_repeatedly(self) -> None:
        while True:
            began_s = time.monotonic()
            try:
                await self._read(began_s)
            except (Unavailable, pykka.ActorDeadError) as error:
                log.info("the groups were not read: %s", error)
            except Exception:
                log.exception("the groups were not read")
            took_s = time.monotonic() - began_s
            await self._wait(max(INTERVAL_S, 4 * took_s))

    async def _wait(self, interval_s: float) -> None:
        if time.monotonic() - self._asked_at_s < IN_USE_S:
            await asyncio.sleep(interval_s)
            return
        self._asked.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._asked.wait(), max(interval_s, IDLE_INTERVAL_S))

    async def _read(self, began_s: float) -> None:
        """Raises Unavailable, and ActorDeadError when the node stops."""
        self._reread.clear()
        others = await self._read_others()
        async with self._turn:
            copy = await self._backend.ask(lambda: copy_groups(self._backend.node()))
            if others is not None:
                copy, self._incomplete = others.joined(copy), others.incomplete
            await asyncio.to_thread(self._cache.take, copy, Pacer())
            for group in self._reread if others is not None else ():
                await self._replace(group)
            if self._newest is None and len(copy.active) > FIRST_ACTIVE_MAX:
                await self._publish(began_s)
        for first in range(0, len(copy.active), BATCH):
            async with self._turn:
                self._cache.add(await self._ask(copy.active[first : first + BATCH]))
            await asyncio.sleep(BATCH_PAUSE_S)
        async with self._turn:
            await self._publish(began_s)

    async def _read_others(self) -> OtherGroups | None:
        """The groups of the other nodes; None for a node that is alone."""
        if self._others is None:
            cluster = await self._backend.ask(self._find_cluster)
            if cluster is None:
                return None
            from .other_nodes import OtherNodes

            self._others = OtherNodes(self._backend, cluster.questions)
        return await self._others.read()

    async def _find_cluster(self) -> Cluster | None:
        return self._backend.node().environment.cluster

    async def _ask(self, listed: Sequence[ListedState]) -> list[GroupRow]:
        return await self._backend.ask(lambda: read_active(self._backend.node(), listed, self._cache.ranges))

    async def _publish(self, read_at_s: float) -> None:
        if self._newest is not None and self._newest.changes == self._cache.changes:
            table = self._newest.table
        else:
            table = await asyncio.to_thread(lambda: GroupTable(self._cache.rows.values(), Pacer()))
        changed = self._cache.take_changed()
        if self._newest is not None:
            self.log.add(changed)
        cache = self._cache
        self._newest = Snapshot(table, cache.ranges, read_at_s, cache.changes, cache.now_ms, self._incomplete)
        self._have_first.set()


# On the node's loop --------------------------------------------------------------------------------------------------


async def copy_groups(node: Node) -> GroupsCopy:
    """All groups, a partition at a time."""
    ranges = await read_ranges([node.topics.get(name) for name in node.topics.names()])
    passive: list[Sequence[tuple[str, bytes]]] = []
    active: list[ListedState] = []
    unreadable: list[ListedState] = []
    for partition in node.groups.partitions:
        passive.append(tuple(partition.passivated.items()))
        names = tuple(partition.active)
        for first in range(0, len(names), LISTED_PIECE):
            found = [node.groups.listed.get(name) for name in names[first : first + LISTED_PIECE]]
            active += [
                ListedState(each.group_id, each.state, each.group_type, each.protocol_type) for each in found if each
            ]
            await asyncio.sleep(0)
        for name in tuple(partition.quarantined):
            listed = partition.list_quarantined(name)
            if listed is not None:
                unreadable.append(ListedState(name, listed.state, listed.group_type, listed.protocol_type))
        await asyncio.sleep(0)
    return GroupsCopy(ranges, passive, active, unreadable, node.environment.clock.wall_ms(), _limits(node))


def _limits(node: Node) -> Limits:
    return Limits(node.settings.offsets_retention_minutes * MINUTE_MS, longest_guard_ms(node.settings))


async def find(node: Node, group: str, ranges: TopicRanges) -> FoundGroup:
    """One group as it is now."""
    packed = node.groups.passivated.get(group)
    if packed is not None:
        return FoundGroup(packed=packed)
    if node.environment.cluster is not None:
        from .other_nodes import find_row

        return FoundGroup(await find_row(node, group, ranges))
    rows = await _read_own(node, [group], ranges) if group in node.groups.groups else []
    return FoundGroup(rows[0] if rows else None)


async def read_active(node: Node, listed: Sequence[ListedState], ranges: TopicRanges) -> list[GroupRow]:
    """Rows of groups with an actor; those that are gone meanwhile are left out."""
    if node.environment.cluster is not None:
        from .other_nodes import read_rows

        return await read_rows(node, listed, ranges)
    return await _read_own(node, [each.group for each in listed], ranges)


async def _read_own(node: Node, names: Sequence[str], ranges: TopicRanges) -> list[GroupRow]:
    replies = [(_describe(node, name), _fetch(node, name), _explain(node, name)) for name in names]
    rows: list[GroupRow] = []
    for described_reply, fetched_reply, explained_reply in replies:
        described, fetched = await described_reply, await fetched_reply
        now: GroupNow | None = None if explained_reply is None else (await explained_reply).now
        if described.error is ErrorCode.NONE and fetched.error is ErrorCode.NONE:
            rows.append(with_now(_row(node, described, fetched, ranges), now))
    return rows


def _describe(node: Node, name: str) -> Any:
    listed = node.groups.listed.get(name)
    is_consumer = listed is not None and listed.group_type == CONSUMER
    return node.local.ask(DescribeConsumerGroup(name) if is_consumer else DescribeGroup(name), ORIGIN)


def _fetch(node: Node, name: str) -> Any:
    return node.local.ask(OffsetFetch(name, None), ORIGIN)


def _explain(node: Node, name: str) -> Any:
    """None for a group that has nothing to say about guards and expiry."""
    listed = node.groups.listed.get(name)
    return None if listed is None or listed.state in SETTLED else node.local.ask(ExplainGroup(name), ORIGIN)


def _row(node: Node, described: Any, fetched: Fetched, ranges: TopicRanges) -> GroupRow:
    if isinstance(described, ConsumerGroupDescribed):
        return row_of(of_consumers(described, fetched, ranges, lambda id_: _topic_name(node, id_)), CONSUMER)
    return row_of(of_classic(described, fetched, ranges), CLASSIC)


def _topic_name(node: Node, topic_id: bytes) -> str | None:
    topic = node.topics.by_id(UUID(bytes=topic_id))
    return None if topic is None else topic.name
