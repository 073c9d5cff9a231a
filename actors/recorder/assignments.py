"""What moved from one assignment to the next. Pure; it may take long, so it does not run in the turn of a group.

Assignments of the classic protocol are bytes of clients, which may be anything.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from ..assignors.assignment import read_topic_partitions
from ..group.rebalance_notes import Assigned, Partition
from .record import NAME_CHARACTERS_MAX, NAMES_MAX, Moves

ASSIGNMENT_BYTES_MAX = 1024 * 1024
PARTITIONS_MAX = 250_000
"""Larger assignments are not compared."""

VERSION_BYTES = 2

Label = tuple[str, int]
"""A topic, or the id of a topic in hexadecimal digits, and a partition."""


def moves_between(before: Assigned | None, after: Assigned, duration_ms: int) -> Moves | None:
    """``before``: None if the group had no assignment. ``duration_ms``: of the rebalance.

    None if an assignment is too large, or not in the format of Kafka's consumers, or if the group has changed its
    protocol: one of them has the names of topics, the other has their ids.
    """
    if before is not None and (before.targets is None) != (after.targets is None):
        return None
    owners = owners_of(after)
    earlier = {} if before is None else owners_of(before)
    if owners is None or earlier is None:
        return None
    moved = sorted(label for label, owner in earlier.items() if owners.get(label) != owner)
    stopped = len(moved) if is_cooperative(after.protocol) else len(earlier)
    return Moves(
        _counts(after, owners),
        len(owners),
        len(moved),
        len(owners.keys() - earlier.keys()),
        tuple((topic[:NAME_CHARACTERS_MAX], number) for topic, number in moved[:NAMES_MAX]),
        None if after.targets is not None else stopped * duration_ms,
        after.member_count - len(set(owners.values())),
    )


def is_cooperative(protocol: str) -> bool:
    """Whether members keep their partitions in a rebalance, by the name of the assignor, as in Kafka's clients."""
    return protocol.startswith("cooperative")


def owners_of(assigned: Assigned) -> dict[Label, str] | None:
    """The owner of each partition: an instance id, or a member id. None: see ``moves_between``."""
    if assigned.targets is not None:
        return _owners_of_targets(assigned.targets)
    if sum(len(member.assignment) for member in assigned.members) > ASSIGNMENT_BYTES_MAX:
        return None
    owners: dict[Label, str] = {}
    for member in assigned.members:
        labels = _read(member.assignment)
        if labels is None:
            return None
        owners.update(dict.fromkeys(labels, member.group_instance_id or member.member_id))
    return owners


def _owners_of_targets(targets: Mapping[str, tuple[Partition, ...]]) -> dict[Label, str] | None:
    if sum(map(len, targets.values())) > PARTITIONS_MAX:
        return None
    return {
        (topic_id.hex(), number): member_id
        for member_id, partitions in targets.items()
        for topic_id, number in partitions
    }


def _read(assignment: bytes) -> list[Label] | None:
    if not assignment:
        return []
    try:
        return read_topic_partitions(assignment, VERSION_BYTES)[0]
    except (struct.error, ValueError):
        return None


def _counts(assigned: Assigned, owners: Mapping[Label, str]) -> tuple[tuple[str, int], ...]:
    """How many partitions each member has, of the members with the most."""
    if assigned.targets is not None:
        counts = {member_id: len(partitions) for member_id, partitions in assigned.targets.items()}
    else:
        counts = dict.fromkeys((member.group_instance_id or member.member_id for member in assigned.members), 0)
        for owner in owners.values():
            counts[owner] += 1
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:NAMES_MAX]
    return tuple((owner[:NAME_CHARACTERS_MAX], count) for owner, count in most)
