"""I6: from a state, with one session dead for ever, those who live come to serve everything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from .burials import declare_dead
from .rounds import SERVING
from .scopes import Cluster
from .search import Step
from .state import NOBODY, SEAL, Budgets, SessionPhase, State

STATES_MAX = 20_000
NOBODY_DEAD = -1


class HasSessionSteps(Protocol):
    def session_steps(self, state: State, number: int) -> Iterator[Step]:
        """All that one session can do next."""


def stuck(cluster: Cluster, model: HasSessionSteps, state: State) -> str:
    """Why the others cannot finish, with each session dead in turn and with none, or ""."""
    calm = state._replace(budgets=Budgets(0))
    for dead in range(NOBODY_DEAD, len(state.sessions)):
        if not _can_finish(cluster, model, calm, dead):
            who = "nobody dead" if dead == NOBODY_DEAD else f"session {dead} dead"
            return f"I6: with {who}, the others cannot serve all partitions"
    return ""


def _can_finish(cluster: Cluster, model: HasSessionSteps, first: State, dead: int) -> bool:
    """Depth first, until a state is found in which all is served, or nobody is left who could do it."""
    seen, waiting = {hash(first)}, [first]
    while waiting and len(seen) < STATES_MAX:
        state = waiting.pop()
        if _is_served(state, dead) or not _live(state, dead):
            return True
        for step in _calm_steps(cluster, model, state, dead):
            key = hash(step.state)
            if key not in seen:
                seen.add(key)
                waiting.append(step.state)
    return False


def _live(state: State, dead: int) -> list[int]:
    """The sessions that renew their lease. One whose writer is dead does, too."""
    phases = (SessionPhase.ACTIVE, SessionPhase.WRITER_DEAD)
    sessions = enumerate(state.sessions)
    return [number for number, session in sessions if session.phase in phases and number != dead]


def _is_served(state: State, dead: int) -> bool:
    register = state.register
    for partition, (owner, epoch) in enumerate(zip(register.owners, register.epochs, strict=True)):
        if owner in (NOBODY, dead) or state.sessions[owner].phase != SessionPhase.ACTIVE:
            return False
        held = state.sessions[owner].partitions[partition]
        if held.phase not in SERVING or held.epoch != epoch or SEAL in state.wals[owner]:
            return False
    return True


def _calm_steps(cluster: Cluster, model: HasSessionSteps, state: State, dead: int) -> Iterator[Step]:
    """No new faults. A session whose WAL is sealed learns it with its next round. The silent are declared dead."""
    live = _live(state, dead)
    for number in live:
        session = state.sessions[number]
        if session.phase != SessionPhase.ACTIVE:
            continue
        if SEAL in state.wals[number]:
            yield Step(("session {}: a round meets the seal", number), state.fenced(number))
            continue
        if not session.burial:
            for victim in range(len(state.sessions)):
                if victim not in live and victim != number and state.register.has(victim):
                    yield declare_dead(cluster, state, number, victim)
        yield from model.session_steps(state, number)
