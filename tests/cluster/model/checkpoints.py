"""Checkpoints: batches go to a segment, which the next manifest names. A compaction changes segments only."""

from __future__ import annotations

from collections.abc import Iterator

from .mistakes import Mistake
from .scopes import Cluster
from .search import Step
from .state import FREE, Manifest, Partition, PartitionPhase, State

WRITTEN_TWICE = "I5: a manifest version is written twice"


def checkpoint_steps(cluster: Cluster, state: State, number: int, partition: int) -> Iterator[Step]:
    """Those of one partition in one session."""
    held = state.sessions[number].partitions[partition]
    if held.phase == PartitionPhase.SERVING and state.budgets.checkpoints and held.first_round != FREE:
        yield _begin(cluster, state, number, partition)
    elif held.phase == PartitionPhase.CHECKPOINT:
        yield from _create(cluster, state, number, partition)


def _begin(cluster: Cluster, state: State, number: int, partition: int) -> Step:
    session = state.sessions[number]
    held = session.partitions[partition]
    is_early = cluster.mistake is Mistake.DROPPED_EARLY
    begun = held._replace(
        phase=PartitionPhase.CHECKPOINT,
        saved=held.content,
        next_round=next_round(cluster, state, number),
        first_round=FREE if is_early else held.first_round,
    )
    return Step(
        ("session {}: writes a segment of partition {}", number, partition),
        state.spent("checkpoints").with_partition(number, partition, begun),
    )


def next_round(cluster: Cluster, state: State, number: int) -> int:
    """All rounds below are stored."""
    session = state.sessions[number]
    return session.next_number if cluster.mistake is Mistake.NEXT_NUMBER_NAMED else session.stored_number


def _create(cluster: Cluster, state: State, number: int, partition: int) -> Iterator[Step]:
    held, newest = state.sessions[number].partitions[partition], state.manifests[partition]
    is_next = newest.version == held.manifest.version
    if is_next or cluster.mistake is Mistake.BLIND_MANIFESTS:
        created = Manifest(held.manifest.version + 1, held.epoch, held.saved, number + 1)
        yield Step(
            ("session {}: creates manifest {} of partition {}", number, created.version, partition),
            state.with_manifest(partition, created).with_partition(number, partition, _written(held, created)),
            "" if is_next else WRITTEN_TWICE,
        )
    elif newest.epoch == held.epoch or cluster.mistake is Mistake.MANIFEST_REREAD:
        yield Step(
            (
                "session {}: manifest {} of partition {} is another's, writes a new segment",
                number,
                newest.version,
                partition,
            ),
            state.with_partition(number, partition, held._replace(manifest=newest)),
        )
    else:
        yield Step(
            ("session {}: manifest {} of partition {} has another epoch", number, newest.version, partition),
            state.fenced(number),
        )


def _written(held: Partition, created: Manifest) -> Partition:
    first_round = FREE if held.content == held.saved else held.next_round
    return Partition(PartitionPhase.SERVING, held.epoch, created, held.content, first_round)


def compaction_steps(cluster: Cluster, state: State) -> Iterator[Step]:
    """A compaction replaces segments: the next manifest has the same content, epoch and tail.

    Anybody may do it: no session, so no tombstone fences it.
    """
    if state.compaction:
        yield _create_compacted(cluster, state)
    elif state.budgets.compactions:
        for partition, newest in enumerate(state.manifests):
            read = newest if cluster.mistake is Mistake.COMPACTION_OF_OLD_MANIFEST else (newest.version,)
            yield Step(
                ("compaction: reads manifest {} of partition {}", newest.version, partition),
                state.spent("compactions")._replace(compaction=(partition, *read)),
            )


def _create_compacted(cluster: Cluster, state: State) -> Step:
    partition, version, *read = state.compaction
    newest, ended = state.manifests[partition], state._replace(compaction=())
    following = newest._replace(version=newest.version + 1)
    if newest.version != version and cluster.mistake is not Mistake.COMPACTION_OF_OLD_MANIFEST:
        return Step(("compaction: lost manifest {} of partition {}", version + 1, partition), ended)
    if cluster.mistake is Mistake.COMPACTION_OF_OLD_MANIFEST:
        following = Manifest(newest.version + 1, *read)
    if cluster.mistake is Mistake.COMPACTION_DROPS_TAIL:
        following = following._replace(tail=0)
    return Step(
        ("compaction: creates manifest {} of partition {}", following.version, partition),
        ended.with_manifest(partition, following),
    )
