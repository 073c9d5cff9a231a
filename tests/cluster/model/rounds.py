"""Rounds: a commit gets a round, the round is stored, and the commit is acknowledged."""

from __future__ import annotations

from collections.abc import Iterator

from .mistakes import Mistake
from .scopes import Cluster
from .search import Step, replaced
from .state import FREE, SEAL, Partition, PartitionPhase, Round, SessionPhase, State, cell_at, is_free, round_cell

SERVING = (PartitionPhase.SERVING, PartitionPhase.CHECKPOINT)


def round_steps(cluster: Cluster, state: State, number: int) -> Iterator[Step]:
    """Those of one session."""
    session = state.sessions[number]
    has_room = len(session.flight) < cluster.scope.pipeline
    if session.phase == SessionPhase.ACTIVE and state.budgets.commits and has_room:
        for partition, held in enumerate(session.partitions):
            if held.phase in SERVING:
                yield _begin(cluster, state, number, partition)
    for index, round_ in enumerate(session.flight):
        if not round_.is_stored:
            yield from _store(cluster, state, number, index)
        elif index == 0 or cluster.mistake is Mistake.ANSWER_OUT_OF_ORDER:
            yield _acknowledge(cluster, state, number, index)


def _begin(cluster: Cluster, state: State, number: int, partition: int) -> Step:
    session = state.sessions[number]
    index = cluster.scope.budgets.commits - state.budgets.commits
    content = 1 << index * cluster.partitions + partition
    round_ = Round(session.next_number, content, False)
    following = state.spent("commits").with_session(
        number, session._replace(next_number=session.next_number + 1, flight=(*session.flight, round_))
    )
    if cluster.mistake is Mistake.ANSWER_BEFORE_STORED:
        following = following._replace(answered=state.answered | content)
    return Step(("session {}: a commit to partition {} gets round {}", number, partition, round_.number), following)


def _store(cluster: Cluster, state: State, number: int, index: int) -> Iterator[Step]:
    session = state.sessions[number]
    round_ = session.flight[index]
    cell = cell_at(state.wals[number], round_.number)
    if cell == SEAL:
        yield Step(("session {}: round {} meets the seal", number, round_.number), state.fenced(number))
    elif is_free(cell):
        flight = replaced(session.flight, index, round_._replace(is_stored=True))
        stored = state.with_cell(number, round_.number, round_cell(round_.content))
        yield Step(
            ("session {}: round {} is stored", number, round_.number),
            stored.with_session(number, session._replace(flight=flight)),
        )
    if cluster.mistake is Mistake.WRITER_DIES and session.phase == SessionPhase.ACTIVE:
        dead = session._replace(phase=SessionPhase.WRITER_DEAD)
        yield Step(("session {}: its writer dies", number), state.with_session(number, dead))


def _acknowledge(cluster: Cluster, state: State, number: int, index: int) -> Step:
    session = state.sessions[number]
    round_ = session.flight[index]
    flight = (*session.flight[:index], *session.flight[index + 1 :])
    partitions = tuple(
        _with_batches(held, round_.number, round_.content & mask) if round_.content & mask else held
        for held, mask in zip(session.partitions, cluster.masks, strict=True)
    )
    following = state._replace(answered=state.answered | round_.content).with_session(
        number, session._replace(flight=flight, partitions=partitions)
    )
    wal = state.wals[number]
    is_late = SEAL in wal and SEAL not in wal[round_.number + 1 :]
    violation = "I3: a round is acknowledged at or above the seal" if is_late else ""
    return Step(("session {}: round {} is acknowledged", number, round_.number), following, violation)


def _with_batches(held: Partition, number: int, content: int) -> Partition:
    first_round = number if held.first_round == FREE else held.first_round
    return held._replace(content=held.content | content, first_round=first_round)
