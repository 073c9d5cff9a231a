"""The page /metrics/groups: the figures of single groups, of which the query says how many. See docs/metrics.md.

The groups with an actor are asked, in batches, on the node's loop. Everything else is the work of a thread: packed
groups are read from copies of their partitions, and only the groups of the page are kept.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from ...actors.consumer_group.messages import ConsumerGroupDescribed, DescribeConsumerGroup
from ...actors.consumer_group.records import CONSUMER
from ...actors.errors import ErrorCode
from ...actors.messages import DescribeGroup, Fetched, OffsetFetch
from .group_figures import GroupFigures, TopicRanges, of_classic, of_consumers, of_passivated
from .group_query import ORDERS, GroupQuery, InvalidQuery, matcher, parse_query
from .group_series import NAME_CHARACTERS_MAX, STYLES, Brokers, Series, Style, families, label
from .health import BadQuery
from .kept_page import KeptPage
from .lag import LAG_TIMEOUT_S, ORIGIN
from .topic_ranges import read_ranges

if TYPE_CHECKING:
    from prometheus_client import Metric

    from ..engine.reply import Reply
    from .node import Node
    from .sample import NodeSource

SERIES_MAX = 20_000
"""Of one page. Groups whose series do not fit are left out."""

WORK_TIMEOUT_S = 5.0
"""Groups that were not read within this time are left out."""

GROUPS_PER_BATCH = 32
"""Groups that are asked at the same time, so that other requests are not delayed."""

PAGES_KEPT = 16
"""Pages that are kept for a second. They have different queries."""


class GroupPages:
    """The pages of one node by query. One is made at a time. All methods are called on the node's loop."""

    def __init__(self, source: NodeSource, clock_s: Callable[[], float]) -> None:
        self._source = source
        self._clock_s = clock_s
        self._pages: dict[GroupQuery, KeptPage] = {}
        self._turn = asyncio.Lock()

    async def get(self, query_text: str) -> bytes:
        """Raises BadQuery."""
        try:
            query = parse_query(query_text)
            page = self._pages.pop(query, None) or KeptPage(lambda: self._make(query), self._clock_s)
            while len(self._pages) >= PAGES_KEPT:
                del self._pages[next(iter(self._pages))]
            self._pages[query] = page
            return await page.get()
        except InvalidQuery as error:
            raise BadQuery(str(error)) from None

    async def _make(self, query: GroupQuery) -> bytes:
        async with self._turn:
            node = self._source()
            return b"" if node is None else await GroupPage(node, query).make()


class ActiveGroup(NamedTuple):
    """The answers of a group with an actor. ``described``: a Described or a ConsumerGroupDescribed."""

    described: Any
    fetched: Fetched


class TopGroups:
    """The groups that the query wants, in its order. ``series_count``: of all groups that were added."""

    def __init__(self, query: GroupQuery, style: Style, node_id: int) -> None:
        self.series_count = 0
        self._query = query
        self._style = style
        self._node_id = node_id
        self._groups: dict[str, GroupFigures] = {}  # those that are on the page, if no others follow, and some more

    def add(self, group: GroupFigures) -> None:
        if group.group_id in self._groups:
            return  # it was passivated or activated meanwhile
        self.series_count += sum(1 for _ in self._style.of_group(group, self._node_id))
        if len(group.group_id) > NAME_CHARACTERS_MAX:
            return
        self._groups[group.group_id] = group
        if len(self._groups) >= 4 * self._query.top:
            self._groups = {kept.group_id: kept for kept in self.groups()}

    def groups(self) -> list[GroupFigures]:
        return sorted(self._groups.values(), key=ORDERS[self._query.by])[: self._query.top]


