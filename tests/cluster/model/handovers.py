"""Hand-overs: a partition is closed, its last manifest is created, and the register gives it to another session.

A session that leaves closes all its partitions, seals its WAL, and takes itself from the register.
"""

from __future__ import annotations

from collections.abc import Iterator

from .mistakes import Mistake
from .scopes import Cluster
from .search import Step
from .state import (
    ENDED,
    NOBODY,
    NOT_HELD,
    SEAL,
    Manifest,
    Partition,
    PartitionPhase,
    SessionPhase,
    State,
)

LOADING = (PartitionPhase.READING, PartitionPhase.TAIL_READ)
"""The manifest of a load may still be created after its session has left."""


def hand_over_steps(cluster: Cluster, state: State, number: int, partition: int) -> Iterator[Step]:
    """Those of one partition in one session."""
    session = state.sessions[number]
    held = session.partitions[partition]
    if held.phase == PartitionPhase.SERVING and session.phase == SessionPhase.ACTIVE and state.budgets.hand_overs:
        for target in range(len(state.sessions)):
            if target != number and session.register.has(target):
                closing = held._replace(phase=PartitionPhase.CLOSING, target=target)
                yield Step(
                    ("session {}: closes partition {} for session {}", number, partition, target),
                    state.spent("hand_overs").with_partition(number, partition, closing),
                )
    elif held.phase == PartitionPhase.CLOSING:
        if not any(round_.content & cluster.masks[partition] for round_ in session.flight):
            yield _close(cluster, state, number, partition)
    elif held.phase == PartitionPhase.CLOSED:
        yield from _give(cluster, state, number, partition)


def _close(cluster: Cluster, state: State, number: int, partition: int) -> Step:
    held, newest = state.sessions[number].partitions[partition], state.manifests[partition]
    if newest.version == held.manifest.version:
        created = Manifest(newest.version + 1, held.epoch, held.content, 0)
        is_given = held.target != NOBODY
        closed = Partition(PartitionPhase.CLOSED, held.epoch, target=held.target) if is_given else NOT_HELD
        return Step(
            ("session {}: creates the last manifest of partition {}", number, partition),
            state.with_manifest(partition, created).with_partition(number, partition, closed),
        )
    if newest.epoch == held.epoch:
        return Step(
            (
                "session {}: manifest {} of partition {} is another's, writes a new segment",
                number,
                newest.version,
                partition,
            ),
            state.with_partition(number, partition, held._replace(manifest=newest)),
        )
    return Step(
        ("session {}: manifest {} of partition {} has another epoch", number, newest.version, partition),
        state.fenced(number),
    )


def _give(cluster: Cluster, state: State, number: int, partition: int) -> Iterator[Step]:
    """If the new owner has gone meanwhile, the session gives the partition to itself, and loads it again."""
    session = state.sessions[number]
    held = session.partitions[partition]
    is_there = state.register.has(held.target)
    released = session.with_partition(partition, NOT_HELD)
    if not state.register.has(number):
        yield Step(("session {}: is not in the register", number), state.fenced(number))
        return
    if is_there or cluster.mistake is not Mistake.NOT_TAKEN_BACK:
        owner = held.target if is_there else number
        register = state.register.given(partition, owner)
        yield Step(
            ("session {}: the register gives partition {} to session {}", number, partition, owner),
            state._replace(register=register).with_session(number, released._replace(register=register)),
        )
    if cluster.mistake is Mistake.CHANGE_GIVEN_UP and is_there and not state.late_change:
        late = (state.register.given(partition, held.target), state.register)
        yield Step(
            ("session {}: gives its change of the register up, serves partition {} again", number, partition),
            state._replace(late_change=late).with_session(number, released),
        )


def late_change_steps(state: State) -> Iterator[Step]:
    """A version of the register lands after it was given up."""
    if state.late_change and state.late_change[1] == state.register:
        following = state._replace(register=state.late_change[0], late_change=())
        yield Step(("the version of the register lands that was given up",), following)


# Leaving -------------------------------------------------------------------------------------------------------------


def leave_steps(cluster: Cluster, state: State, number: int) -> Iterator[Step]:
    """Those of one session."""
    session = state.sessions[number]
    if session.phase == SessionPhase.ACTIVE and state.budgets.leaves and _may_leave(state, number):
        yield _begin_to_leave(state, number)
    elif session.phase == SessionPhase.LEAVING and not session.flight and not any(map(_is_held, session.partitions)):
        is_sealing = cluster.mistake is not Mistake.LEAVER_NOT_SEALED
        phase = SessionPhase.SEALING if is_sealing else SessionPhase.SEALED
        closed = ENDED._replace(phase=phase, next_number=session.next_number, partitions=session.partitions)
        yield Step(("session {}: has closed all partitions", number), state.with_session(number, closed))
    elif session.phase == SessionPhase.SEALING:
        yield _seal_oneself(state, number)
    elif session.phase == SessionPhase.SEALED:
        yield _leave_register(state, number)


def _is_held(held: Partition) -> bool:
    return held.phase not in (PartitionPhase.NONE, *LOADING)


def _may_leave(state: State, number: int) -> bool:
    """It waits until what it gives away is given, and for what it does to other sessions."""
    session = state.sessions[number]
    waits_for = (PartitionPhase.CHECKPOINT, PartitionPhase.CLOSING, PartitionPhase.CLOSED)
    return not session.burial and not any(held.phase in waits_for for held in session.partitions)


def _begin_to_leave(state: State, number: int) -> Step:
    session = state.sessions[number]
    partitions = tuple(map(_closing, session.partitions))
    leaving = session._replace(phase=SessionPhase.LEAVING, partitions=partitions, deleting=())
    return Step(("session {}: begins to leave", number), state.spent("leaves").with_session(number, leaving))


def _closing(held: Partition) -> Partition:
    """Loads in progress go on. Nobody waits for them."""
    if held.phase == PartitionPhase.SERVING:
        return held._replace(phase=PartitionPhase.CLOSING, target=NOBODY)
    return held if held.phase in LOADING else NOT_HELD


def _seal_oneself(state: State, number: int) -> Step:
    """All its rounds are stored, so the seal follows the last one."""
    session = state.sessions[number]
    end = session.next_number
    sealed = state if SEAL in state.wals[number] else state.with_cell(number, end, SEAL)
    following = session._replace(phase=SessionPhase.SEALED, next_number=0)
    return Step(("session {}: seals its WAL at {}", number, end), sealed.with_session(number, following))


def _leave_register(state: State, number: int) -> Step:
    register = state.register
    if register.has(number):
        register = register.without_member(number, len(state.sessions))
    partitions = state.sessions[number].partitions
    may_land = any(held.phase in LOADING for held in partitions)
    absent = ENDED._replace(phase=SessionPhase.ABSENT, partitions=partitions) if may_land else ENDED
    return Step(
        ("session {}: takes itself from the register", number),
        state._replace(register=register).with_session(number, absent),
    )
