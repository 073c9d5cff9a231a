"""More planted bugs: refused records of groups, sessions, leases, and expiry beside transactions."""

from __future__ import annotations

from typing import Any

import pytest
from actor_system.table_patches import patch_function

from callboard.actors.consumer_group import group as consumer_group
from callboard.actors.engine_ports import ReplyTo
from callboard.actors.errors import NO_ERROR, ErrorCode
from callboard.actors.group import actor, appended, deletion, reset_requests
from callboard.actors.group.active_group import ActiveGroup
from callboard.actors.group.classic import ClassicGroup
from callboard.actors.group.commit_guard import CommitGuard
from callboard.actors.group.contexts import AssignmentContext, StaticRejoinContext
from callboard.actors.group.effects import Effects
from callboard.actors.group.in_flight import InFlight
from callboard.actors.group.offsets import GroupData
from callboard.actors.group.static_members import complete_replacement
from callboard.actors.group.syncing import complete_assignment
from callboard.actors.messages import Heartbeat, Joined, OffsetCommit, Written
from callboard.actors.records import GroupRecord
from callboard.actors.steps import Steps
from callboard.runtime.member.lease import Lease

from .mutations_log import Plant

# Refused records -----------------------------------------------------------------------------------------------------


def a_refused_assignment_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """The group goes on waiting for it, and so do its members."""
    append_failed = ClassicGroup.append_failed

    def ignore(self: ClassicGroup, context: Any, error: ErrorCode, effects: Effects) -> None:
        if not isinstance(context, AssignmentContext):
            append_failed(self, context, error, effects)

    patch.setattr(ClassicGroup, "append_failed", ignore)


def a_refused_assignment_is_used(patch: pytest.MonkeyPatch) -> None:
    """Members get an assignment that is not in the log."""
    complete_append = appended.complete_append

    def complete(active: ActiveGroup, message: Written) -> Any:
        group, context = active.group, message.context
        is_refused = message.outcome.error is not NO_ERROR and isinstance(context, AssignmentContext)
        if not is_refused or not isinstance(group, ClassicGroup) or group.sync_phase.awaited != context:
            return complete_append(active, message)
        [record] = message.records
        assert isinstance(record, GroupRecord) and record.value is not None
        complete_assignment(group, record.value, active.effects)
        active.apply_effects()
        return None

    patch.setattr(actor, "complete_append", complete)


def a_refused_takeover_is_not_answered(patch: pytest.MonkeyPatch) -> None:
    append_failed = ClassicGroup.append_failed

    def ignore(self: ClassicGroup, context: Any, error: ErrorCode, effects: Effects) -> None:
        if not isinstance(context, StaticRejoinContext):
            append_failed(self, context, error, effects)

    patch.setattr(ClassicGroup, "append_failed", ignore)


def a_refused_takeover_counts(patch: pytest.MonkeyPatch) -> None:
    """The new member is told that it has replaced the old one, which is still in the log."""
    append_failed = ClassicGroup.append_failed

    def complete(self: ClassicGroup, context: Any, error: ErrorCode, effects: Effects) -> None:
        if isinstance(context, StaticRejoinContext):
            complete_replacement(self, context, effects)
        else:
            append_failed(self, context, error, effects)

    patch.setattr(ClassicGroup, "append_failed", complete)


def a_refused_takeover_is_not_reverted(patch: pytest.MonkeyPatch) -> None:
    """The new member gets the error, and has replaced the old one nevertheless."""
    append_failed = ClassicGroup.append_failed

    def answer_only(self: ClassicGroup, context: Any, error: ErrorCode, effects: Effects) -> None:
        if not isinstance(context, StaticRejoinContext):
            append_failed(self, context, error, effects)
            return
        member = self.members.by_id.get(context.member_id)
        if member is not None:
            effects.answer(self.members.pop_join(member), Joined(error))

    patch.setattr(ClassicGroup, "append_failed", answer_only)


# Sessions and leases -------------------------------------------------------------------------------------------------


