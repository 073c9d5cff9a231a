"""Offsets from a file, written through any server's coordinator into groups without members, and read back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from ....actors.errors import ErrorCode
from ...client.cluster import Cluster, OffsetAndMetadata, TopicPartition
from ...client.errors import ClientError, RefusedError, describe_error_code

PLACES_AT_ONCE = 200
"""So many offsets in one request: with the longest metadata that Kafka takes (4096 bytes) they still fit a message."""

WITHOUT_MEMBERS = ("Empty", "Dead", "")
"""States of groups that can be written to; old servers tell none, and refuse the commit itself."""


class Outcome(NamedTuple):
    """What became of one group: of so many ``offsets`` so many were ``written``, or would be.

    ``refused``: why not all of them; empty when all were. ``new`` and ``changed``: how many of those that were written
    the group did not have, or had otherwise. ``differences``: what was found other than written, in words.
    """

    group: str
    offsets: int
    written: int = 0
    new: int = 0
    changed: int = 0
    refused: str = ""
    differences: tuple[str, ...] = ()


def states(cluster: Cluster) -> Mapping[str, str]:
    """Of all groups that there are."""
    return {group.group_id: group.state for group in cluster.groups()}


def look(cluster: Cluster, group: str, wanted: Mapping[TopicPartition, OffsetAndMetadata], state: str) -> Outcome:
    """What writing would do. ClientError when the server goes away."""
    try:
        before = _committed(cluster, group, state)
    except RefusedError as refused:
        return Outcome(group, len(wanted), refused=str(refused))
    missing = _not_there(cluster, wanted)
    possible = {place: offset for place, offset in wanted.items() if place not in missing}
    return _outcome(group, wanted, possible, before)._replace(refused=_first(missing, len(wanted)))


def _not_there(cluster: Cluster, wanted: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, str]:
    """The places that a commit would be refused for, and why."""
    partitions: dict[str, Sequence[int]] = {}
    for topic in {topic for topic, _ in wanted}:
        try:
            partitions[topic] = cluster.partitions(topic)
        except RefusedError:
            partitions[topic] = ()
    why = describe_error_code(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return {place: why for place in wanted if place[1] not in partitions[place[0]]}


def write(cluster: Cluster, group: str, wanted: Mapping[TopicPartition, OffsetAndMetadata], state: str) -> Outcome:
    """Write a group's offsets and read them back. ClientError when the server goes away."""
    refused: dict[TopicPartition, str] = {}
    try:
        before = _committed(cluster, group, state)
        for some in _portions(wanted):
            refused |= {place: describe_error_code(code) for place, code in cluster.commit_offsets(group, some).items()}
        found = cluster.committed(group)
    except RefusedError as error:
        return Outcome(group, len(wanted), refused=str(error))
    written = {place: offset for place, offset in wanted.items() if place not in refused}
    different = tuple(_differences(written, found))
    return _outcome(group, wanted, written, before)._replace(
        refused=_first(refused, len(wanted)), differences=different
    )


def _committed(cluster: Cluster, group: str, state: str) -> Mapping[TopicPartition, OffsetAndMetadata]:
    """Refused for a group that has members."""
    if state not in WITHOUT_MEMBERS:
        raise RefusedError(f"it is {state}", ErrorCode.NON_EMPTY_GROUP)
    return cluster.committed(group) if state else {}


def write_all(
    cluster: Cluster,
    wanted: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]],
    groups: Iterator[str],
    is_dry: bool,
) -> Iterator[Outcome]:
    """Group by group. A server that goes away ends it with a ClientError that says how far it came."""
    known = states(cluster)
    step = look if is_dry else write
    for done, group in enumerate(groups):
        try:
            yield step(cluster, group, wanted[group], known.get(group, ""))
        except ClientError as error:
            raise ClientError(f"{error}; {done} of {len(wanted)} groups were done, group '{group}' perhaps") from error


def _outcome(
    group: str,
    wanted: Mapping[TopicPartition, OffsetAndMetadata],
    written: Mapping[TopicPartition, OffsetAndMetadata],
    before: Mapping[TopicPartition, OffsetAndMetadata],
) -> Outcome:
    new = sum(place not in before for place in written)
    changed = sum(place in before and before[place] != offset for place, offset in written.items())
    return Outcome(group, len(wanted), len(written), new, changed)


def _portions(
    wanted: Mapping[TopicPartition, OffsetAndMetadata],
) -> Iterator[Mapping[TopicPartition, OffsetAndMetadata]]:
    items = iter(wanted.items())
    while some := dict(islice(items, PLACES_AT_ONCE)):
        yield some


def _first(refused: Mapping[TopicPartition, str], of: int) -> str:
    if not refused:
        return ""
    (topic, partition), why = next(iter(refused.items()))
    return f"{len(refused)} of {of} offsets, {topic}:{partition} first: {why}"


def _differences(
    written: Mapping[TopicPartition, OffsetAndMetadata], found: Mapping[TopicPartition, OffsetAndMetadata]
) -> Iterator[str]:
    for place, offset in written.items():
        if found.get(place) != offset:
            yield f"{place[0]}:{place[1]} was written as {_words(offset)}, and read back as {_words(found.get(place))}"


def _words(offset: OffsetAndMetadata | None) -> str:
    if offset is None:
        return "nothing"
    return f"{offset.offset} (leader epoch {offset.leader_epoch}, metadata {offset.metadata[:40]!r})"


def problems(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """What a person must know, a line each."""
    for outcome in outcomes:
        if outcome.refused:
            yield f"group '{outcome.group}': {outcome.refused}"
        for difference in outcome.differences:
            yield f"group '{outcome.group}': {difference}"
