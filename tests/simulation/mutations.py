"""Planted bugs of the coordinator and its members, one at a time. The simulation must find each of them.

Each bug names the scenario that must find it. ``python tests/mutate.py`` plants all of them and prints the findings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from actor_system.table_patches import patch_deadline_handler, patch_function
from crashes.mutations import journal_is_not_synced

from callboard.actors.assignors import cooperative
from callboard.actors.engine_ports import ReplyTo
from callboard.actors.errors import NO_ERROR, ErrorCode
from callboard.actors.group import group_value, identity, syncing
from callboard.actors.group.active_group import ActiveGroup
from callboard.actors.group.classic import ClassicGroup
from callboard.actors.group.contexts import CommitContext
from callboard.actors.group.effects import Deadline, Effects
from callboard.actors.group.event_log import GroupHistory
from callboard.actors.group.events import Cause, GroupEvent, Kind
from callboard.actors.group.members import GroupMember, Members
from callboard.actors.group.offsets import GroupData, Offsets
from callboard.actors.group.replies import answer_parked_sync, synced
from callboard.actors.messages import Heartbeat, LeaveGroup, LeavingMember, Left, LeftMember, OffsetCommit, SyncGroup
from callboard.actors.records import GroupRecord, MarkerRecord, OffsetRecord
from callboard.actors.steps import Steps
from callboard.actors.timer.messages import Wake
from callboard.actors.transactions.completion import Completion
from callboard.runtime.engine.alarm import Alarm
from callboard.runtime.loading import child as load_child
from callboard.runtime.log.compaction.seen import SeenKeys
from callboard.runtime.log.reading import backwards, newest
from callboard.runtime.log.reading.newest import LoadedPartition
from callboard.runtime.log.recovery.recovery import Recovery
from callboard.runtime.member.lease import Lease
from callboard.runtime.member.membership import Membership
from callboard.runtime.member.owned_shards import OwnedShards
from callboard.runtime.member.resource_subscription import ResourceSubscription
from callboard.runtime.member.shards import Shard, ShardState, TopicPartition
from callboard.runtime.testing.disk.faulty import FaultyDisk

from .mutations_consumer import CONSUMER_MUTATIONS
from .mutations_groups import GROUP_MUTATIONS
from .mutations_log import HOUSEKEEPING, Plant
from .mutations_mixed import MIXED_MUTATIONS


class Mutant(NamedTuple):
    """A planted bug, and the scenario that must find it."""

    plant: Plant
    scenario: str


# The log -------------------------------------------------------------------------------------------------------------


def answered_before_it_is_written(patch: pytest.MonkeyPatch) -> None:
    """A commit is answered before it is written to the log."""
    append = ActiveGroup.append

    def answer_and_append(self: ActiveGroup, records: Any, context: Any) -> None:
        if isinstance(context, CommitContext):
            context.answer(ErrorCode.NONE, "synced")
            context = context._replace(reply=None)
        append(self, records, context)

    patch.setattr(ActiveGroup, "append", answer_and_append)


def the_journal_is_not_replayed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recovery, "_missing", lambda self, partition, pieces: iter(()))


def replayed_in_the_wrong_order(patch: pytest.MonkeyPatch) -> None:
    """Loading keeps the oldest record of each key instead of the newest."""
    chunks = backwards.chunks_newest_first

    def oldest_first(*arguments: Any) -> Any:
        return reversed(list(chunks(*arguments)))

    patch.setattr(newest, "chunks_newest_first", oldest_first)


def changed_when_loaded(change: Callable[[GroupData], None]) -> Plant:
    """The loaded state of a group differs from the log."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        load = newest.load_partition

        def load_and_change(*arguments: Any, **options: Any) -> LoadedPartition:
            loaded = load(*arguments, **options)
            groups = loaded.unpacked_groups | {
                name: GroupData.unpack(packed) for name, packed in loaded.packed_groups.items()
            }
            for data in groups.values():
                change(data)
            return loaded._replace(unpacked_groups=groups, packed_groups={})

        patch.setattr(load_child, "load_partition", load_and_change)

    return plant


def without_an_offset(data: GroupData) -> None:
    for topic, partition, _ in list(data.offsets)[-1:]:
        data.offsets.replay(OffsetRecord("", topic, partition, None))


def a_generation_older(data: GroupData) -> None:
    if data.value is not None:
        data.value = data.value._replace(generation=max(data.value.generation - 2, 0))


def tombstones_are_ignored(patch: pytest.MonkeyPatch) -> None:
    replay = Offsets.replay

    def replay_values(self: Offsets, record: OffsetRecord) -> None:
        if record.value is not None:
            replay(self, record)

    patch.setattr(Offsets, "replay", replay_values)


