"""Loads: the newest manifest, the tail up to its seal as a segment, the next manifest; then the partition is served."""

from __future__ import annotations

from collections.abc import Iterator

from .checkpoints import WRITTEN_TWICE
from .mistakes import Mistake
from .rounds import SERVING
from .scopes import Cluster
from .search import Step
from .state import FREE, NOT_HELD, Manifest, Partition, PartitionPhase, SessionPhase, State, read_tail


def load_steps(cluster: Cluster, state: State, number: int, partition: int) -> Iterator[Step]:
    """Those of one partition in one session."""
    phase = state.sessions[number].partitions[partition].phase
    if phase == PartitionPhase.NONE:
        yield from _read_manifest(state, number, partition)
    elif phase == PartitionPhase.READING:
        yield _read_tail(cluster, state, number, partition)
    elif phase == PartitionPhase.TAIL_READ:
        yield _create(cluster, state, number, partition)
    elif phase == PartitionPhase.CREATED:
        yield from _look(cluster, state, number, partition)


def _read_manifest(state: State, number: int, partition: int) -> Iterator[Step]:
    """A manifest of a higher epoch says that another session has owned the partition since."""
    session, newest = state.sessions[number], state.manifests[partition]
    if session.phase != SessionPhase.ACTIVE or session.register.owners[partition] != number:
        return
    epoch = session.register.epochs[partition]
    if newest.epoch <= epoch:
        yield Step(
            ("session {}: loads partition {}, reads manifest {}", number, partition, newest.version),
            state.with_partition(number, partition, Partition(PartitionPhase.READING, epoch, newest)),
        )


def _read_tail(cluster: Cluster, state: State, number: int, partition: int) -> Step:
    held = state.sessions[number].partitions[partition]
    content, tail = held.manifest.content, held.manifest.tail - 1
    if tail >= 0 and (tail != number or cluster.mistake is Mistake.OWN_TAIL_READ):
        rounds, end, is_sealed = read_tail(state.wals[tail], state.floors[tail])
        if not is_sealed and cluster.mistake is not Mistake.NO_SEAL:
            return Step(
                ("session {}: round {} of session {} is missing, loads {} again", number, end, tail, partition),
                state.with_partition(number, partition, NOT_HELD),
            )
        content |= rounds & cluster.masks[partition]
    read = held._replace(phase=PartitionPhase.TAIL_READ, content=content)
    return Step(
        ("session {}: writes the tail of partition {} as a segment", number, partition),
        state.with_partition(number, partition, read),
    )


def _create(cluster: Cluster, state: State, number: int, partition: int) -> Step:
    held, newest = state.sessions[number].partitions[partition], state.manifests[partition]
    is_next = newest.version == held.manifest.version
    session = state.sessions[number]
    if session.phase == SessionPhase.ABSENT and not is_next:
        return Step(("session {}: manifest {} is another's", number, newest.version), state.fenced(number))
    if not is_next and cluster.mistake is not Mistake.BLIND_MANIFESTS:
        return Step(
            ("session {}: lost manifest {} of partition {}", number, newest.version, partition),
            state.with_partition(number, partition, NOT_HELD),
        )
    manifest = Manifest(held.manifest.version + 1, held.epoch, held.content, number + 1)
    created = held._replace(phase=PartitionPhase.CREATED, manifest=manifest)
    if session.phase != SessionPhase.ACTIVE:
        created = NOT_HELD
    return Step(
        ("session {}: creates manifest {} of partition {}", number, manifest.version, partition),
        state.with_manifest(partition, manifest).with_partition(number, partition, created),
        "" if is_next else WRITTEN_TWICE,
    )


def _look(cluster: Cluster, state: State, number: int, partition: int) -> Iterator[Step]:
    if state.has_tombstone(number):
        yield Step(("session {}: finds its tombstone", number), state.fenced(number))
        return
    held = state.sessions[number].partitions[partition]
    serving = Partition(PartitionPhase.SERVING, held.epoch, held.manifest, held.content, FREE)
    yield Step(
        ("session {}: serves partition {}", number, partition),
        state.with_partition(number, partition, serving),
        _broken_promise(cluster, state, number, partition),
    )
    if state.budgets.failed_loads:
        yield Step(
            ("session {}: its load of partition {} fails after the manifest", number, partition),
            state.spent("failed_loads").with_partition(number, partition, NOT_HELD),
        )


def _broken_promise(cluster: Cluster, state: State, number: int, partition: int) -> str:
    held = state.sessions[number].partitions[partition]
    if state.answered & cluster.masks[partition] & ~held.content:
        return "I1: the owner serves a partition without an acknowledged commit"
    for other, session in enumerate(state.sessions):
        if other != number and session.partitions:
            rival = session.partitions[partition]
            if rival.phase in SERVING and rival.epoch == held.epoch:
                return "I3: two sessions serve one epoch of a partition"
    return ""
