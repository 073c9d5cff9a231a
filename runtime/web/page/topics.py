"""The list of topics, and one topic with its groups."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from starlette.requests import Request

from ....actors.errors import CoordinatorError, ErrorCode
from ...node.group_figures import TopicRange
from ..group_list import BadParameter
from ..group_rows import GroupRow
from ..reading import path_text
from ..snapshots import Snapshot
from .pieces import parse_page, piece_of
from .row import Context, Sources


class TopicLine(NamedTuple):
    """A topic in the list. ``partitions`` and ``records`` are None if this server does not have the topic.

    ``lag``: of all groups that have the topic; None if that of one is not known, or there is none.
    """

    topic: str
    partitions: int | None
    records: int | None
    groups: int
    lag: int | None


class PartitionLine(NamedTuple):
    """The records of a partition are those from ``start`` to before ``end``."""

    partition: int
    start: int
    end: int


async def show(sources: Sources, request: Request) -> Context:
    prefix, page = parse_parameters(request.query_params.multi_items(), ("prefix", "page"))
    snapshot = await sources.snapshots.get()
    names = sorted(name for name in {*snapshot.ranges, *snapshot.table.topics()} if name.startswith(prefix))
    piece = piece_of(names, page, **({"prefix": prefix} if prefix else {}))
    lines = await asyncio.to_thread(lambda: [line_of(snapshot, name) for name in piece.rows])
    return {"prefix": prefix, "piece": piece._replace(rows=lines)}


async def show_one(sources: Sources, request: Request) -> Context:
    topic = path_text(request, "topic")
    _, page = parse_parameters(request.query_params.multi_items(), ("page",))
    snapshot = await sources.snapshots.get()
    rows = await asyncio.to_thread(rows_of, snapshot, topic)
    known = snapshot.ranges.get(topic)
    if known is None and not rows:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise CoordinatorError(code, f"topic {topic!r}: {code.name}, and no group has offsets of it")
    return {
        "topic": topic,
        "line": await asyncio.to_thread(line_of, snapshot, topic),
        "groups": piece_of([(row, (row.topics or {}).get(topic)) for row in rows], page),
        "partitions": partition_lines(known),
    }


def rows_of(snapshot: Snapshot, topic: str) -> list[GroupRow]:
    return [snapshot.table.rows[position] for position in snapshot.table.positions(topic)]


def line_of(snapshot: Snapshot, topic: str) -> TopicLine:
    known, rows = snapshot.ranges.get(topic), rows_of(snapshot, topic)
    lags = [(row.topics or {}).get(topic) for row in rows]
    return TopicLine(
        topic,
        None if known is None else len(known.ends),
        None if known is None else sum(known.ends) - sum(known.starts),
        len(rows),
        sum_of(lags),
    )


def sum_of(lags: Sequence[int | None]) -> int | None:
    """None if one is not known, or there is none."""
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known and len(known) == len(lags) else None


def partition_lines(known: TopicRange | None) -> list[PartitionLine]:
    if known is None:
        return []
    return [PartitionLine(*line) for line in zip(range(len(known.ends)), known.starts, known.ends, strict=True)]


def parse_parameters(parameters: Iterable[tuple[str, str]], allowed: Sequence[str]) -> tuple[str, int]:
    """The prefix, and the page from 1. Raises BadParameter."""
    given = {name: value for name, value in parameters if value}
    unknown = given.keys() - set(allowed)
    if unknown:
        raise BadParameter(f"unknown parameter {min(unknown)[:100]!r}: expected some of {', '.join(allowed)}")
    return given.get("prefix", ""), parse_page(given.get("page"))