def compaction_keeps_the_oldest(patch: pytest.MonkeyPatch) -> None:
    """Compaction ignores the keys it has read, so it keeps the oldest record of a key and drops the newer ones."""
    add = SeenKeys.add

    def forget(self: SeenKeys, newest: Mapping[bytes, int]) -> list[int]:
        is_kept = add(self, newest)
        return is_kept[:-1]

    patch.setattr(SeenKeys, "add", forget)


def short_writes_count_as_whole(patch: pytest.MonkeyPatch) -> None:
    from callboard.runtime.log import journal

    def write(disk: FaultyDisk, fd: int, data: bytes, position: int) -> None:
        disk.write(fd, data, position)

    patch.setattr(journal, "write_all", write)


# Groups --------------------------------------------------------------------------------------------------------------


def deadlines_pass_before_sockets_are_read(patch: pytest.MonkeyPatch) -> None:
    """A session ends although the heartbeat that renews it has arrived."""

    def wake_at_once(self: Alarm) -> None:
        assert self.actor is not None
        self.actor.tell(Wake(self._clock.monotonic_ms()))

    patch.setattr(Alarm, "fire", wake_at_once)


def sessions_never_end(patch: pytest.MonkeyPatch) -> None:
    patch_deadline_handler(patch, "session", lambda group, member_id, effects: None)


