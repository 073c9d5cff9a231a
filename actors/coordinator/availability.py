"""Groups that cannot be asked: their partition of the log is still being read, or what the log says makes no sense.

A server listens before it has read everything. Until a partition is there its groups are refused in a way that makes
clients come again; the others are served. Source of the answers: Kafka's CoordinatorRuntime, where a partition is
LOADING or FAILED. That one group alone can be set aside is ours: there the whole partition fails.
"""

from __future__ import annotations

from typing import Any

from ..errors import ErrorCode
from ..group.states import State
from ..javahash import offsets_partition
from ..messages import Described, DescribeGroup, GroupRequest, Heartbeat, ListedGroup
from ..refusal import refusal


class Unserved:
    """False as long as all are served, which is nearly always: then nobody need look closer."""

    def __init__(self) -> None:
        self.loading: set[int] = set()
        self.failed: dict[int, str] = {}
        """Partitions that could not be read, and why."""
        self.quarantined: dict[str, str] = {}
        """Groups of which a record could not be read, and why. Their records stay in the log, whatever they are."""

    def __bool__(self) -> bool:
        return bool(self.loading or self.failed or self.quarantined)

    def refuse(self, request: GroupRequest, partitions: int) -> Any:
        """What a request to a group hears; None if the group is served. ``partitions``: how many the log has."""
        partition = offsets_partition(request.group_id, partitions)
        if partition in self.loading:
            if isinstance(request, Heartbeat):
                return ErrorCode.NONE  # it is not known whether it is right, and no reason to rebalance
            return refusal(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if partition in self.failed:
            return refusal(request, ErrorCode.NOT_COORDINATOR)
        reason = self.quarantined.get(request.group_id)
        if reason is None:
            return None
        if isinstance(request, DescribeGroup):
            dead = State.DEAD.value
            return Described(ErrorCode.COORDINATOR_NOT_AVAILABLE, request.group_id, dead, message=reason)
        return refusal(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def listed(self) -> list[ListedGroup]:
        """The groups that were set aside, as a listing shows them."""
        return [ListedGroup(group_id, "", State.DEAD.value, "classic") for group_id in self.quarantined]
