"""GroupListing: the groups for ListGroups, from what the coordinator has in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from ..group.kind import PASSIVATED_NAME
from ..group.offsets import packed_types
from ..messages import ListedGroup
from .directory import Directory
from .partitions import GroupPartition

PIECE = 64
"""Groups per piece; each takes about a microsecond."""


class GroupListing:
    """The groups that exist while the listing is read. Each is in it once, in the state that it has then."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def pieces(self, states: Set[str] = frozenset(), types: Set[str] = frozenset()) -> Iterator[Sequence[ListedGroup]]:
        """The groups in small pieces, which may be empty. Filters are lower case; an empty one matches all groups."""
        for partition in self._directory.partitions:
            group_ids = (*partition.active, *partition.passivated, *partition.quarantined)
            for begin in range(0, len(group_ids), PIECE):
                groups = (self._find(partition, group_id) for group_id in group_ids[begin : begin + PIECE])
                yield [
                    group
                    for group in groups
                    if group is not None
                    and (not states or group.state.lower() in states)
                    and (not types or group.group_type in types)
                ]

    def _find(self, partition: GroupPartition, group_id: str) -> ListedGroup | None:
        """A group as it is now; None if it was deleted, or has not reported its state yet."""
        changed = self._directory.listed.get(group_id)
        if changed is not None:
            return ListedGroup(group_id, changed.protocol_type, changed.state, changed.group_type)
        packed = partition.passivated.get(group_id)
        if packed is not None:
            group_type, protocol_type = packed_types(packed)
            return ListedGroup(group_id, protocol_type, PASSIVATED_NAME, group_type)
        return partition.list_quarantined(group_id)
