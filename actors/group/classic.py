"""One classic group, pure: JoinGroup, SyncGroup, Heartbeat, LeaveGroup and the checks of commits.

The order of the checks is Kafka's, and clients can observe it: first the identity of the sender (unknown member, fenced
instance, old generation), then the row of the state in ``states.py``.
"""

from __future__ import annotations

from typing import Any

from ..base import DEFERRED
from ..engine_ports import Clock, ReplyTo
from ..errors import NO_ERROR, ErrorCode
from ..messages import (
    DeleteGroup,
    DescribeGroup,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    Left,
    LeftMember,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    Synced,
    SyncGroup,
    TxnOffsetCommit,
)
from ..ports import GroupSettings, Random
from ..records import GroupRecord, GroupValue
from .contexts import AssignmentContext, ReplyContext, StaticRejoinContext
from .effects import Deadline, Effects
from .events import Cause, Kind, Reason, leave_cause
from .members import GroupMember
from .rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS, Rebalance
from .requests import refuse
from .states import COMMIT, HEARTBEAT, Action, Request, State


class ClassicGroup(Rebalance):
    """A group of the classic protocol. Methods fill the ``effects`` that they get; none of them waits."""

    def __init__(self, group_id: str, settings: GroupSettings, clock: Clock, random: Random) -> None:
        super().__init__(group_id, settings, clock)
        self.random = random

    def handle(self, request: Any, reply: ReplyTo | None, effects: Effects) -> object:
        """The reply to a request, or ``DEFERRED``; for requests on offsets and DeleteGroup an error code."""
        match request:
            case Heartbeat():
                return self.heartbeat(request, effects)
            case OffsetCommit():
                return self.commit_error(request, effects)
            case JoinGroup() if reply is not None:
                self.join(request, reply, effects)
                return DEFERRED
            case SyncGroup() if reply is not None:
                self.sync(request, reply, effects)
                return DEFERRED
            case LeaveGroup() if reply is not None:
                return self._leave_durably(request, reply, effects)
            case TxnOffsetCommit():
                return self.txn_commit_error(request)
            case OffsetDelete():
                return self._offset_delete_error()
            case DeleteGroup():
                return self._delete_error()
            case DescribeGroup():
                return self.describe()
            case OffsetFetch():
                return NO_ERROR
        return refuse(request)

    # Records from the log --------------------------------------------------------------------------------------------

    def replay(self, value: GroupValue) -> None:
        """Apply a durable record: existing members get their assignments, others are created."""
        self.protocol_type = value.protocol_type or None
        self.generation = value.generation
        self.protocol_name = value.protocol
        self.leader_id = value.leader
        for member_value in value.members:
            member = self.members.by_id.get(member_value.member_id)
            if member is None:
                self.members.add(GroupMember.from_record(member_value, value.protocol))
            else:
                member.assignment = member_value.assignment

    def load(self, value: GroupValue, effects: Effects) -> None:
        """Restore the group from its record. The sessions of its members start again."""
        self.replay(value)
        self._set_state(State.STABLE if value.members else State.EMPTY)
        self.state_timestamp_ms = value.current_state_timestamp_ms
        self._store_subscriptions()
        for member in self.members:
            self._renew_session(member, effects)
            self._note(Kind.MEMBER_ADDED, Cause(Reason.LOADED, member), effects)
        if len(self.members) > self.settings.group_max_size:
            self._start_rebalance(Cause(Reason.TOO_MANY_MEMBERS), effects)

    # JoinGroup -------------------------------------------------------------------------------------------------------

    def join(self, request: JoinGroup, reply: ReplyTo, effects: Effects) -> None:
        """Kafka's ``classicGroupJoin``. The reply is sent now or at the end of the join phase."""
        error = self._join_error(request)
        if error is ErrorCode.GROUP_MAX_SIZE_REACHED:
            self._drop_member(request.member_id, effects)
            effects.answer(reply, Joined(error))
        elif error is not ErrorCode.NONE:
            effects.answer(reply, Joined(error, member_id=request.member_id))
        elif not request.member_id:
            self._join_new(request, reply, effects)
        elif request.member_id in self.members.pending:
            self._join_pending(request, reply, effects)
        else:
            self._join_known(request, reply, effects)

    def _join_error(self, request: JoinGroup) -> ErrorCode:
        answer = self.answers[Request.JOIN_NEW]
        if isinstance(answer, ErrorCode):
            return answer
        if not (self._has_room_for(request.member_id) and self.members.fits(request)):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not self._supports(request):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    def _has_room_for(self, member_id: str) -> bool:
        """Kafka's ``acceptJoiningMember``: in a join phase only members that have joined count."""
        if self.state is State.EMPTY:
            return True
        member = self.members.by_id.get(member_id)
        if self.state is State.PREPARING_REBALANCE:
            has_joined = member is not None and member.joining is not None
            return has_joined or self.members.joining < self.settings.group_max_size
        return member is not None or len(self.members) < self.settings.group_max_size

    def _supports(self, request: JoinGroup) -> bool:
        if not len(self.members):
            return bool(request.protocol_type and request.protocols)
        return request.protocol_type == self.protocol_type and self.members.supports(request.protocols)

    def _drop_member(self, member_id: str, effects: Effects) -> None:
        self._forget_pending(member_id, effects)
        member = self.members.by_id.get(member_id)
        if member is not None:
            self._remove(member, Cause(Reason.GROUP_IS_FULL, member), effects)

    def _forget_pending(self, member_id: str, effects: Effects) -> None:
        deadline = self.members.pending.pop(member_id, None)
        if deadline is not None:
            deadline.cancel(effects)

    def _join_new(self, request: JoinGroup, reply: ReplyTo, effects: Effects) -> None:
        instance_id = request.group_instance_id
        if instance_id is not None and instance_id in self.members.static:
            self._replace_static(request, reply, effects)
        elif instance_id is None and request.needs_member_id:
            self._assign_member_id(request, reply, effects)
        else:
            self._add(self._new_member_id(request), request, reply, effects)

    def _new_member_id(self, request: JoinGroup) -> str:
        instance_id = request.group_instance_id  # may be empty, which differs from None
        return f"{request.client_id if instance_id is None else instance_id}-{self.random.uuid()}"

    def _assign_member_id(self, request: JoinGroup, reply: ReplyTo, effects: Effects) -> None:
        """A new member must join again with its id, so that lost responses leave no unused members behind (KIP-394)."""
        member_id = self._new_member_id(request)
        deadline = self.members.pending[member_id] = Deadline(("pending", member_id))
        self._set(deadline, request.session_timeout_ms, effects)
        effects.answer(reply, Joined(ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))

    def _join_pending(self, request: JoinGroup, reply: ReplyTo, effects: Effects) -> None:
        """Pending ids belong to dynamic members. With an instance id the member is unknown."""
        if request.group_instance_id is not None:
            effects.answer(reply, Joined(ErrorCode.UNKNOWN_MEMBER_ID, member_id=request.member_id))
        else:
            self._add(request.member_id, request, reply, effects)

    def _add(self, member_id: str, request: JoinGroup, reply: ReplyTo, effects: Effects) -> None:
        self._forget_pending(member_id, effects)
        member = GroupMember.from_request(member_id, request)
        member.joining = reply
        if not len(self.members):
            self.protocol_type = request.protocol_type
        self._new_member_added = self._new_member_added or self._in_initial_delay()
        self.members.add(member)
        self.leader_id = self.leader_id or member_id
        self._set(member.session, NEW_MEMBER_JOIN_TIMEOUT_MS, effects)
        cause = Cause(Reason.MEMBER_JOINED, member, request.reason)
        self._note(Kind.MEMBER_ADDED, cause, effects)
        self._rebalance(cause, effects)

    def _join_known(self, request: JoinGroup, reply: ReplyTo, effects: Effects) -> None:
        error = self._identify(request.member_id, request.group_instance_id)
        answer = self.answers[Request.JOIN_KNOWN] if error is ErrorCode.NONE else error
        member = self.members.by_id.get(request.member_id)
        if isinstance(answer, ErrorCode) or member is None:
            effects.answer(reply, Joined(_error_in(answer), member_id=request.member_id))
        elif self._may_repeat_reply(answer, member, request):
            effects.answer(reply, self._joined(member))
        else:
            is_changed = member.protocols != request.protocols  # an unchanged follower begins no rebalance
            reason = Reason.SUBSCRIPTION_CHANGED if is_changed else Reason.LEADER_REJOINED
            self.members.update(member, request)
            self.members.park_join(member, reply)
            self._rebalance(Cause(reason, member, request.reason), effects)

    def _may_repeat_reply(self, answer: Action | ErrorCode, member: GroupMember, request: JoinGroup) -> bool:
        """Whether the member only missed its response, so that it gets the current generation again."""
        if answer is Action.REJOIN or member.protocols != request.protocols:
            return False
        return answer is Action.ANSWER_IF_UNCHANGED or member.member_id != self.leader_id

    # Static members --------------------------------------------------------------------------------------------------

    def _replace_static(self, request: JoinGroup, reply: ReplyTo, effects: Effects) -> None:
        """A static member that restarted joins without a member id: it replaces its previous member (KIP-345)."""
        old = self.members.by_id.get(self.members.static[request.group_instance_id or ""])
        assert old is not None, "every entry of ``static`` has a member"
        member = self._replace_member(old, self._new_member_id(request), Reason.STATIC_MEMBER_REPLACED, effects)
        context = StaticRejoinContext(
            member.member_id,
            old.member_id,
            self.leader_id,
            old.protocols,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            request.can_skip_assignment,
        )
        if self.leader_id == old.member_id:
            self.leader_id = member.member_id
        self._renew_session(member, effects)
        self.members.update(member, request)
        self.members.park_join(member, reply)
        if self.state is State.STABLE and self.members.vote() == self.protocol_name:
            effects.append_record(GroupRecord(self.group_id, self._value()), context)
        else:
            self._rebalance(Cause(Reason.STATIC_MEMBER_REPLACED, member, request.reason), effects)

    def _replace_member(self, old: GroupMember, member_id: str, reason: Reason, effects: Effects) -> GroupMember:
        """Replace a member by a copy with another id. Parked requests of the old member get FENCED_INSTANCE_ID."""
        fenced = Joined(ErrorCode.FENCED_INSTANCE_ID, member_id=old.member_id)
        effects.answer(self.members.pop_join(old), fenced)
        effects.answer(old.syncing, Synced(ErrorCode.FENCED_INSTANCE_ID))
        member = GroupMember(member_id, old.group_instance_id, old.client_id, old.client_host)
        member.protocols, member.assignment = old.protocols, old.assignment
        member.session_timeout_ms = old.session_timeout_ms
        member.rebalance_timeout_ms = old.rebalance_timeout_ms
        was_pending_sync = old.member_id in self.pending_sync
        self.members.remove(old)
        self.pending_sync.discard(old.member_id)
        old.session.cancel(effects)
        self.members.add(member)
        self._note(Kind.MEMBER_REMOVED, Cause(reason, old), effects)
        self._note(Kind.MEMBER_ADDED, Cause(reason, member), effects)
        if was_pending_sync:
            self.pending_sync.add(member_id)
        return member

    def _complete_static_rejoin(self, context: StaticRejoinContext, effects: Effects) -> None:
        """The record is durable. The member gets the current generation, without a rebalance."""
        member = self.members.by_id.get(context.member_id)
        if member is None or member.joining is None:
            return
        reply = self._joined(member, list_members=context.can_skip_assignment)
        if context.can_skip_assignment:
            reply = reply._replace(skip_assignment=member.member_id == self.leader_id)
        else:
            # An old client would compute a new assignment if it found itself the leader: send the old id (KIP-814).
            reply = reply._replace(leader=context.old_leader_id or "")
        effects.answer(self.members.pop_join(member), reply)
        if member.session.due_ms is None:  # it expired while the join was parked; otherwise, as in Kafka, it continues
            self._renew_session(member, effects)

    def _revert_static_rejoin(self, context: StaticRejoinContext, error: ErrorCode, effects: Effects) -> None:
        member = self.members.by_id.get(context.member_id)
        if member is None or member.joining is None or self.state is not State.STABLE:
            return  # a rebalance has begun: the reply is sent at the end of its join phase
        reply = self._joined(member, list_members=False)._replace(
            error=error, member_id="", leader=context.old_leader_id or ""
        )
        effects.answer(self.members.pop_join(member), reply)
        old = self._replace_member(member, context.old_member_id, Reason.REPLACEMENT_NOT_STORED, effects)
        old.rebalance_timeout_ms = context.old_rebalance_timeout_ms
        old.session_timeout_ms = context.old_session_timeout_ms
        self.members.restore(old, context.old_protocols)
        if self.leader_id == member.member_id:
            self.leader_id = old.member_id
        self._renew_session(old, effects)

    # SyncGroup -------------------------------------------------------------------------------------------------------

    def sync(self, request: SyncGroup, reply: ReplyTo, effects: Effects) -> None:
        """Kafka's ``classicGroupSync``. The reply is sent when the leader's assignment is durable."""
        error = self._sync_error(request)
        answer = self.answers[Request.SYNC] if error is ErrorCode.NONE else error
        member = self.members.by_id.get(request.member_id)
        if isinstance(answer, ErrorCode) or member is None:
            effects.answer(reply, Synced(_error_in(answer)))
            return
        self.pending_sync.discard(member.member_id)
        if not self.pending_sync:
            self.sync_deadline.cancel(effects)
        if answer is Action.ANSWER_SYNC:
            effects.answer(reply, self._assignment_of(member))
            return
        member.syncing = reply
        if member.member_id == self.leader_id and self.assigned_generation != self.generation:
            # Only the first assignment is used: members might already have got it when a second one is appended.
            self.assigned_generation = self.generation
            value = self._value(request.assignments)
            effects.append_record(GroupRecord(self.group_id, value), AssignmentContext(self.generation))

    def _sync_error(self, request: SyncGroup) -> ErrorCode:
        error = self._check_sender(request.member_id, request.group_instance_id, request.generation_id)
        if error is not ErrorCode.NONE:
            return error
        if _differ(request.protocol_type, self.protocol_type) or _differ(request.protocol_name, self.protocol_name):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    # Outcomes of appends ---------------------------------------------------------------------------------------------

    def appended(self, value: GroupValue, context: object, effects: Effects) -> None:
        """A record of this group is durable: apply the decision."""
        if isinstance(context, StaticRejoinContext):
            self._complete_static_rejoin(context, effects)
        elif isinstance(context, AssignmentContext) and self._awaits(context):
            self.replay(value)
            for member in self.members:
                self._answer_sync(member, self._assignment_of(member), effects)
            self._transition_to(State.STABLE, Cause(Reason.ASSIGNMENT_STORED), effects)

    def append_failed(self, context: object, error: ErrorCode, effects: Effects) -> None:
        """A record of this group could not be appended: revert the decision."""
        if isinstance(context, StaticRejoinContext):
            self._revert_static_rejoin(context, error, effects)
        elif isinstance(context, AssignmentContext) and self._awaits(context):
            self._drop_assignments(error, effects)
            self._start_rebalance(Cause(Reason.ASSIGNMENT_NOT_STORED), effects)

    def _awaits(self, context: AssignmentContext) -> bool:
        return self.state is State.COMPLETING_REBALANCE and self.generation == context.generation

    # Heartbeat, LeaveGroup, OffsetCommit -----------------------------------------------------------------------------

    def heartbeat(self, request: Heartbeat, effects: Effects) -> ErrorCode:
        error = self._check_sender(request.member_id, request.group_instance_id, request.generation_id)
        if error is not NO_ERROR:
            return error
        answer = self.answers[HEARTBEAT]
        assert isinstance(answer, ErrorCode), "the table has only error codes for heartbeats"
        self._renew_session(self.members.by_id[request.member_id], effects)
        return answer

    def leave(self, request: LeaveGroup, effects: Effects) -> Left:
        """Kafka's ``classicGroupLeave``. Each member has its own result; the group rebalances once, at the end."""
        answer = self.answers[Request.LEAVE]
        if isinstance(answer, ErrorCode):
            return Left(answer)
        removals = [self._remove_leaving(leaving, effects) for leaving in request.members]
        cause = next((cause for _, cause in removals if cause is not None), None)
        if cause is not None and self.state is not State.EMPTY:
            self._rebalance(cause, effects)
        return Left(ErrorCode.NONE, tuple(result for result, _ in removals))

    def _leave_durably(self, request: LeaveGroup, reply: ReplyTo, effects: Effects) -> object:
        """If the group becomes empty, the reply is sent when its record is durable; otherwise at once."""
        left = self.leave(request, effects)
        if not effects.records:
            return left
        effects.context = ReplyContext(reply, left, Left)
        return DEFERRED

    def _remove_leaving(self, leaving: LeavingMember, effects: Effects) -> tuple[LeftMember, Cause | None]:
        """The result for one member, and the cause of the following rebalance; None if nobody was removed."""
        member_id, instance_id = leaving.member_id, leaving.group_instance_id
        if not member_id and instance_id is not None:
            member_id = self.members.static.get(instance_id, "")
        member = self.members.by_id.get(member_id)
        cause = leave_cause(leaving.member_id, leaving.reason, member)
        if member_id in self.members.pending:
            self._forget_pending(member_id, effects)
            return LeftMember(leaving.member_id, instance_id, ErrorCode.NONE), cause
        error = self._identify(member_id, instance_id)
        if error is not ErrorCode.NONE or member is None:
            return LeftMember(leaving.member_id, instance_id, error), None
        self._remove_and_reply(member, cause, effects)
        return LeftMember(leaving.member_id, instance_id, ErrorCode.NONE), cause

    def _remove_and_reply(self, member: GroupMember, cause: Cause, effects: Effects) -> None:
        effects.answer(self.members.pop_join(member), Joined(ErrorCode.UNKNOWN_MEMBER_ID))
        effects.answer(member.syncing, Synced(ErrorCode.UNKNOWN_MEMBER_ID))
        self._remove(member, cause, effects)

    def commit_error(self, request: OffsetCommit, effects: Effects) -> ErrorCode:
        """The error code for a commit. A simple consumer (without a generation) may commit while the group is empty."""
        is_simple = request.generation_id < 0
        if is_simple and self.state is State.EMPTY:
            return NO_ERROR
        if is_simple and not request.member_id and request.group_instance_id is None:
            return self._dead_or(ErrorCode.UNKNOWN_MEMBER_ID)
        error = self._check_sender(request.member_id, request.group_instance_id, request.generation_id)
        if error is not NO_ERROR:
            return error
        answer = self.answers[COMMIT]
        if isinstance(answer, ErrorCode):
            return answer
        self._renew_session(self.members.by_id[request.member_id], effects)
        return NO_ERROR

    def txn_commit_error(self, request: TxnOffsetCommit) -> ErrorCode:
        """The same in a transaction: allowed during a rebalance, and old producers send no member id."""
        answer = self.answers[Request.TXN_COMMIT]
        if isinstance(answer, ErrorCode):
            return answer
        is_anonymous = not request.member_id and request.group_instance_id is None
        if request.generation_id < 0 and (is_anonymous or self.state is State.EMPTY):
            return ErrorCode.NONE
        return self._check_sender(request.member_id, request.group_instance_id, request.generation_id)

    # Identity --------------------------------------------------------------------------------------------------------

    def _check_sender(self, member_id: str, instance_id: str | None, generation_id: int) -> ErrorCode:
        if instance_id is not None or member_id not in self.members.by_id:
            error = self._identify(member_id, instance_id)
            if error is not NO_ERROR:
                return self._dead_or(error)
        return NO_ERROR if generation_id == self.generation else ErrorCode.ILLEGAL_GENERATION

    def _identify(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if instance_id is not None:
            owner = self.members.static.get(instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return NO_ERROR if member_id in self.members.by_id else ErrorCode.UNKNOWN_MEMBER_ID

    def _dead_or(self, error: ErrorCode) -> ErrorCode:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if self.state is State.DEAD else error

    # Deadlines -------------------------------------------------------------------------------------------------------

    def expired(self, name: tuple[str, ...], effects: Effects) -> None:
        """Handle the alarm of a deadline."""
        deadline = self._deadline(name)
        if deadline is None or not deadline.handle_alarm(self.clock.monotonic_ms(), effects):
            return
        if deadline is self.join_deadline:
            self._join_deadline_passed(effects)
        elif deadline is self.sync_deadline:
            self._sync_deadline_passed(effects)
        elif name[0] == "pending":
            del self.members.pending[name[1]]
            self._complete_join_if_all_joined_early(effects)
        else:
            self._session_expired(name[1], effects)

    def _deadline(self, name: tuple[str, ...]) -> Deadline | None:
        """The deadline of a name; None if its member has been removed meanwhile."""
        match name:
            case ("session", member_id):
                member = self.members.by_id.get(member_id)
                return member.session if member is not None else None
            case ("pending", member_id):
                return self.members.pending.get(member_id)
            case ("join",):
                return self.join_deadline
            case _:
                return self.sync_deadline

    def _session_expired(self, member_id: str, effects: Effects) -> None:
        """A member with a parked request is alive, unless it is new and has waited for five minutes."""
        member = self.members.by_id.get(member_id)
        if member is None or (not member.is_new and (member.joining or member.syncing)):
            return
        cause = Cause(Reason.SESSION_EXPIRED, member)
        self._remove_and_reply(member, cause, effects)
        effects.counters.expired_sessions += 1
        if self.state is State.PREPARING_REBALANCE:
            self._complete_join_if_all_joined_early(effects)
        else:
            self._rebalance(cause, effects)


def _differ(requested: str | None, current: str | None) -> bool:
    return requested is not None and current is not None and requested != current


def _error_in(answer: Action | ErrorCode) -> ErrorCode:
    return answer if isinstance(answer, ErrorCode) else ErrorCode.UNKNOWN_MEMBER_ID
