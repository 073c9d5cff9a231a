"""What is known of a group's offsets: what is committed, where the partitions end, what is between, and whose it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ...client.cluster import LATEST, Cluster, GroupDescription, MemberDescription, OffsetAndMetadata, TopicPartition
from .show import Column, Table


class Line(NamedTuple):
    """One partition. ``committed`` is None for one that is assigned and has no offset, ``end`` for one that is gone."""

    place: TopicPartition
    committed: OffsetAndMetadata | None
    end: int | None
    member: MemberDescription | None

    @property
    def lag(self) -> int | None:
        """Records between the committed offset and the end."""
        return None if self.committed is None or self.end is None else self.end - self.committed.offset


def look_at_offsets(cluster: Cluster, group_id: str, members: Sequence[MemberDescription] = ()) -> list[Line]:
    """A line for each partition that the group has an offset for or that one of its members is assigned."""
    committed = cluster.committed(group_id)
    owners = {place: member for member in members for place in member.assigned or ()}
    places = sorted({*committed, *owners})
    ends = cluster.list_offsets(places, LATEST)
    return [Line(place, committed.get(place), ends.get(place), owners.get(place)) for place in places]


def total_lag(lines: Iterable[Line]) -> int | None:
    """None where no partition's lag is known."""
    known = [line.lag for line in lines if line.lag is not None]
    return sum(known) if known else None


def member_table(members: Sequence[MemberDescription], lines: Iterable[Line]) -> Table:
    lag: dict[str, int] = {}
    for line in lines:
        if line.member is not None and line.lag is not None:
            lag[line.member.member_id] = lag.get(line.member.member_id, 0) + line.lag
    columns = (
        Column("member", "member", may_shorten=True),
        Column("client", "client"),
        Column("host", "host"),
        Column("instance", "instance"),
        Column("partitions", "partitions", is_number=True),
        Column("lag", "lag", is_number=True),
        Column("assigned", "assigned"),
    )
    rows = [
        (
            one.member_id,
            one.client_id,
            one.host,
            one.group_instance_id,
            None if one.assigned is None else len(one.assigned),
            lag.get(one.member_id),
            None if one.assigned is None else in_words(one.assigned),
        )
        for one in members
    ]
    return Table(columns, rows)


def offset_table(lines: Iterable[Line], *, with_members: bool) -> Table:
    """With the clients that read them, or with what was committed beside the offset."""
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
    return Table(columns, [_offset_row(line, with_members) for line in lines])


def _offset_row(line: Line, with_members: bool) -> tuple[str | int | None, ...]:
    offset, member = line.committed, line.member
    if with_members:
        last: tuple[str | int | None, ...] = (member.member_id, member.client_id) if member else (None, None)
    else:
        epoch = offset.leader_epoch if offset is not None and offset.leader_epoch >= 0 else None
        last = (epoch, offset.metadata if offset else None)
    return (*line.place, offset.offset if offset else None, line.end, line.lag, *last)


def group_json(description: GroupDescription, lines: Sequence[Line]) -> Mapping[str, object]:
    members = []
    for one, row in zip(description.members, member_table(description.members, lines).as_json(), strict=True):
        assigned = None if one.assigned is None else [{"topic": topic, "partition": p} for topic, p in one.assigned]
        members.append({**row, "assigned": assigned})
    return {
        "group": description.group_id,
        "state": description.state,
        "protocol_type": description.protocol_type,
        "protocol": description.protocol,
        "coordinator": str(description.coordinator),
        "lag": total_lag(lines),
        "members": members,
        "offsets": offset_table(lines, with_members=True).as_json(),
    }


def in_words(places: Iterable[TopicPartition]) -> str:
    """Partitions the short way: ``orders:0-3,7 refunds:0``."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
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
