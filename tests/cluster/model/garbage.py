"""Garbage collection of rounds: a session's own below its floor, and those of sessions that have ended.

Deletes land late, one key at a time and in any order.
"""

from __future__ import annotations

from collections.abc import Iterator

from .checkpoints import next_round
from .mistakes import Mistake
from .rounds import SERVING
from .scopes import Cluster
from .search import Step
from .state import DELETED_BITS, EMPTY, SEAL, SessionPhase, State, is_round


def garbage_steps(cluster: Cluster, state: State, number: int) -> Iterator[Step]:
    """Those of one session."""
    session = state.sessions[number]
    if session.phase != SessionPhase.ACTIVE:
        return
    if len(session.deleting) == 1:
        yield _look(cluster, state, number)
    elif session.deleting:
        yield _read_manifest(cluster, state, number)
    else:
        yield from _create_floor(cluster, state, number)
        if cluster.scope.collects_ended:
            yield from _look_for_ended(cluster, state, number)


def needed_from(cluster: Cluster, state: State, number: int) -> int:
    """No partition of the session needs a round below."""
    counts_served_only = cluster.mistake is Mistake.FLOOR_OF_SERVED
    first_rounds = [
        held.first_round
        for held in state.sessions[number].partitions
        if held.phase in SERVING or not counts_served_only
    ]
    return min([next_round(cluster, state, number), *first_rounds])


def _create_floor(cluster: Cluster, state: State, number: int) -> Iterator[Step]:
    floor = needed_from(cluster, state, number)
    if floor > state.floors[number] and any(map(is_round, state.wals[number][:floor])):
        deleting = state.sessions[number]._replace(deleting=(floor,))
        following = state.with_session(number, deleting)
        if cluster.mistake is Mistake.NO_FLOOR:
            yield Step(("session {}: needs no round below {}", number, floor), following)
        else:
            yield Step(("session {}: creates its floor {}", number, floor), following.with_floor(number, floor))


def _look(cluster: Cluster, state: State, number: int) -> Step:
    if state.has_tombstone(number) and cluster.mistake is not Mistake.NO_LOOK_BEFORE_DELETES:
        return Step(("session {}: finds its tombstone", number), state.fenced(number))
    session = state.sessions[number]
    following = state.with_session(number, session._replace(deleting=())).deleting_below(number, session.deleting[0])
    return Step(("session {}: deletes its rounds below {}", number, session.deleting[0]), following)


# Sessions that have ended --------------------------------------------------------------------------------------------


def _look_for_ended(cluster: Cluster, state: State, number: int) -> Iterator[Step]:
    """With the newest register: the manifests are read after it."""
    session = state.sessions[number]
    if session.register != state.register:
        return
    for ended in range(len(state.wals)):
        if not state.register.has(ended) and (_is_ended(state, ended) or _looks_for_seals_later(cluster)):
            yield Step(
                ("session {}: looks for rounds of session {}, which has ended", number, ended),
                state.with_session(number, session._replace(deleting=(ended, 0))),
            )


def _is_ended(state: State, ended: int) -> bool:
    """It has a seal behind rounds, and had joined before."""
    rounds = state.wals[ended][state.deletes[ended] :]
    return (
        state.sessions[ended].phase != SessionPhase.UNBORN and SEAL in state.wals[ended] and any(map(is_round, rounds))
    )


def _looks_for_seals_later(cluster: Cluster) -> bool:
    return cluster.mistake is Mistake.ENDED_BEFORE_SEAL


def _read_manifest(cluster: Cluster, state: State, number: int) -> Step:
    """The rounds stay as long as a partition has not been loaded by the owner of this register."""
    session = state.sessions[number]
    ended, partition = session.deleting
    if partition == cluster.partitions:
        return _delete_rounds(state, number, ended)
    newest, idle = state.manifests[partition], state.with_session(number, session._replace(deleting=()))
    if cluster.mistake is Mistake.DEAD_ROUNDS_BY_NAME:
        is_needed = newest.tail == ended + 1
    else:
        is_needed = newest.epoch != session.register.epochs[partition]
    if is_needed:
        return Step(("session {}: partition {} may need session {}", number, partition, ended), idle)
    if partition + 1 < cluster.partitions or _looks_for_seals_later(cluster):
        following = state.with_session(number, session._replace(deleting=(ended, partition + 1)))
        return Step(("session {}: partition {} does not need session {}", number, partition, ended), following)
    return _delete_rounds(state, number, ended)


def _delete_rounds(state: State, number: int, ended: int) -> Step:
    idle = state.with_session(number, state.sessions[number]._replace(deleting=()))
    if SEAL not in state.wals[ended]:
        return Step(("session {}: session {} has no seal", number, ended), idle)
    return Step(
        ("session {}: deletes the rounds of session {}", number, ended),
        idle.deleting_below(ended, state.wals[ended].index(SEAL)),
    )


# Late effects --------------------------------------------------------------------------------------------------------


def late_delete_steps(state: State) -> Iterator[Step]:
    """Each key that is being deleted goes some time. Then a second copy of its create may land."""
    has_copies = bool(state.budgets.copies)
    for session, wal in enumerate(state.wals):
        for number, cell in enumerate(wal):
            if cell == EMPTY:
                continue
            if cell & 3 == DELETED_BITS:
                if has_copies:
                    following = state.spent("copies").with_cell(session, number, cell ^ 1)
                    yield Step(("a second copy of round {} of session {} lands", number, session), following)
            elif number < state.deletes[session]:
                if cell == SEAL:
                    yield _seal_deleted(state, session, number)
                else:
                    deleted = cell | 1 if has_copies else EMPTY
                    yield Step(
                        ("round {} of session {} is deleted", number, session),
                        state.with_cell(session, number, deleted),
                    )


def _seal_deleted(state: State, session: int, number: int) -> Step:
    """A sealer that slept may seal again, where rounds of an ended session were deleted. Nobody needs that seal."""
    is_only = state.wals[session].count(SEAL) == 1
    return Step(
        ("a late delete removes the seal {} of session {}", number, session),
        state.with_cell(session, number, EMPTY),
        "I4: the seal is deleted" if is_only else "",
    )
