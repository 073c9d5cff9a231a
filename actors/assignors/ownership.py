"""Which member owns which partition before the assignment, also if members contradict each other.

A member that was away for a while may still claim partitions that others have got meanwhile, so the newest generation
wins. If two members claim a partition in the same generation, both may be working on it, although at most one claim can
be true. Such a partition counts as contested: no member may keep it, and a cooperative assignor assigns it only after
both members have revoked it.
"""

from __future__ import annotations

from collections.abc import Sequence

from .base import TopicPartition
from .user_data import OwnedPartitions

CONTESTED = -1
"""Stands for the index of the owner if two members claim a partition."""


def resolve_owners(claims: Sequence[OwnedPartitions]) -> dict[TopicPartition, int]:
    """The owner's index, or CONTESTED, for each claimed partition, also for those that do not exist.

    ``claims``: by member index.
    """
    owners: dict[TopicPartition, int] = {}
    generations: dict[TopicPartition, int] = {}
    for member, claim in enumerate(claims):
        for partition in set(claim.partitions):  # one member may claim a partition twice
            generation = generations.get(partition)
            if generation is None or claim.generation > generation:
                owners[partition], generations[partition] = member, claim.generation
            elif claim.generation == generation:
                owners[partition] = CONTESTED
    return owners
