"""Resets of offsets: they are planned or made, and recorded, so that they can be watched and undone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.group.reset_messages import DescribeReset, OffsetsReset, ResetDescribed, ResetOffset, ResetOffsets
from ...actors.text import printable
from ..node.reset_records import RemovedMember, ResetPartition, ResetRecord
from .in_pieces import map_in_pieces
from .refusals import check, refusal
from .reset_targets import Chosen
from .results import GroupDescription, GroupReset, ResetChange, TopicPartition

if TYPE_CHECKING:
    from .admin_requests import AdminRequests

RECENT_MS = 3_600_000
"""For so long after a commit of a client that is no member, a reset warns of it."""


UNTOLD = frozenset((ErrorCode.UNSUPPORTED_VERSION, ErrorCode.GROUP_AUTHORIZATION_FAILED))
"""Errors of nodes that have an older version, or do not tell this client about resets."""


async def guarded_until(requests: AdminRequests, group: str) -> datetime | None:
    """Until when the last reset of a group is guarded; None: it is not, as far as is known. Raises CoordinatorError."""
    try:
        reset: ResetDescribed = await requests.ask(DescribeReset(group))
    except CoordinatorError as error:
        if error.code in UNTOLD:
            return None
        raise
    return as_datetime(reset.guarded_until_ms)


def as_datetime(wall_ms: int) -> datetime | None:
    """None for -1."""
    return None if wall_ms < 0 else datetime.fromtimestamp(wall_ms / 1000, UTC)


async def plan_reset(
    requests: AdminRequests, described: GroupDescription, chosen: Mapping[TopicPartition, Chosen]
) -> GroupReset:
    """What a reset would do. It is refused for the same reasons as the reset. Raises CoordinatorError."""
    answer = await _ask(requests, ResetOffsets(described.group_id, await _offsets(chosen), is_plan=True))
    removed = tuple(member.member_id for member in described.members)
    warnings = simple_commit_warnings(answer.simple_commit_ms, (await requests.resets()).now_ms())
    return await _result(described, chosen, answer._replace(removed=removed), warnings)


async def make_reset(
    requests: AdminRequests,
    described: GroupDescription,
    chosen: Mapping[TopicPartition, Chosen],
    topic_ids: dict[str, str],
    reason: str,
    undoes: str = "",
) -> GroupReset:
    """Make a reset. Returns when it and its record are durable. ``topic_ids``: for the record. CoordinatorError."""
    records = await requests.resets()
    change_id, made_ms = records.new_id(), records.now_ms()
    group, offsets = described.group_id, await _offsets(chosen)
    answer = await _ask(requests, ResetOffsets(group, offsets, reason, change_id=change_id))
    by, asked_reason = records.caller()
    record = ResetRecord(
        change_id,
        group,
        made_ms,
        by,
        asked_reason or reason,
        await _changed(answer.before, chosen),
        _removed(described, answer.removed),
        topic_ids,
        undoes,
    )
    failure = await records.keep(record)
    warnings = simple_commit_warnings(answer.simple_commit_ms, made_ms)
    if failure:
        warnings = (*warnings, f"the reset cannot be watched or undone by its id, since its record was lost: {failure}")
    return await _result(described, chosen, answer, warnings, "" if failure else change_id)


async def _ask(requests: AdminRequests, request: ResetOffsets) -> OffsetsReset:
    """Raises CoordinatorError if it is refused."""
    answer: OffsetsReset = await requests.ask(request)
    if answer.producer_id >= 0:
        records = await requests.resets()
        name = await records.transactional_id(answer.producer_id)
        raise _open_transaction(request.group_id, answer, name, records.now_ms())
    check(answer.error, f"group {request.group_id!r}")
    return answer


def _open_transaction(group: str, answer: OffsetsReset, transactional_id: str, now_ms: int) -> CoordinatorError:
    name = f" of transactional id {printable(transactional_id[:100])!r}" if transactional_id else ""
    since_ms = answer.pending_since_ms
    age = "" if since_ms < 0 else f" since {_clock(since_ms)}, {max(0, now_ms - since_ms) / 1000:.0f} s ago"
    text = f"the producer with id {answer.producer_id}{name} has an open transaction with offsets of it{age}"
    return refusal(answer.error, f"group {group!r}", f"{text}: try again when it has ended")


def simple_commit_warnings(committed_ms: int, now_ms: int) -> tuple[str, ...]:
    """Of consumers that no reset stops. ``committed_ms``: when one committed last; -1 if that is not known."""
    if committed_ms < 0 or now_ms - committed_ms > RECENT_MS:
        return ()
    who = f"a client that is no member committed at {_clock(committed_ms)}"
    return (f"{who}: if it is a consumer that uses assign(), and no tool, the reset does not stop it",)


def _clock(wall_ms: int) -> str:
    return f"{datetime.fromtimestamp(wall_ms / 1000, UTC):%H:%M:%S} UTC"


# Results -------------------------------------------------------------------------------------------------------------


async def _offsets(chosen: Mapping[TopicPartition, Chosen]) -> tuple[ResetOffset, ...]:
    return tuple(await map_in_pieces(lambda item: ResetOffset(*item[0], item[1].offset), chosen.items()))


async def _changed(
    before: Sequence[ResetOffset], chosen: Mapping[TopicPartition, Chosen]
) -> tuple[ResetPartition, ...]:
    def change(each: ResetOffset) -> ResetPartition:
        return ResetPartition(each.topic, each.partition, each.offset, chosen[each.topic, each.partition].offset)

    return tuple(await map_in_pieces(change, before))


def _removed(described: GroupDescription, removed: Sequence[str]) -> tuple[RemovedMember, ...]:
    """One that has joined since the group was described is known by its id only."""
    known = {member.member_id: member for member in described.members}
    return tuple(
        RemovedMember(member_id, None, "", "")
        if (member := known.get(member_id)) is None
        else RemovedMember(member_id, member.instance_id, member.client_id, member.client_host)
        for member_id in removed
    )


async def _result(
    described: GroupDescription,
    chosen: Mapping[TopicPartition, Chosen],
    answer: OffsetsReset,
    warnings: tuple[str, ...],
    change_id: str = "",
) -> GroupReset:
    return GroupReset(
        described.group_id,
        dict(await map_in_pieces(lambda each: ((each.topic, each.partition), each.offset), answer.before)),
        dict(await map_in_pieces(lambda item: (item[0], item[1].offset), chosen.items())),
        answer.removed,
        as_datetime(answer.guarded_until_ms),
        described.members,
        {partition: each.note for partition, each in chosen.items() if each.note},
        warnings,
        change_id,
    )


async def change_of(record: ResetRecord) -> ResetChange:
    rows = await map_in_pieces(lambda each: ((each.topic, each.partition), each.before, each.after), record.partitions)
    return ResetChange(
        record.change_id,
        record.group,
        datetime.fromtimestamp(record.made_ms / 1000, UTC),
        record.by,
        record.reason,
        {partition: before for partition, before, _ in rows},
        {partition: after for partition, _, after in rows},
        tuple(member.member_id for member in record.members),
        record.undoes,
    )
