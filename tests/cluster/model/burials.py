"""Burials: a session is declared dead, its WAL is sealed, the register drops it. Any number of sessions may do it."""

from __future__ import annotations

from collections.abc import Iterator

from .mistakes import Mistake
from .scopes import Cluster
from .search import Step
from .state import SEAL, BurialStage, SessionPhase, State, Wal, cell_at, is_free, is_round


def burial_steps(cluster: Cluster, state: State, number: int) -> Iterator[Step]:
    """Those of one session that does it to another one."""
    session = state.sessions[number]
    if session.phase != SessionPhase.ACTIVE:
        return
    if not session.burial:
        if state.budgets.burials:
            for victim in range(len(state.sessions)):
                if victim != number and session.register.has(victim):
                    yield declare_dead(cluster, state.spent("burials"), number, victim)
    elif session.burial[1] == BurialStage.LISTS_FLOORS:
        yield from _list_floors(cluster, state, number)
    elif session.burial[1] == BurialStage.SEALS:
        yield _seal(cluster, state, number)
    else:
        yield _change_register(state, number)


def declare_dead(cluster: Cluster, state: State, number: int, victim: int) -> Step:
    begun = _with_burial(state, number, (victim, BurialStage.LISTS_FLOORS, 0))
    if cluster.mistake is Mistake.NO_TOMBSTONE:
        return Step(("session {}: declares session {} dead", number, victim), begun)
    following = begun._replace(tombstones=state.tombstones | 1 << victim)
    return Step(("session {}: creates the tombstone of session {}", number, victim), following)


def _with_burial(state: State, number: int, burial: tuple[int, ...]) -> State:
    return state.with_session(number, state.sessions[number]._replace(burial=burial))


def seal_starts(cluster: Cluster, floor: int, wal: Wal) -> set[int]:
    """Where a sealer may begin. The list of rounds may lack new ones, so it is a hint only."""
    stored = [number for number, cell in enumerate(wal) if not is_free(cell)]
    if cluster.mistake is Mistake.SEAL_FROM_OLDEST:
        return {stored[0] if stored else 0}
    hint = stored[-1] + 1 - cluster.scope.pipeline if stored else 0
    return {floor, max(floor, hint)}


def _list_floors(cluster: Cluster, state: State, number: int) -> Iterator[Step]:
    victim = state.sessions[number].burial[0]
    for start in sorted(seal_starts(cluster, state.floors[victim], state.wals[victim])):
        yield Step(
            ("session {}: begins to seal session {} at {}", number, victim, start),
            _with_burial(state, number, (victim, BurialStage.SEALS, start)),
        )


def _seal(cluster: Cluster, state: State, number: int) -> Step:
    victim, _, position = state.sessions[number].burial
    cell = cell_at(state.wals[victim], position)
    done = (victim, BurialStage.CHANGES_REGISTER, 0)
    if cluster.mistake is Mistake.NO_SEAL:
        return Step(("session {}: does not seal session {}", number, victim), _with_burial(state, number, done))
    if cell == SEAL:
        return Step(("session {}: finds the seal of session {}", number, victim), _with_burial(state, number, done))
    if is_round(cell):
        onwards = (victim, BurialStage.SEALS, position + 1)
        return Step(
            ("session {}: finds round {} of session {}", number, position, victim),
            _with_burial(state, number, onwards),
        )
    return Step(
        ("session {}: seals session {} at {}", number, victim, position),
        _with_burial(state.with_cell(victim, position, SEAL), number, done),
    )


def _change_register(state: State, number: int) -> Step:
    victim = state.sessions[number].burial[0]
    register = state.register
    if register.has(victim):
        register = register.without_member(victim, len(state.sessions))
    session = state.sessions[number]._replace(burial=())
    if register.has(number):
        session = session._replace(register=register)
    return Step(
        ("session {}: the register drops session {}", number, victim),
        state._replace(register=register).with_session(number, session),
    )
