"""The records of groups that change their protocol. As the coordinator does, each change is one entry."""

from __future__ import annotations

from collections.abc import Iterable

from callboard.actors.consumer_group.records import (
    ClassicMember,
    CurrentRecord,
    CurrentValue,
    GroupEpochRecord,
    GroupEpochValue,
    MemberRecord,
    MemberValue,
    TargetEpochRecord,
    TargetEpochValue,
    TargetRecord,
)
from callboard.actors.consumer_group.state import GroupState
from callboard.actors.consumer_group.tombstones import tombstones
from callboard.actors.records import GroupRecord, Record

TOPIC_ID = bytes(range(16))
CLASSIC = ClassicMember(45_000, (("range", b"\0\1"),))


def upgraded(group_id: str, epoch: int, members: Iterable[str]) -> tuple[Record, ...]:
    """A classic group becomes a consumer group. Its members stay, as members of the classic protocol."""
    records: list[Record] = [GroupRecord(group_id, None), GroupEpochRecord(group_id, GroupEpochValue(epoch))]
    records.append(TargetEpochRecord(group_id, TargetEpochValue(epoch)))
    for number, member_id in enumerate(members):
        partition = TOPIC_ID, number
        records += (
            MemberRecord(group_id, member_id, MemberValue(topics=("t",), classic=CLASSIC)),
            TargetRecord(group_id, member_id, (partition,)),
            CurrentRecord(group_id, member_id, CurrentValue(epoch, epoch, assigned={partition: epoch})),
        )
    return tuple(records)


def downgraded(generation: GroupRecord, members: Iterable[str]) -> tuple[Record, ...]:
    """A consumer group that had at most these members becomes a classic group."""
    state = GroupState(generation.group_id)
    for record in upgraded(generation.group_id, 1, members)[1:]:
        state.replay(record)  # type: ignore[arg-type]
    return (*tombstones(state), generation)