def the_rebalance_timeout_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A rebalance waits for a member that does not rejoin, as long as the member sends heartbeats."""
    patch_deadline_handler(patch, "join", lambda group, effects: None)


def heartbeats_do_not_count(patch: pytest.MonkeyPatch) -> None:
    """A session ends although its member sends heartbeats."""
    renew = ClassicGroup.renew_session

    def renew_sometimes(self: ClassicGroup, member: GroupMember, effects: Effects) -> None:
        if member.session.due_ms is None:
            renew(self, member, effects)

    def accept(group: ClassicGroup, request: Any, _reply: ReplyTo | None, effects: Effects) -> ErrorCode:
        group.renew_session(group.members.by_id[request.member_id], effects)
        return NO_ERROR

    patch.setattr(ClassicGroup, "renew_session", renew_sometimes)
    patch_function(patch, "renew_session", lambda original: accept)


def old_generations_are_not_fenced(patch: pytest.MonkeyPatch) -> None:
    check = identity.check_generation

    def check_but_not_that(group: ClassicGroup, request: Any) -> ErrorCode:
        return check(group, request._replace(generation_id=group.generation))

    patch_function(patch, "check_generation", lambda original: check_but_not_that)
    patch.setattr(identity, "check_generation", check_but_not_that)


def instance_ids_are_not_fenced(patch: pytest.MonkeyPatch) -> None:
    """Requests of a static member that was replaced count as those of its successor."""
    handle = ClassicGroup.handle

    def handle_as_owner(self: ClassicGroup, request: Any, reply: ReplyTo | None, effects: Effects, *kind: Any) -> Any:
        if isinstance(request, Heartbeat | OffsetCommit | SyncGroup):
            owner = self.members.static.get(request.group_instance_id or "", request.member_id)
            request = request._replace(member_id=owner)
        return handle(self, request, reply, effects, *kind)

    patch.setattr(ClassicGroup, "handle", handle_as_owner)


def who_leaves_stays(patch: pytest.MonkeyPatch) -> None:
    def leave(group: ClassicGroup, request: LeaveGroup, _reply: ReplyTo | None, _effects: Effects) -> Left:
        def response(leaving: LeavingMember) -> LeftMember:
            is_known = leaving.member_id in group.members.by_id
            return LeftMember(leaving.member_id, None, ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_MEMBER_ID)

        return Left(ErrorCode.NONE, tuple(response(leaving) for leaving in request.members))

    patch_function(patch, "leave", lambda original: leave)


def removals_are_no_events(patch: pytest.MonkeyPatch) -> None:
    """The event log is not told that a member was removed."""
    add = GroupHistory.add

    def add_others(self: GroupHistory, events: Sequence[GroupEvent]) -> None:
        add(self, [event for event in events if event.kind is not Kind.MEMBER_REMOVED])

    patch.setattr(GroupHistory, "add", add_others)


def a_generation_is_used_twice(patch: pytest.MonkeyPatch) -> None:
    """A rebalance directly after another one does not increment the generation."""

    def make(begin: Any) -> Any:
        def begin_the_same(group: ClassicGroup, cause: Cause, effects: Effects) -> None:
            if group.generation > 1:
                group.generation -= 1
            begin(group, cause, effects)

        return begin_the_same

    patch_function(patch, "begin_generation", make)


def one_gets_anothers_assignment(patch: pytest.MonkeyPatch) -> None:
    record_of = group_value.record_of

    def mixed_up(group: ClassicGroup, assignments: tuple[tuple[str, bytes], ...]) -> Steps[GroupRecord]:
        if len(assignments) > 1:
            first = assignments[0][1]
            assignments = tuple((member_id, first) for member_id, _ in assignments)
        return record_of(group, assignments)

    patch.setattr(syncing, "record_of", mixed_up)


def synced_before_it_is_written(patch: pytest.MonkeyPatch) -> None:
    """Members get an assignment before it is written to the log."""

    def make(park_sync: Any) -> Any:
        def sync_at_once(group: ClassicGroup, request: Any, reply: ReplyTo, effects: Effects) -> object:
            result: object = park_sync(group, request, reply, effects)
            if effects.records:
                assignments = dict(request.assignments)
                for member in group.members:
                    member.assignment = assignments.get(member.member_id, b"")
                    answer_parked_sync(group, member, synced(group, member), effects)
            return result

        return sync_at_once

    patch_function(patch, "park_sync", make)


def a_parked_join_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """One of two waiting members never gets an answer."""

    def make(begin: Any) -> Any:
        def begin_without_one(group: ClassicGroup, cause: Cause, effects: Effects) -> None:
            begin(group, cause, effects)
            if len(effects.answers) > 1:
                effects.answers.pop()

        return begin_without_one

    patch_function(patch, "begin_generation", make)


def joins_are_complete_too_early(patch: pytest.MonkeyPatch) -> None:
    """A rebalance does not wait for members that have not been notified of it."""
    patch.setattr(Members, "all_joined", lambda self: self._joining > 0)


def dead_alarms_ring(patch: pytest.MonkeyPatch) -> None:
    """A deadline that was rescheduled still expires at its old time."""

    def handle_alarm(self: Deadline, now_ms: int, effects: Effects) -> bool:
        self.due_ms = None
        return True

    patch.setattr(Deadline, "handle_alarm", handle_alarm)


def answered_though_it_failed(patch: pytest.MonkeyPatch) -> None:
    """A failed write to the log is answered as a success."""
    answer = CommitContext.answer

    def answer_well(self: CommitContext, error: ErrorCode, durability: str = "") -> None:
        answer(self, ErrorCode.NONE, durability)

    patch.setattr(CommitContext, "answer", answer_well)


# Transactions --------------------------------------------------------------------------------------------------------


def a_marker_is_not_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Completion, "_send_marker_to_groups", lambda self, marker, target: None)


def a_marker_is_not_written(patch: pytest.MonkeyPatch) -> None:
    def finish(self: Completion, transaction: Any, targets: Sequence[tuple[str, int]]) -> None:
        for target in targets:
            self._send_marker_to_groups(self._marker_of(transaction), target)
        self._finish(transaction)

    patch.setattr(Completion, "_append_markers", finish)


def an_abort_commits(patch: pytest.MonkeyPatch) -> None:
    replay = GroupData.replay

    def commit(self: GroupData, record: Any) -> None:
        replay(self, record._replace(committed=True) if isinstance(record, MarkerRecord) else record)

    patch.setattr(GroupData, "replay", commit)


def open_transactions_are_not_hidden(patch: pytest.MonkeyPatch) -> None:
    """A fetch of stable offsets returns the old value while the end of a transaction is pending."""
    patch.setattr(GroupData, "fetch", lambda self, request: self.offsets.fetch(request))


# Members -------------------------------------------------------------------------------------------------------------


def leases_never_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lease, "deadline_s", lambda self: self.renewed_s + 1_000_000)


def looks_do_not_read_the_clock(patch: pytest.MonkeyPatch) -> None:
    """A frozen member learns that its lease is over only when its event loop runs."""
    patch.setattr(Shard, "is_lost", property(lambda self: self.state is ShardState.LOST))


def unknown_numbers_are_dropped(patch: pytest.MonkeyPatch) -> None:
    """A member ignores shards that the leader has added and it has not seen yet. Nobody rejoins for them."""
    find_shard = ResourceSubscription.find_shard

    def find_known(self: ResourceSubscription, partition: TopicPartition) -> tuple[str, int | str] | None:
        topic, number = partition
        return find_shard(self, partition) if number < self.resources.numbers.get(topic, 1) else None

    patch.setattr(ResourceSubscription, "find_shard", find_known)


def tokens_are_not_kept(patch: pytest.MonkeyPatch) -> None:
    new_shard = OwnedShards.new_shard

    def without_token(
        self: OwnedShards, partition: TopicPartition, resource: str, name: int | str, token: int
    ) -> Shard:
        return new_shard(self, partition, resource, name, 1)

    patch.setattr(OwnedShards, "new_shard", without_token)


def work_goes_on_while_joining(patch: pytest.MonkeyPatch) -> None:
    """A member does not revoke its shards before it rejoins."""

    async def do_nothing(self: Membership) -> None:
        return

    patch.setattr(Membership, "_revoke_before_join", do_nothing)


def what_moves_is_given_at_once(patch: pytest.MonkeyPatch) -> None:
    """The cooperative protocol moves shards in one rebalance instead of two."""
    patch.setattr(cooperative, "withhold_owned", lambda shards, held: list(shards))


def hand_backs_do_not_wait(patch: pytest.MonkeyPatch) -> None:
    """The tasks of a shard are cancelled but not awaited before other members may own it."""

    async def at_once(self: OwnedShards, pending: Any, until_s: float, description: str) -> None:
        return

    patch.setattr(OwnedShards, "_wait_and_warn", at_once)


def journals_names_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    sync_folder = FaultyDisk.sync_folder

    def not_the_journals(self: FaultyDisk, path: Path) -> None:
        if path.name != "journal":
            sync_folder(self, path)

    patch.setattr(FaultyDisk, "sync_folder", not_the_journals)


MUTATIONS: dict[str, Mutant] = {
    "the journal is not synced": Mutant(journal_is_not_synced, "crashes"),
    "the journal's name is not synced": Mutant(journals_names_are_not_synced, "crashes"),
    "a commit is answered before it is written": Mutant(answered_before_it_is_written, "commits"),
    "a refused commit is answered as if it was kept": Mutant(answered_though_it_failed, "full_disk"),
    "short writes count as whole": Mutant(short_writes_count_as_whole, "full_disk"),
    "the journal is not replayed": Mutant(the_journal_is_not_replayed, "crashes"),
    "a commit is lost at a restart": Mutant(changed_when_loaded(without_an_offset), "crashes"),
    "generations go back at a restart": Mutant(changed_when_loaded(a_generation_older), "crashes"),
    "the log is replayed in the wrong order": Mutant(replayed_in_the_wrong_order, "commits"),
    "tombstones are ignored": Mutant(tombstones_are_ignored, "deletions"),
    "compaction loses a record": Mutant(compaction_keeps_the_oldest, "commits"),
    "deadlines pass before sockets are read": Mutant(deadlines_pass_before_sockets_are_read, "overload"),
    "sessions never end": Mutant(sessions_never_end, "members"),
    "the rebalance timeout is forgotten": Mutant(the_rebalance_timeout_is_forgotten, "static_members"),
    "heartbeats do not count": Mutant(heartbeats_do_not_count, "members"),
    "an old alarm counts": Mutant(dead_alarms_ring, "members"),
    "old generations are not fenced": Mutant(old_generations_are_not_fenced, "invalid_requests"),
    "instance ids are not fenced": Mutant(instance_ids_are_not_fenced, "invalid_requests"),
    "who leaves stays": Mutant(who_leaves_stays, "invalid_requests"),
    "removals are no events": Mutant(removals_are_no_events, "members"),
    "a generation is used twice": Mutant(a_generation_is_used_twice, "members"),
    "one gets another's assignment": Mutant(one_gets_anothers_assignment, "members"),
    "an assignment is told before it is written": Mutant(synced_before_it_is_written, "crashes"),
    "a parked join is forgotten": Mutant(a_parked_join_is_forgotten, "members"),
    "a rebalance does not wait": Mutant(joins_are_complete_too_early, "members"),
    "a marker is not told to groups": Mutant(a_marker_is_not_told, "transactions"),
    "a marker is not written": Mutant(a_marker_is_not_written, "transactions"),
    "an abort commits": Mutant(an_abort_commits, "transactions"),
    "stable fetches do not wait": Mutant(open_transactions_are_not_hidden, "transactions"),
    "a member does not stop at its lease": Mutant(leases_never_end, "embedded_members"),
    "looks at a lease do not read the clock": Mutant(looks_do_not_read_the_clock, "embedded_members"),
    "shards that the leader adds are dropped": Mutant(unknown_numbers_are_dropped, "growing_resource"),
    "tokens are not kept": Mutant(tokens_are_not_kept, "embedded_members"),
    "work goes on while a member joins": Mutant(work_goes_on_while_joining, "embedded_members"),
    "what moves is given at once": Mutant(what_moves_is_given_at_once, "embedded_members"),
    "hand-backs do not wait": Mutant(hand_backs_do_not_wait, "embedded_members"),
    **{
        name: Mutant(*planted)
        for name, planted in (HOUSEKEEPING | GROUP_MUTATIONS | CONSUMER_MUTATIONS | MIXED_MUTATIONS).items()
    },
}
