"""The page of one group: why it is as it is, its members, its partitions, its rebalances."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from starlette.requests import Request

from ....actors.errors import CoordinatorError, ErrorCode
from ....actors.group.events import STABLE_NAME
from ....actors.recorder.clients import MemberClients
from ....actors.recorder.flight_recorder import RECORDS_KEPT
from ...embed.results import CommittedOffset, GroupDescription, GroupExplanation, GroupMember, TopicPartition
from ...node.group_figures import TopicRanges
from ..backend import Backend
from ..commit_times import CommitTimes, read_commit_times
from ..group_acls import OPERATIONS, GroupAcls, read_acls
from ..group_list import BadParameter
from ..reading import path_text
from ..replies import offsets_json, total_lag
from .actions import ACTIONS
from .members import find_clients, member_rows
from .pieces import parse_page, piece_of
from .row import Context, Sources
from .timeline import Bar, bars_of, strip_of

ACLS: Final = "acls"
MEMBERS: Final = "members"
TABS: Final = {
    "": "Overview",
    MEMBERS: "Members",
    "partitions": "Partitions",
    "rebalances": "Rebalances",
    ACLS: "ACLs",
}


class Group(NamedTuple):
    """``described``: None if there is no such group any more, but its rebalances are still recorded.

    ``clients``: those of the members of groups that this node has. ``has_acls``: whether there are ACLs. ``acls``:
    those of the group, on the tab that shows them.
    """

    explained: GroupExplanation
    described: GroupDescription | None
    offsets: Mapping[TopicPartition, CommittedOffset]
    ranges: TopicRanges
    times: CommitTimes
    clients: MemberClients
    has_acls: bool = False
    acls: GroupAcls | None = None


class PartitionRow(NamedTuple):
    """``committed``, ``end``, ``lag`` and times are None if there is none, or it is not known. ``owner``: a member.

    ``lag_ms``: the age of the first record that is not committed. ``committed_ms``: when the offset was committed.
    ``is_reset``: by a reset that is guarded. ``is_by_owner``: since the last rebalance, so it was the owner.
    """

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    metadata: str
    owner: GroupMember | None
    lag_ms: int | None = None
    committed_ms: int | None = None
    is_reset: bool = False
    is_by_owner: bool = False


class TopicRow(NamedTuple):
    """A topic of the group. ``owned``: its partitions that a member has."""

    topic: str
    partitions: int
    owned: int
    lag: int | None


async def show(sources: Sources, request: Request) -> Context:
    group, tab, page = path_text(request, "group"), *parse_tab(request.query_params.multi_items())
    found = await sources.backend.ask(lambda: read_tab(sources.backend, group, tab))
    count, now_ms = found.times.commits, sources.now_ms()
    sources.commit_trends.note({group: count}, now_ms)
    context = await asyncio.to_thread(context_of, found, tab, page, now_ms)
    return {**context, "commits_per_minute": sources.commit_trends.per_minute(group, count, now_ms)}


def context_of(found: Group, tab: str, page: int, clock_ms: int) -> Context:
    """``clock_ms``: the time, if the group is gone and tells none."""
    now_ms = found.explained.now.now_ms if found.explained.now else clock_ms
    partitions = partition_rows(found)
    context = {
        "group": found.explained.group_id,
        "tab": tab,
        "tabs": {name: text for name, text in TABS.items() if name != ACLS or found.has_acls},
        "actions": ACTIONS,
        "explained": found.explained,
        "now": found.explained.now,
        "now_ms": now_ms,
        "described": found.described,
        "lag": total_lag([{"lag": row.lag} for row in partitions if row.committed is not None]),
        "counts": {
            "members": len(found.described.members) if found.described else 0,
            "partitions": len(partitions),
            "rebalances": len(found.explained.rebalances),
        },
    }
    return {**context, **_TAB_CONTEXTS[tab](found, partitions, page, now_ms)}


async def read_tab(backend: Backend, group: str, tab: str) -> Group:
    """The same as ``read_group``, with ACLs if there are some."""
    found, node = await read_group(backend, group), backend.node()
    acls = await read_acls(node, group) if tab == ACLS else None
    return found._replace(has_acls=node.services.acls is not None, acls=acls)


async def read_group(backend: Backend, group: str) -> Group:
    """On the coordinator's loop. Raises CoordinatorError for a group that is unknown and has no record."""
    explained = await backend.admin.explain(group, limit=RECORDS_KEPT)
    clients = backend.node().groups.event_log.recorder.clients
    try:
        described = await backend.admin.describe(group)
    except CoordinatorError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return Group(explained, None, {}, {}, CommitTimes(), clients)
    offsets = await backend.admin.offsets(group)
    assigned = {topic for member in described.members for topic, _ in member.assigned or ()}
    names = dict.fromkeys((*(topic for topic, _ in offsets), *assigned))
    times = await read_commit_times(backend.node(), group, offsets)
    return Group(explained, described, offsets, await backend.ranges(names), times, clients)


