"""Requests for the offsets of an active group. The group decides whether the sender may; the rest is the same for all
kinds of groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import GeneratorType
from typing import Any

from ..base import DEFERRED
from ..engine_ports import ReplyTo
from ..error_reply import error_reply
from ..errors import NO_ERROR, ErrorCode
from ..messages import Committed, OffsetCommit, OffsetDelete, OffsetFetch, OffsetsDeleted, TxnOffsetCommit
from ..new_tuple import new_tuple
from ..records import OffsetRecord, Record
from ..steps import SHORT_WORK_ITEMS, Steps, pieces
from .active_group import ActiveGroup
from .contexts import CommitContext, OffsetDeleteContext, deliver_reply
from .deletion import wait_for_deletion
from .in_flight import WaitingFetch
from .offsets import CommitRecords, GroupData, commit_records, txn_commit_records
from .refusals import note_refused_commit
from .resets import longest_guard_ms

MakeRecords = Callable[[Any, int, int], CommitRecords]


def commit(
    active: ActiveGroup,
    request: OffsetCommit | TxnOffsetCommit,
    reply: ReplyTo | None,
    make_records: MakeRecords = commit_records,
) -> object:
    """Append the offsets. They are visible, and the request is answered, when they are durable."""
    if active.in_flight.deletion is not None:
        return wait_for_deletion(active, request, reply)
    if request.generation_id < 0 and not active.guard.is_complete:
        return _derive_and_commit(active, request, reply, make_records)
    effects = active.effects
    error = active.group.handle(request, None, effects)
    if effects.alarms:
        active.apply_effects()
    if request.generation_id < 0 and not request.member_id:
        _note_simple_commit(active, request)
    if error is not NO_ERROR:
        note_refused_commit(request, error, active.environment.clock.monotonic_ms(), effects)
        return error_reply(request, error)
    if request.generation_id < 0 and _would_undo_a_reset(active, request):
        return error_reply(request, ErrorCode.UNKNOWN_MEMBER_ID)
    environment = active.environment
    now_ms, metadata_max = environment.clock.wall_ms(), environment.settings.offset_metadata_max_bytes
    if len(request.commits) > SHORT_WORK_ITEMS:
        return _commit_in_steps(active, request, reply, lambda part: make_records(part, now_ms, metadata_max))
    errors, records = make_records(request, now_ms, metadata_max)
    return _append_commits(active, reply, errors, records)


def _derive_and_commit(
    active: ActiveGroup, request: OffsetCommit | TxnOffsetCommit, reply: ReplyTo | None, make_records: MakeRecords
) -> Steps[object]:
    """The first commit without a generation since the group was loaded, or reset."""
    yield from complete_guard(active)
    result = commit(active, request, reply, make_records)
    return (yield from result) if isinstance(result, GeneratorType) else result


def complete_guard(active: ActiveGroup) -> Steps[None]:
    """Read from the offsets, once, until when the last reset is guarded."""
    if not active.guard.is_complete:
        clock, longest_ms = active.environment.clock, longest_guard_ms(active.environment.settings)
        yield from active.guard.derive(active.data.offsets.topics(), clock.wall_ms(), longest_ms)


def _note_simple_commit(active: ActiveGroup, request: OffsetCommit | TxnOffsetCommit) -> None:
    """Of a client that was no member before: a consumer with ``assign()``, or a tool. It is noted even if refused."""
    if isinstance(request, OffsetCommit) and not request.former_member_id:
        active.guard.watch.simple_commit_ms = active.environment.clock.wall_ms()


def _would_undo_a_reset(active: ActiveGroup, request: OffsetCommit | TxnOffsetCommit) -> bool:
    """Whether it comes from a member that was removed, or is a commit to partitions that were reset just now."""
    clock, data, guard, in_flight = active.environment.clock, active.data, active.guard, active.in_flight
    former_member_id = request.former_member_id if isinstance(request, OffsetCommit) and not request.member_id else ""
    if former_member_id and guard.refuses(former_member_id, clock.monotonic_ms()):
        return True
    if in_flight.appends_done < in_flight.reset_append:  # it would follow the reset in the log
        return True
    return guard.reset_until_ms >= 0 and guard.guards(request.commits, data.offsets.find, clock.wall_ms())


def _append_commits(
    active: ActiveGroup, reply: ReplyTo | None, errors: tuple[ErrorCode, ...], records: tuple[Record, ...]
) -> object:
    """A commit without a record is refused, because its metadata is too long, or the group has too many offsets."""
    limit = "" if len(records) == len(errors) else "offset_metadata_max_bytes"
    offsets_max, data = active.environment.settings.offsets_max_per_group, active.data
    if len(data.offsets) + len(data.pending.by_partition) + len(records) > offsets_max:
        count = len(records)
        errors, records = within_offsets_max(data, errors, records, offsets_max - data.partition_count())
        limit = limit if len(records) == count else "offsets_max_per_group"
    if not records:
        return Committed(errors, limit=limit)
    active.in_flight.commits_sent += 1
    active.append(records, new_tuple(CommitContext, (reply, errors, limit)))
    return DEFERRED


def within_offsets_max(
    data: GroupData, errors: tuple[ErrorCode, ...], records: tuple[Record, ...], new_max: int
) -> tuple[tuple[ErrorCode, ...], tuple[Record, ...]]:
    """Refuse the offsets of partitions that have none yet, beyond the first ``new_max`` of them."""
    kept: list[Record] = []
    added: set[tuple[str, int]] = set()
    checked: list[ErrorCode] = []
    remaining: Iterator[Any] = iter(records)
    for error in errors:
        if error is NO_ERROR:
            record = next(remaining)
            partition = record.topic, record.partition
            if partition not in added and not data.has(*partition):
                if len(added) >= new_max:
                    checked.append(ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
                    continue
                added.add(partition)
            kept.append(record)
        checked.append(error)
    return tuple(checked), tuple(kept)


def _commit_in_steps(
    active: ActiveGroup,
    request: OffsetCommit | TxnOffsetCommit,
    reply: ReplyTo | None,
    make_records: Callable[[Any], CommitRecords],
) -> Steps[object]:
    errors: list[ErrorCode] = []
    records: list[Record] = []
    for commits in pieces(request.commits):
        piece_errors, piece_records = make_records(request._replace(commits=tuple(commits)))
        errors += piece_errors
        records += piece_records
        yield
    return _append_commits(active, reply, tuple(errors), tuple(records))


def commit_in_transaction(active: ActiveGroup, request: TxnOffsetCommit, reply: ReplyTo | None) -> object:
    """The same for offsets that take effect when their transaction commits."""
    return commit(active, request, reply, txn_commit_records)


def fetch(active: ActiveGroup, request: OffsetFetch, reply: ReplyTo | None) -> object:
    """The committed offsets. With ``require_stable`` it waits for the commits in flight (KIP-447)."""
    in_flight = active.in_flight
    error = active.group.handle(request, None, active.effects)
    if error is not NO_ERROR:
        return error_reply(request, error)
    if active.guard.watch.unfetched and not active.group.is_empty:
        active.guard.watch.note(request, active.environment.clock.wall_ms())
    if request.require_stable and not in_flight.is_all_appended:
        in_flight.fetches.append(WaitingFetch(request, reply, in_flight.appends_sent))
        return DEFERRED
    data = active.data
    return data.fetch_in_steps(request) if data.is_long(request) else data.fetch(request)


def reply_to_fetches(active: ActiveGroup) -> Steps[None]:
    """Reply to the fetches whose earlier commits are done."""
    fetches, appends_done = active.in_flight.fetches, active.in_flight.appends_done
    active.in_flight.fetches = [fetch for fetch in fetches if fetch.required_appends > appends_done]
    for waiting in fetches:
        if waiting.required_appends <= appends_done:
            deliver_reply(waiting.reply, (yield from active.data.fetch_in_steps(waiting.request)))


def delete_offsets(active: ActiveGroup, request: OffsetDelete, reply: ReplyTo | None) -> object:
    """Delete the offsets of topics that no member reads."""
    error = active.group.handle(request, None, active.effects)
    if error is not NO_ERROR:
        return error_reply(request, error)
    return _delete_in_steps(active, request, reply)


def _delete_in_steps(active: ActiveGroup, request: OffsetDelete, reply: ReplyTo | None) -> Steps[object]:
    subscribed = yield from active.group.subscribed_topics()
    errors: list[ErrorCode] = []
    for piece in pieces(request.topics):
        errors += (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if topic in subscribed else ErrorCode.NONE for topic, _ in piece)
        yield
    return (yield from _append_offset_tombstones(active, request, tuple(errors), reply))


def _append_offset_tombstones(
    active: ActiveGroup, request: OffsetDelete, errors: tuple[ErrorCode, ...], reply: ReplyTo | None
) -> Steps[object]:
    """For partitions with an offset; while appends are in flight, which may contain offsets, for all of them."""
    may_have_offset, has, records = not active.in_flight.is_all_appended, active.data.has, list[Record]()
    for (topic, partitions), error in zip(request.topics, errors, strict=True):
        for piece in pieces(partitions if error is ErrorCode.NONE else ()):
            deleted = piece if may_have_offset else [partition for partition in piece if has(topic, partition)]
            records += [OffsetRecord(active.group_id, topic, partition, None) for partition in deleted]
            yield
    if not records:
        return OffsetsDeleted(ErrorCode.NONE, errors)
    active.append(tuple(records), OffsetDeleteContext(reply, errors))
    return DEFERRED
