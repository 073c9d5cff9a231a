"""The targets of a reset: from what an operator asks for to the offset of each partition.

A new kind of target is a function, and a row in ``KINDS``. An offset outside of a partition is moved to its nearest
end, with a note. A partition without records does not limit offsets: members may count other things with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from datetime import datetime
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.messages import Fetched, OffsetFetch
from ...actors.steps import pieces
from .arguments import check_targets
from .refusals import check
from .results import OffsetsOf, PartitionRange, ResetTargets, ShiftBy, TopicDescription, TopicPartition

if TYPE_CHECKING:
    from .admin_requests import AdminRequests

OFFSET_MAX = 2**63 - 1
EXPECTED = (
    "expected a whole number from 0 to 2**63-1, 'earliest', 'latest', a datetime with a zone, ShiftBy or OffsetsOf"
)


class Known(NamedTuple):
    """What is known about a partition. ``found``: the offset that was looked up for the target; None if there is none.

    ``group``: whose offset it is to be.
    """

    group: str
    partition: TopicPartition
    range: PartitionRange
    found: int | None = None


class Chosen(NamedTuple):
    """``offset``: None for no committed offset. ``note``: why it is not what was asked for; "" if it is."""

    offset: int | None
    note: str = ""


LookUp = Callable[["AdminRequests", str, Any, Sequence[TopicPartition]], Awaitable[Mapping[TopicPartition, int]]]
"""Looks up what a target needs: with the group, the target, and the partitions."""


def _itself(target: Hashable) -> Hashable:
    return target


class Kind(NamedTuple):
    """``question``: the same for all targets that need the same to be looked up."""

    choose: Callable[[Any, Known], Chosen]
    look_up: LookUp | None = None
    question: Callable[[Any], Hashable] = _itself


# The kinds of targets ------------------------------------------------------------------------------------------------


def _no_offset(_target: None, _known: Known) -> Chosen:
    return Chosen(None)


def _offset(target: int, known: Known) -> Chosen:
    if not 0 <= target <= OFFSET_MAX:
        raise ValueError(f"offset {target!r}: {EXPECTED}")
    return within(target, known.range)


def _end(target: str, known: Known) -> Chosen:
    ends = {"earliest": known.range.start_offset, "latest": known.range.end_offset}
    if target not in ends:
        raise ValueError(f"offset {target!r}: {EXPECTED}")
    return Chosen(ends[target])


def _time(target: datetime, known: Known) -> Chosen:
    if target.tzinfo is None:
        raise ValueError(f"time {target.isoformat()!r}: expected a datetime with a zone, as in datetime.now(UTC)")
    if known.found is None:
        return Chosen(known.range.end_offset, "no record so late: the end")
    return within(known.found, known.range)


def _shift(target: ShiftBy, known: Known) -> Chosen:
    if type(target.records) is not int:
        raise ValueError(f"ShiftBy({target.records!r}): expected a whole number of records, negative to go back")
    if known.found is None:
        raise _unknown(f"group {known.group!r} has no committed offset of {_name(known.partition)} to shift")
    return within(known.found + target.records, known.range)


def _of_group(target: OffsetsOf, known: Known) -> Chosen:
    if known.found is None:
        raise _unknown(f"group {target.group!r} has no committed offset of {_name(known.partition)}")
    return within(known.found, known.range)


def within(offset: int, offsets: PartitionRange) -> Chosen:
    """The offset, or the nearest one that the partition has."""
    if offsets.start_offset == offsets.end_offset:
        possible = max(0, min(offset, OFFSET_MAX))
        return Chosen(possible, "" if possible == offsets.end_offset else "not checked: the partition has no records")
    if offset < offsets.start_offset:
        return Chosen(offsets.start_offset, f"{offset} is before the first record")
    if offset > offsets.end_offset:
        return Chosen(offsets.end_offset, f"{offset} is after the end")
    return Chosen(offset)


def _unknown(text: str) -> CoordinatorError:
    return CoordinatorError(ErrorCode.INVALID_REQUEST, f"{text}: leave the partition out, or name another target")


def _name(partition: TopicPartition) -> str:
    return f"{partition[0]}-{partition[1]}"


# What they need ------------------------------------------------------------------------------------------------------


async def fetch_offsets(requests: AdminRequests, group: str) -> dict[TopicPartition, int]:
    """All committed offsets of a group. Raises CoordinatorError."""
    fetched: Fetched = await requests.ask(OffsetFetch(group, None))
    check(fetched.error, f"group {group!r}")
    offsets: dict[TopicPartition, int] = {}
    for topic, rows in fetched.topics:
        for piece in pieces(rows):
            offsets.update(((topic, row.partition), row.offset) for row in piece)
            await asyncio.sleep(0)
    return offsets


async def _own_offsets(
    requests: AdminRequests, group: str, _target: ShiftBy, _partitions: Sequence[TopicPartition]
) -> Mapping[TopicPartition, int]:
    return await fetch_offsets(requests, group)


async def _offsets_of_group(
    requests: AdminRequests, _group: str, target: OffsetsOf, _partitions: Sequence[TopicPartition]
) -> Mapping[TopicPartition, int]:
    return await fetch_offsets(requests, target.group)


async def _offsets_at_time(
    requests: AdminRequests, _group: str, target: datetime, partitions: Sequence[TopicPartition]
) -> Mapping[TopicPartition, int]:
    time_ms = 0 if target.tzinfo is None else max(0, round(target.timestamp() * 1000))
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return {
        (topic, number): offset
        for topic, numbers in topics.items()
        for number, offset in (await requests.offsets_since(topic, numbers, time_ms)).items()
    }


KINDS: Mapping[type, Kind] = {
    type(None): Kind(_no_offset),
    int: Kind(_offset),
    str: Kind(_end),
    datetime: Kind(_time, _offsets_at_time),
    ShiftBy: Kind(_shift, _own_offsets, type),
    OffsetsOf: Kind(_of_group, _offsets_of_group),
}


# All targets of a reset ----------------------------------------------------------------------------------------------


async def describe_topics(requests: AdminRequests, targets: ResetTargets) -> dict[str, TopicDescription]:
    """The topics of targets. Raises TypeError and ValueError for bad targets, CoordinatorError for an unknown topic."""
    check_targets(targets)
    for target in targets.values():
        if type(target) not in KINDS:
            raise ValueError(f"offset {target!r}: {EXPECTED}")
    return {name: await requests.describe_topic(name) for name in dict.fromkeys(map(_topic, targets))}


async def resolve_targets(
    requests: AdminRequests, group: str, targets: ResetTargets, topics: Mapping[str, TopicDescription]
) -> dict[TopicPartition, Chosen]:
    """What is chosen for each partition. Its own target wins over its topic's.

    Raises ValueError for a target that is none, CoordinatorError for one that the server cannot know.
    """
    by_partition = targets_by_partition(targets, topics)
    found = await _look_up(requests, group, by_partition)
    chosen: dict[TopicPartition, Chosen] = {}
    for piece in pieces(by_partition.items()):
        for partition, target in piece:
            offsets = topics[partition[0]].partitions[partition[1]]
            chosen[partition] = KINDS[type(target)].choose(
                target, Known(group, partition, offsets, found.get(_question(target), {}).get(partition))
            )
        await asyncio.sleep(0)
    return chosen


async def _look_up(
    requests: AdminRequests, group: str, by_partition: Mapping[TopicPartition, Any]
) -> dict[Hashable, Mapping[TopicPartition, int]]:
    """What is found for each question."""
    asked: dict[Hashable, tuple[LookUp, Any, list[TopicPartition]]] = {}
    for piece in pieces(by_partition.items()):
        for partition, target in piece:
            look_up = KINDS[type(target)].look_up
            if look_up is not None:
                asked.setdefault(_question(target), (look_up, target, []))[2].append(partition)
        await asyncio.sleep(0)
    return {
        question: await look_up(requests, group, target, partitions)
        for question, (look_up, target, partitions) in asked.items()
    }


def _question(target: Any) -> Hashable:
    return KINDS[type(target)].question(target)


def _topic(key: TopicPartition | str) -> str:
    return key if isinstance(key, str) else key[0]


def targets_by_partition(targets: ResetTargets, topics: Mapping[str, TopicDescription]) -> dict[TopicPartition, Any]:
    """Raises CoordinatorError for a partition that a topic does not have."""
    by_partition: dict[TopicPartition, Any] = {}
    for key in sorted(targets, key=lambda key: not isinstance(key, str)):  # topics first: partitions override them
        name, count = _topic(key), len(topics[_topic(key)].partitions)
        if not isinstance(key, str) and not 0 <= key[1] < count:
            raise CoordinatorError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} has partitions 0 to {count - 1}, not {key[1]}"
            )
        numbers = range(count) if isinstance(key, str) else (key[1],)
        by_partition.update(dict.fromkeys(zip(repeat(name), numbers, strict=False), targets[key]))
    return by_partition
