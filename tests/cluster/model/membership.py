"""Membership: a session joins, reads the register, and learns that others have declared it dead."""

from __future__ import annotations

from collections.abc import Iterator

from .scopes import Cluster
from .search import Step
from .state import NOT_HELD, Session, SessionPhase, State


def membership_steps(cluster: Cluster, state: State, number: int) -> Iterator[Step]:
    """Those of one session."""
    session = state.sessions[number]
    if session.phase == SessionPhase.UNBORN:
        if number == 0 or state.sessions[number - 1].phase != SessionPhase.UNBORN:
            yield _join(cluster, state, number)
    elif session.phase in (SessionPhase.ACTIVE, SessionPhase.LEAVING):
        if session.register != state.register:
            yield _read_register(state, number)
        if state.has_tombstone(number):
            yield Step(("session {}: finds its tombstone", number), state.fenced(number))


def _join(cluster: Cluster, state: State, number: int) -> Step:
    register = state.register.with_member(number)
    joined = Session(SessionPhase.ACTIVE, register, partitions=(NOT_HELD,) * cluster.partitions)
    return Step(("session {}: joins", number), state._replace(register=register).with_session(number, joined))


def _read_register(state: State, number: int) -> Step:
    session = state.sessions[number]
    if not state.register.has(number):
        return Step(("session {}: is not in the register", number), state.fenced(number))
    following = state.with_session(number, session._replace(register=state.register))
    return Step(("session {}: reads the register", number), following)
