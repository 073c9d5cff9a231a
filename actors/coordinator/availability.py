"""Groups that cannot be served: their partition is still being loaded, or their records are invalid.

A server accepts connections before it has loaded all partitions. Until a partition is loaded, requests to its groups
get an error that makes clients retry; groups of loaded partitions are served. The error codes are those of Kafka's
CoordinatorRuntime, where a partition is LOADING or FAILED. Quarantine of a single group is an extension: in Kafka the
whole partition fails.
"""

from __future__ import annotations

from typing import Any

from ..error_reply import error_reply
from ..errors import ErrorCode
from ..group.kind import ABSENT_NAME, CLASSIC
from ..group.requests import REQUESTS
from ..javahash import offsets_partition
from ..messages import Described, DescribeGroup, GroupRequest, ListedGroup


class Availability:
    """The partitions and groups that are not served. ``is_full`` is the fast path: all are served."""

    def __init__(self) -> None:
        self.loading: set[int] = set()
        self.failed: dict[int, str] = {}
        """Partitions that could not be read, with the reason."""
        self.quarantined: dict[str, str] = {}
        """Groups with invalid records, with the reason. Their records stay in the log."""

    @property
    def is_full(self) -> bool:
        """Whether all groups are served."""
        return not (self.loading or self.failed or self.quarantined)

    def error_reply_for(self, request: GroupRequest, partitions: int) -> Any:
        """The error reply to a request; None if its group is served. ``partitions``: how many the log has."""
        partition = offsets_partition(request.group_id, partitions)
        if partition in self.loading:
            return error_reply(request, REQUESTS[type(request)].error_while_loading)
        if partition in self.failed:
            return error_reply(request, ErrorCode.NOT_COORDINATOR)
        reason = self.quarantined.get(request.group_id)
        if reason is None:
            return None
        if isinstance(request, DescribeGroup):
            return Described(ErrorCode.COORDINATOR_NOT_AVAILABLE, request.group_id, ABSENT_NAME, message=reason)
        return error_reply(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def listed(self) -> list[ListedGroup]:
        """The quarantined groups, for ListGroups."""
        return [ListedGroup(group_id, "", ABSENT_NAME, CLASSIC) for group_id in self.quarantined]