def refused_heartbeats_renew_sessions(patch: pytest.MonkeyPatch) -> None:
    """A heartbeat with an old generation, or of a fenced instance, keeps the session of its member id."""
    handle = ClassicGroup.handle

    def handle_and_renew(self: ClassicGroup, request: Any, reply: ReplyTo | None, effects: Effects, *kind: Any) -> Any:
        answer = handle(self, request, reply, effects, *kind)
        if isinstance(request, Heartbeat) and answer is ErrorCode.ILLEGAL_GENERATION:
            self.renew_session(self.members.by_id[request.member_id], effects)
        return answer

    patch.setattr(ClassicGroup, "handle", handle_and_renew)


def commits_do_not_renew_sessions(patch: pytest.MonkeyPatch) -> None:
    def make(renew: Any) -> Any:
        def renew_by_heartbeats(group: ClassicGroup, request: Any, reply: ReplyTo | None, effects: Effects) -> Any:
            return NO_ERROR if isinstance(request, OffsetCommit) else renew(group, request, reply, effects)

        return renew_by_heartbeats

    patch_function(patch, "renew_session", make)


def leases_count_from_answers(patch: pytest.MonkeyPatch) -> None:
    """A lease is as long as the session, but begins later, when the answer to a heartbeat arrives."""
    for name in ("record_stable", "record_renewal"):
        record = getattr(Lease, name)

        def record_arrival(self: Lease, sent_s: float, record: Any = record) -> None:
            record(self, self.now_s())

        patch.setattr(Lease, name, record_arrival)


# Expiry --------------------------------------------------------------------------------------------------------------


def expiry_ignores_open_transactions(patch: pytest.MonkeyPatch) -> None:
    """An old offset expires, and its group is deleted, although a transaction that commits it again is open."""

    def without_pending(data: GroupData) -> GroupData:
        copy = GroupData(data.type)
        copy.value, copy.offsets = data.value, data.offsets
        return copy

    for name in ("find_expired", "next_expired"):
        find = getattr(deletion, name)

        def find_all(group: Any, data: GroupData, *rest: Any, find: Any = find) -> Any:
            return find(group, without_pending(data), *rest)

        patch.setattr(deletion, name, find_all)


# Resets --------------------------------------------------------------------------------------------------------------


def resets_are_not_guarded(patch: pytest.MonkeyPatch) -> None:
    """Any client may commit to a group without members."""
    patch.setattr(CommitGuard, "guards", lambda *_: False)


def guards_end_with_the_process(patch: pytest.MonkeyPatch) -> None:
    """The next process does not know until when a reset that it has loaded is guarded."""

    def derive(self: CommitGuard, *_: Any) -> Steps[None]:
        self.is_complete = True
        yield

    patch.setattr(CommitGuard, "derive", derive)


def guards_begin_when_the_reset_is_durable(patch: pytest.MonkeyPatch) -> None:
    """Commits that come while it is on its way to the log follow it there."""
    patch.setattr(InFlight, "reset_append", property(lambda _self: 0, lambda _self, _number: None), raising=False)
    patch.setattr(consumer_group, "_is_being_emptied", lambda *_: False)


def the_next_reset_is_not_guarded(patch: pytest.MonkeyPatch) -> None:
    """The members were removed by the one before it."""
    patch.setattr(reset_requests, "_guarded_until_ms", lambda _active: -1)


GROUP_MUTATIONS: dict[str, tuple[Plant, str]] = {
    "a refused assignment is ignored": (a_refused_assignment_is_ignored, "refused_appends"),
    "a refused assignment is used": (a_refused_assignment_is_used, "refused_appends"),
    "a refused takeover is not answered": (a_refused_takeover_is_not_answered, "refused_appends"),
    "a refused takeover counts": (a_refused_takeover_counts, "refused_appends"),
    "a refused takeover is not reverted": (a_refused_takeover_is_not_reverted, "refused_appends"),
    "refused heartbeats renew sessions": (refused_heartbeats_renew_sessions, "sessions"),
    "commits do not renew sessions": (commits_do_not_renew_sessions, "sessions"),
    "leases count from answers": (leases_count_from_answers, "embedded_members"),
    "resets are not guarded": (resets_are_not_guarded, "resets"),
    "guards end with the process": (guards_end_with_the_process, "resets"),
    "the next reset is not guarded": (the_next_reset_is_not_guarded, "resets"),
    "guards begin when the reset is durable": (guards_begin_when_the_reset_is_durable, "resets"),
    "expiry ignores open transactions": (expiry_ignores_open_transactions, "expiring_transactions"),
}
