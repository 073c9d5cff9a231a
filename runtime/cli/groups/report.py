"""The offsets of a group: committed offsets, ends of the partitions, lag, and the members that read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from ...client.cluster import LATEST, Cluster, GroupDescription, MemberDescription, OffsetAndMetadata, TopicPartition
from ..tables import Column, Table


class PartitionLag(NamedTuple):
    """One partition. ``committed``: None if only assigned. ``end``: None if the partition does not exist."""

    topic_partition: TopicPartition
    committed: OffsetAndMetadata | None
    end: int | None
    member: MemberDescription | None

    @property
    def lag(self) -> int | None:
        """Records between the committed offset and the end."""
        return None if self.committed is None or self.end is None else self.end - self.committed.offset


def read_partition_lags(
    cluster: Cluster, group_id: str, members: Sequence[MemberDescription] = ()
) -> list[PartitionLag]:
    """One entry for each partition with an offset of the group, or assigned to one of its members."""
    committed = cluster.committed(group_id)
    owners = {topic_partition: member for member in members for topic_partition in member.assigned or ()}
    topic_partitions = sorted({*committed, *owners})
    ends = cluster.list_offsets(topic_partitions, LATEST)
    return [
        PartitionLag(
            topic_partition, committed.get(topic_partition), ends.get(topic_partition), owners.get(topic_partition)
        )
        for topic_partition in topic_partitions
    ]


def total_lag(entries: Iterable[PartitionLag]) -> int | None:
    """The sum of the known lags; None if no lag is known."""
    lags = [entry.lag for entry in entries if entry.lag is not None]
    return sum(lags) if lags else None


MEMBER_COLUMNS = (
    Column("member", "member", may_shorten=True),
    Column("client", "client"),
    Column("host", "host"),
    Column("instance", "instance"),
    Column("partitions", "partitions", is_number=True),
    Column("lag", "lag", is_number=True),
    Column("assigned", "assigned"),
)
EPOCH_COLUMNS = (Column("epoch", "epoch", is_number=True), Column("target", "target"))
"""Of members of a group of the consumer protocol, too."""


def member_table(members: Sequence[MemberDescription], entries: Iterable[PartitionLag]) -> Table:
    lag: dict[str, int] = {}
    for entry in entries:
        if entry.member is not None and entry.lag is not None:
            lag[entry.member.member_id] = lag.get(entry.member.member_id, 0) + entry.lag
    has_epochs = any(member.epoch is not None for member in members)
    columns = (*MEMBER_COLUMNS, *(EPOCH_COLUMNS if has_epochs else ()))
    rows = [
        (
            member.member_id,
            member.client_id,
            member.host,
            member.group_instance_id,
            None if member.assigned is None else len(member.assigned),
            lag.get(member.member_id),
            None if member.assigned is None else format_partitions(member.assigned),
            *((member.epoch, format_partitions(member.target or ())) if has_epochs else ()),
        )
        for member in members
    ]
    return Table(columns, rows)


def offset_table(entries: Iterable[PartitionLag], *, with_members: bool) -> Table:
    """The offsets, with the members that read them, or with the leader epoch and metadata of the commit."""
    last = (Column("member", "member", may_shorten=True), Column("client", "client"))
    if not with_members:
        last = (
            Column("leader_epoch", "leader epoch", is_number=True),
            Column("metadata", "metadata", may_shorten=True),
        )
    columns = (
        Column("topic", "topic"),
        Column("partition", "partition", is_number=True),
        Column("committed", "committed", is_number=True),
        Column("end", "end", is_number=True),
        Column("lag", "lag", is_number=True),
        *last,
    )
    return Table(columns, [_offset_row(entry, with_members) for entry in entries])


def _offset_row(entry: PartitionLag, with_members: bool) -> tuple[str | int | None, ...]:
    offset, member = entry.committed, entry.member
    if with_members:
        last: tuple[str | int | None, ...] = (member.member_id, member.client_id) if member else (None, None)
    else:
        epoch = offset.leader_epoch if offset is not None and offset.leader_epoch >= 0 else None
        last = (epoch, offset.metadata if offset else None)
    return (*entry.topic_partition, offset.offset if offset else None, entry.end, entry.lag, *last)


def group_json(
    description: GroupDescription, entries: Sequence[PartitionLag], guarded_until_ms: int | None
) -> Mapping[str, object]:
    """``guarded_until_ms``: until when the last reset is guarded, since 1970; None: it is not, as far as is known."""
    members: list[Mapping[str, object]] = []
    for member, row in zip(description.members, member_table(description.members, entries).as_json(), strict=True):
        targets = {} if member.target is None else {"target": _partitions_json(member.target)}
        members.append({**row, "assigned": _partitions_json(member.assigned), **targets})
    epochs = description.epochs
    return {
        "group": description.group_id,
        "state": description.state,
        "type": description.group_type,
        **({} if epochs is None else {"epoch": epochs.group, "assignment_epoch": epochs.assignment}),
        "protocol_type": description.protocol_type,
        "protocol": description.protocol,
        "coordinator": str(description.coordinator),
        "lag": total_lag(entries),
        "guarded_until": None if guarded_until_ms is None else format_until(guarded_until_ms),
        "members": members,
        "offsets": offset_table(entries, with_members=True).as_json(),
    }


def format_until(wall_ms: int) -> str:
    """In ISO 8601, as the HTTP API has it."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat()


def _partitions_json(partitions: Iterable[TopicPartition] | None) -> list[dict[str, object]] | None:
    if partitions is None:
        return None
    return [{"topic": topic, "partition": partition} for topic, partition in partitions]


def format_partitions(topic_partitions: Iterable[TopicPartition]) -> str:
    """Partitions in short form: ``orders:0-3,7 refunds:0``."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(topic_partitions):
        topics.setdefault(topic, []).append(partition)
    return " ".join(f"{topic}:{_runs(partitions)}" for topic, partitions in topics.items())


def _runs(numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
