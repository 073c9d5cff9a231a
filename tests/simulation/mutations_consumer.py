"""Planted bugs of groups of the consumer protocol: of the rules, of the group, of what is stored, and of the member."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.actors.base import DEFERRED
from callboard.actors.consumer_group import group as consumer_group
from callboard.actors.consumer_group import members, offsets, reconcile
from callboard.actors.consumer_group.decision_environment import GroupDecisions
from callboard.actors.consumer_group.group import DECISIONS, ConsumerGroup
from callboard.actors.consumer_group.messages import ConsumerHeartbeat, ConsumerHeartbeatReply
from callboard.actors.consumer_group.plan import DecisionEnvironment, Plan
from callboard.actors.consumer_group.reconcile import Reconciliation
from callboard.actors.consumer_group.records import MemberState, PartitionEpochs
from callboard.actors.consumer_group.removal import member_expired
from callboard.actors.consumer_group.state import GroupState
from callboard.actors.consumer_group.timers import SESSION, DeadlinePassed, MemberTimers
from callboard.actors.consumer_group.unchanged import UNCHANGED, unchanged_reply
from callboard.actors.engine_ports import NOT_HANDLED, ReplyTo
from callboard.actors.errors import ErrorCode
from callboard.actors.group.decisions import Cause, DecisionQueue, DecisionsContext
from callboard.actors.group.effects import Deadline, Effects
from callboard.actors.steps import Steps, run_steps
from callboard.runtime.member.consumer_reconciler import ConsumerReconciler
from callboard.runtime.member.consumer_session import ConsumerSession
from callboard.runtime.member.consumer_state import Event

from .mutations_log import Plant

# The rules -----------------------------------------------------------------------------------------------------------


def silence_means_that_nothing_is_owned(patch: pytest.MonkeyPatch) -> None:
    """A heartbeat that does not say what its member owns counts as if it had given back all."""

    def owns_any(given: Reconciliation, partitions: PartitionEpochs) -> bool:
        return any(partition in partitions for partition in given.owned or ())

    patch.setattr(reconcile, "_owns_any", owns_any)


def each_epoch_is_accepted(patch: pytest.MonkeyPatch) -> None:
    """Heartbeats of members that are behind, or ahead, are not fenced."""
    patch.setattr(members, "check_epoch", lambda *_arguments: None)


def a_live_static_member_is_replaced(patch: pytest.MonkeyPatch) -> None:
    """A second process with the same instance id gets the partitions of the first one, which has not left."""
    patch.setattr(members, "check_released", lambda *_arguments: None)


def former_owners_commit(patch: pytest.MonkeyPatch) -> None:
    """A member commits offsets of a partition that it had in an older epoch, and has no more."""
    patch.setattr(offsets, "_may_commit", lambda *_arguments: True)


def grown_topics_look_the_same(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupDecisions, "metadata_hash", lambda _self, _names: 1)


# The group -----------------------------------------------------------------------------------------------------------


def nobody_has_to_give_back_in_time(patch: pytest.MonkeyPatch) -> None:
    """A member that keeps partitions that it has to give back keeps them for ever."""
    patch.setattr(MemberTimers, "set_rebalance", lambda *_arguments: None)


def unchanged_heartbeats_renew_nothing(patch: pytest.MonkeyPatch) -> None:
    def answer_only(self: ConsumerGroup, request: Any, _effects: Effects) -> Any:
        may_answer = type(request) is ConsumerHeartbeat and self.queue.is_idle and not self.is_closed
        reply = unchanged_reply(self.soft, request, self.decisions) if may_answer else None
        return NOT_HANDLED if reply is None else reply

    patch.setattr(ConsumerGroup, "answer_at_once", answer_only)


def unchanged_heartbeats_ignore_the_target(patch: pytest.MonkeyPatch) -> None:
    """A member that has nothing to say does not hear of changes."""

    def answer(
        state: GroupState, request: ConsumerHeartbeat, environment: DecisionEnvironment
    ) -> ConsumerHeartbeatReply | None:
        member, epoch = state.members.get(request.member_id), request.member_epoch
        if member is None or epoch <= 0 or request[4:10] != UNCHANGED or epoch != member.current.member_epoch:
            return None
        if member.current.state is not MemberState.STABLE:
            return None
        interval_ms = environment.settings.heartbeat_interval_ms
        return ConsumerHeartbeatReply(ErrorCode.NONE, None, request.member_id, epoch, interval_ms)

    patch.setattr(consumer_group, "unchanged_reply", answer)


def renewed_sessions_end(patch: pytest.MonkeyPatch) -> None:
    """The end of a session had to wait for the log, and a heartbeat before it has renewed the session."""

    def end(group: ConsumerGroup, passed: DeadlinePassed, plan: Plan) -> Steps[None]:
        return member_expired(group.soft, passed.member_id, group.decisions, plan)

    assert isinstance(DECISIONS, dict)
    patch.setitem(DECISIONS, DeadlinePassed, end)


# What is stored ------------------------------------------------------------------------------------------------------


def answers_do_not_wait_for_the_log(patch: pytest.MonkeyPatch) -> None:
    def submit(self: DecisionQueue, message: Any, reply: ReplyTo | None, effects: Effects) -> Any:
        if not self.is_idle:
            self.waiting.append(Cause(message, reply))
            return DEFERRED
        value, records, _ends_group = run_steps(self._decide(message, effects))
        if records:
            self._append(((Cause(message), value),), records, effects)
        return value

    patch.setattr(DecisionQueue, "submit", submit)


def refused_records_count(patch: pytest.MonkeyPatch) -> None:
    """The sender gets the error, and what it asked for holds in memory nevertheless."""

    def answer_only(self: ConsumerGroup, _context: DecisionsContext, error: ErrorCode, effects: Effects) -> None:
        self._events = []
        self.queue.append_failed(error, effects)

    patch.setattr(ConsumerGroup, "append_failed", answer_only)


def loaded_members_have_no_session(patch: pytest.MonkeyPatch) -> None:
    """Members that died with the coordinator stay for ever."""
    load = ConsumerGroup.load

    def load_without_timers(self: ConsumerGroup, value: GroupState, effects: Effects) -> None:
        with pytest.MonkeyPatch.context() as without_timers:
            without_timers.setattr(ConsumerGroup, "restore_timers", lambda *_arguments: iter(()))
            load(self, value, effects)

    patch.setattr(ConsumerGroup, "load", load_without_timers)


# The member ----------------------------------------------------------------------------------------------------------


def given_back_before_work_has_ended(patch: pytest.MonkeyPatch) -> None:
    async def apply_and_release(self: ConsumerReconciler) -> None:
        member = self._member
        partitions = member.state.to_release()
        member.apply(Event.RELEASED, partitions)
        await member.owned.revoke(member.topics.topic_partitions(sorted(partitions)), member.lease.revoke_left_s())

    patch.setattr(ConsumerReconciler, "_release", apply_and_release)


# A session timeout that is lowered ------------------------------------------------------------------------------------


def heartbeats_shorten_sessions(patch: pytest.MonkeyPatch) -> None:
    """As in Kafka. The member may never get the answer, and relies on the session that it had."""

    def set_session(self: MemberTimers, member_id: str, in_ms: int, effects: Effects) -> None:
        session = self.sessions.setdefault(member_id, Deadline((SESSION, member_id)))
        session.set(self._clock.monotonic_ms() + in_ms, effects)

    patch.setattr(MemberTimers, "set_session", set_session)


def the_session_timeout_is_read_once(patch: pytest.MonkeyPatch) -> None:
    ask = ConsumerSession.ask

    async def ask_once(self: ConsumerSession) -> int | None:
        return self._told_ms or await ask(self)

    patch.setattr(ConsumerSession, "ask", ask_once)


CONSUMER_MUTATIONS: dict[str, tuple[Plant, str]] = {
    "silence means that nothing is owned": (silence_means_that_nothing_is_owned, "consumer_churn"),
    "each epoch is accepted": (each_epoch_is_accepted, "consumer_members"),
    "a live static member is replaced": (a_live_static_member_is_replaced, "consumer_members"),
    "former owners commit": (former_owners_commit, "consumer_members"),
    "grown topics look the same": (grown_topics_look_the_same, "consumer_members"),
    "nobody has to give back in time": (nobody_has_to_give_back_in_time, "consumer_churn"),
    "unchanged heartbeats renew nothing": (unchanged_heartbeats_renew_nothing, "consumer_members"),
    "unchanged heartbeats ignore the target": (unchanged_heartbeats_ignore_the_target, "consumer_churn"),
    "renewed sessions end": (renewed_sessions_end, "consumer_churn"),
    "answers do not wait for the log": (answers_do_not_wait_for_the_log, "consumer_churn"),
    "refused records count": (refused_records_count, "consumer_churn"),
    "loaded members have no session": (loaded_members_have_no_session, "consumer_churn"),
    "given back before work has ended": (given_back_before_work_has_ended, "consumer_churn"),
    "heartbeats shorten sessions": (heartbeats_shorten_sessions, "lowered_session_timeout"),
    "the session timeout is read once": (the_session_timeout_is_read_once, "lowered_session_timeout"),
}
