"""The tables of ``states.py`` with functions instead of names, made once at import, and the deadlines of a group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..engine_ports import ReplyTo
from ..errors import ErrorCode
from . import answers, identity, joining, rebalance, removal, replies, resets, static_members, syncing
from .core import GroupCore
from .deadlines import Deadlines
from .effects import Deadline, Effects
from .machine import Dispatch, Handler, Refusal, Step, Tables
from .states import CELLS, CHECKS, KINDS, TRANSITIONS, Cell, Event, Request, State, Transition

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        identity.check_identity,
        identity.check_generation,
        identity.check_protocol,
        identity.check_producer,
        joining.join,
        joining.join_new,
        joining.join_pending,
        joining.rejoin,
        joining.rejoin_if_changed,
        joining.rejoin_if_leader_or_changed,
        static_members.replace_and_rebalance,
        static_members.replace_if_unchanged,
        syncing.park_sync,
        syncing.answer_sync,
        removal.leave,
        resets.reset,
        answers.renew_session,
        answers.ask_to_rejoin,
        answers.accept_without_generation,
        answers.accept_of_consumers,
        answers.describe,
        answers.describe_protocol,
        answers.describe_closed,
        rebalance.start_initial_delay,
        rebalance.start_join_phase,
        rebalance.abandon_generation,
        rebalance.check_join_phase,
        rebalance.check_join_phase_early,
        rebalance.extend_or_end_join_phase,
        rebalance.begin_generation,
        rebalance.become_empty,
    )
}
"""The functions that the tables may name."""

REFUSALS: Mapping[Request, Refusal] = {
    Request.JOIN: replies.refuse_later,
    Request.JOIN_KNOWN: replies.refuse_later,
    Request.SYNC: replies.refuse_later,
    Request.LEAVE: replies.refuse_with_reply,
    Request.RESET: replies.refuse_with_reply,
}
"""The form of an error. Other kinds get the code: it is their reply, or the actor makes the reply."""

CLASSES: Mapping[Request, type] = {kind: request_class for request_class, kind in KINDS.items()}


def build_tables(
    cells: Mapping[State, Mapping[Request, Cell]] = CELLS,
    checks: Mapping[Request, str] = CHECKS,
    transitions: Mapping[State, Mapping[Event, Transition]] = TRANSITIONS,
    functions: Mapping[str, Callable[..., Any]] = FUNCTIONS,
) -> Tables:
    """Replace names by functions. Raises KeyError for a name that has no function."""

    def dispatch(state: State, kind: Request, cell: Cell) -> Dispatch:
        refuse = REFUSALS.get(kind, replies.refuse_with_code)
        handle = _refusing(refuse, cell) if isinstance(cell, ErrorCode) else functions[cell]
        is_checked = kind in checks and state.may_have_members
        return Dispatch(functions[checks[kind]] if is_checked else identity.check_nothing, handle, refuse)

    return Tables(
        {
            state: {CLASSES.get(kind, kind): dispatch(state, kind, cell) for kind, cell in row.items()}
            for state, row in cells.items()
        },
        {
            state: {
                event: Step(next_state, functions[act] if act else None) for event, (next_state, act) in row.items()
            }
            for state, row in transitions.items()
        },
    )


def _refusing(refuse: Refusal, error: ErrorCode) -> Handler:
    """The handler of a cell that is an error code."""

    def handle(_group: GroupCore, request: Any, reply: ReplyTo | None, effects: Effects) -> object:
        return refuse(request, reply, effects, error)

    return handle


def _session(group: GroupCore, member_id: str) -> Deadline | None:
    member = group.members.by_id.get(member_id)
    return member.session if member is not None else None


def _sessions(group: GroupCore) -> Iterable[Deadline]:
    return [member.session for member in group.members]


def _pending(group: GroupCore, member_id: str) -> Deadline | None:
    return group.members.pending.get(member_id)


def _all_pending(group: GroupCore) -> Iterable[Deadline]:
    return list(group.members.pending.values())


TABLES = build_tables()

DEADLINES: Deadlines[GroupCore] = Deadlines()
DEADLINES.add_per_member("session", _session, _sessions, removal.session_expired)
DEADLINES.add_per_member("pending", _pending, _all_pending, removal.pending_expired)
DEADLINES.add("join", lambda group: group.join_phase.deadline, rebalance.join_deadline_passed)
DEADLINES.add("sync", lambda group: group.sync_phase.deadline, rebalance.sync_deadline_passed)