class GroupPage:
    """One page of a node. ``unread``: groups that were not read in time."""

    def __init__(self, node: Node, query: GroupQuery) -> None:
        cluster = node.services.cluster
        self.unread = 0
        self._node = node
        self._query = query
        self._style = STYLES[query.style]
        self._matches: Callable[[str], Any] = bool
        self._ranges: TopicRanges = {}
        self._brokers = Brokers(cluster.node_id, _addresses(node))
        self._top = TopGroups(query, self._style, cluster.node_id)
        self._end_s = time.monotonic() + WORK_TIMEOUT_S

    async def make(self) -> bytes:
        """Raises InvalidQuery."""
        self._matches = await asyncio.to_thread(matcher, self._query.group)
        self._ranges = await read_ranges([self._node.topics.get(name) for name in self._node.topics.names()])
        partitions = self._node.groups.partitions
        for passivated in [partition.passivated for partition in partitions if partition.passivated]:
            await asyncio.to_thread(self._add_passivated, passivated)
        for active in [partition.active for partition in partitions if partition.active]:
            await self._add_active(await asyncio.to_thread(self._matching, active))
        return await asyncio.to_thread(self._text)

    @property
    def _is_late(self) -> bool:
        return time.monotonic() >= self._end_s

    def _matching(self, active: dict[str, Any]) -> list[str]:
        """The names that match, of a copy that is made in one step: the loop changes the groups meanwhile."""
        names = tuple(active)
        found: list[str] = []
        for number, name in enumerate(names):
            if self._is_late:
                self.unread += len(names) - number
                break
            if self._matches(label(name)):
                found.append(name)
        return found

    # Passivated groups -----------------------------------------------------------------------------------------------

    def _add_passivated(self, passivated: dict[str, bytes]) -> None:
        groups = tuple(passivated.items())  # a copy in one step
        for number, (name, packed) in enumerate(groups):
            if self._is_late:
                self.unread += len(groups) - number
                break
            if self._matches(label(name)):
                self._top.add(of_passivated(name, packed, self._ranges))

    # Groups with an actor --------------------------------------------------------------------------------------------

    async def _add_active(self, names: Sequence[str]) -> None:
        for first in range(0, len(names), GROUPS_PER_BATCH):
            if self._is_late:
                self.unread += len(names) - first
                break
            batch = names[first : first + GROUPS_PER_BATCH]
            answers = await self._ask(batch)
            self.unread += len(batch) - len(answers)
            await asyncio.to_thread(self._add_answers, answers)

    async def _ask(self, names: Sequence[str]) -> list[ActiveGroup]:
        """The answers that come in time. A reply is an exception if the node stops, or after a bug, which is logged."""
        replies = [(self._describe(name), self._node.local.ask(OffsetFetch(name, None), ORIGIN)) for name in names]
        answers: list[ActiveGroup] = []
        timeout_s = max(min(self._end_s - time.monotonic(), LAG_TIMEOUT_S), 0)
        with suppress(Exception):
            async with asyncio.timeout(timeout_s):
                for described, fetched in replies:
                    await described
                    await fetched
        for described, fetched in replies:
            if described.done() and fetched.done():
                with suppress(Exception):
                    answers.append(ActiveGroup(described.get(), fetched.get()))
        return answers

    def _describe(self, name: str) -> Reply:
        listed = self._node.groups.listed.get(name)
        is_consumer = listed is not None and listed.group_type == CONSUMER
        return self._node.local.ask(DescribeConsumerGroup(name) if is_consumer else DescribeGroup(name), ORIGIN)

    def _add_answers(self, answers: Iterable[ActiveGroup]) -> None:
        """Without the groups that are gone."""
        for described, fetched in answers:
            if described.error is not ErrorCode.NONE or fetched.error is not ErrorCode.NONE:
                continue
            if isinstance(described, ConsumerGroupDescribed):
                self._top.add(of_consumers(described, fetched, self._ranges, self._topic_name))
            else:
                self._top.add(of_classic(described, fetched, self._ranges))

    def _topic_name(self, topic_id: bytes) -> str | None:
        topic = self._node.topics.by_id(UUID(bytes=topic_id))
        return None if topic is None else topic.name

    # The text --------------------------------------------------------------------------------------------------------

    def _text(self) -> bytes:
        shown, shown_of_groups = self._choose()
        dropped = self._top.series_count - shown_of_groups
        return generate_latest(FamilyCollector(self._families(shown, dropped)))

    def _choose(self) -> tuple[list[Series], int]:
        """The series of the page, and how many of them are those of groups."""
        series: list[Series] = []
        topics: dict[str, None] = {}
        for group in self._top.groups():
            of_group = list(self._style.of_group(group, self._brokers.node_id))
            if len(series) + len(of_group) > SERIES_MAX:
                break
            series += of_group
            topics.update(dict.fromkeys(topic.topic for topic in group.topics))
        count = len(series)
        for topic in topics:
            if topic in self._ranges and len(series) < SERIES_MAX:
                series += self._style.of_topic(topic, self._ranges[topic], self._brokers.node_id)
        return [*self._style.of_brokers(self._brokers), *series], count

    def _families(self, series: Sequence[Series], dropped: int) -> Iterator[Metric]:
        yield from families(self._style, series)
        doc = "Series of groups that are not on the page: see top, and the limit of a page."
        yield GaugeMetricFamily("callboard_group_series_dropped", doc, dropped)
        yield GaugeMetricFamily("callboard_groups_unread", "Groups that were not read in time.", self.unread)


class FamilyCollector(Collector):
    """Collects what it is given."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _addresses(node: Node) -> dict[int, str]:
    """The addresses of all servers, by id, for clients of the first listener. One that does not listen has none."""
    listener = node.services.options.listeners[0].name
    brokers = node.services.cluster.brokers(listener)
    return {broker.node_id: f"{broker.host}:{broker.port}" for broker in brokers if broker.host}
