"""Who holds which partition before it is shared out anew, when members contradict each other.

A member that was away for a while may still claim what others have got meanwhile. The newest generation is believed.
Two claims of one generation cannot both be true, and neither is believed: somebody may work on the partition, so it
counts as held by nobody who could keep it, and a cooperative assignor gives it to nobody before both have let go.
"""

from __future__ import annotations

from collections.abc import Sequence

from .base import Partition
from .user_data import Claims

CONTESTED = -1
"""Stands for a member's place where two claim a partition."""


def holders(claims: Sequence[Claims]) -> dict[Partition, int]:
    """Each claimed partition, be it there or not, with the place of the member that holds it, or CONTESTED.

    ``claims`` are by the members' places.
    """
    found: dict[Partition, int] = {}
    since: dict[Partition, int] = {}
    for place, claim in enumerate(claims):
        for partition in set(claim.partitions):  # once, however often one member claims it
            seen = since.get(partition)
            if seen is None or claim.generation > seen:
                found[partition], since[partition] = place, claim.generation
            elif claim.generation == seen:
                found[partition] = CONTESTED
    return found