# The tabs ------------------------------------------------------------------------------------------------------------


def _overview(found: Group, partitions: Sequence[PartitionRow], _page: int, _now_ms: int) -> Context:
    return {"topics": topic_rows(partitions), "bars": bars_of(found.explained.rebalances[:5])}


def _members(found: Group, _partitions: Sequence[PartitionRow], page: int, _now_ms: int) -> Context:
    members = found.described.members if found.described else ()
    rows = member_rows(members, found.explained.now, find_clients(found.explained, members, found.clients))
    return {"members": piece_of(rows, page, tab=MEMBERS)}


def _partitions(_found: Group, partitions: Sequence[PartitionRow], page: int, _now_ms: int) -> Context:
    return {"partitions": piece_of(partitions, page, tab="partitions")}


def _rebalances(found: Group, _partitions: Sequence[PartitionRow], _page: int, now_ms: int) -> Context:
    bars: list[Bar] = bars_of(found.explained.rebalances)
    return {"bars": bars, "strip": strip_of(found.explained.rebalances, now_ms)}


def _acls(found: Group, _partitions: Sequence[PartitionRow], _page: int, _now_ms: int) -> Context:
    return {"acls": found.acls or GroupAcls((), (), True), "operations": [each.name.lower() for each in OPERATIONS]}


_TAB_CONTEXTS: Final = {
    "": _overview,
    MEMBERS: _members,
    "partitions": _partitions,
    "rebalances": _rebalances,
    ACLS: _acls,
}


def parse_tab(parameters: Iterable[tuple[str, str]]) -> tuple[str, int]:
    """The tab, and the page of its rows from 1. Raises BadParameter."""
    given = dict(parameters)
    unknown = given.keys() - {"tab", "page"}
    if unknown:
        raise BadParameter(f"unknown parameter {min(unknown)[:100]!r}: expected tab or page")
    tab = given.get("tab", "")
    if tab not in TABS:
        raise BadParameter(f"tab={tab[:100]!r}: expected one of {', '.join(filter(None, TABS))}")
    return tab, parse_page(given.get("page"))


# Rows ----------------------------------------------------------------------------------------------------------------


def partition_rows(found: Group) -> list[PartitionRow]:
    """The partitions with a committed offset or an owner, sorted."""
    members = found.described.members if found.described else ()
    owners = {partition: member for member in members for partition in member.assigned or ()}
    json_rows = offsets_json(found.offsets, found.ranges, found.times)
    committed = {(row["topic"], row["partition"]): row for row in json_rows}
    rows = [
        _partition_row(key, committed.get(key), found.ranges, owners.get(key)) for key in sorted({*owners, *committed})
    ]
    return [_with_times(row, found.times, _stable_since_ms(found)) for row in rows]


def _stable_since_ms(found: Group) -> int | None:
    """When the last rebalance ended, if the group is stable since; None if that is not known."""
    records, now = found.explained.rebalances, found.explained.now
    return records[0].ended_ms if records and now is not None and now.state == STABLE_NAME else None


def _with_times(row: PartitionRow, times: CommitTimes, stable_since_ms: int | None) -> PartitionRow:
    key = row.topic, row.partition
    committed_ms = times.committed(key)
    is_since = committed_ms is not None and stable_since_ms is not None and committed_ms >= stable_since_ms
    return row._replace(
        lag_ms=times.lag_ms(key, row.lag),
        committed_ms=committed_ms,
        is_reset=times.is_reset(key),
        is_by_owner=is_since and row.owner is not None,
    )


def _partition_row(
    key: TopicPartition, row: Mapping[str, Any] | None, topic_ranges: TopicRanges, owner: GroupMember | None
) -> PartitionRow:
    topic, partition = key
    if row is not None:
        return PartitionRow(topic, partition, row["offset"], row["end_offset"], row["lag"], row["metadata"], owner)
    known = topic_ranges.get(topic)
    end = known.ends[partition] if known is not None and partition < len(known.ends) else None
    return PartitionRow(topic, partition, None, end, None, "", owner)


def topic_rows(partitions: Sequence[PartitionRow]) -> list[TopicRow]:
    topics: dict[str, list[PartitionRow]] = {}
    for row in partitions:
        topics.setdefault(row.topic, []).append(row)
    return [
        TopicRow(
            topic,
            len(rows),
            sum(row.owner is not None for row in rows),
            total_lag([{"lag": row.lag} for row in rows if row.committed is not None]),
        )
        for topic, rows in topics.items()
    ]
