"""The partitions of ``__consumer_offsets`` with their groups, and the answers for groups that cannot be served.

A server accepts connections before it has loaded all partitions, and may gain and lose partitions while it runs. The
table in ``partition_states`` has the answers to requests for groups of a partition that is not active. Quarantine of a
single group, whose records are invalid, is an extension: in Kafka the whole partition fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..base import ActorRef
from ..error_reply import error_reply
from ..errors import ErrorCode
from ..group.kind import ABSENT_NAME
from ..group.requests import REQUESTS
from ..javahash import offsets_partition
from ..memory import GroupMemory, PackedGroups
from ..messages import Described, DescribeGroup, GroupRequest, ListedGroup, QuarantinedGroup
from .partition_states import PartitionEvent, PartitionLife, PartitionState


class GroupPartition(PartitionLife):
    """One partition and its groups, so that unloading it costs as much as its content.

    ``active``: groups with an actor. ``passivated``: all other groups, as results of ``GroupData.pack``.
    ``quarantined``: groups with invalid records; their records stay in the log.
    """

    __slots__ = ("_when_stopped", "active", "passivated", "quarantined", "stopping")

    def __init__(self, memory: GroupMemory) -> None:
        super().__init__()
        self.active: dict[str, ActorRef] = {}
        self.passivated = PackedGroups(memory)
        self.quarantined: dict[str, QuarantinedGroup] = {}
        self.stopping = 0
        """Groups of the last period of ownership whose actor has not stopped yet."""
        self._when_stopped: list[Callable[[], None]] = []

    @property
    def is_full(self) -> bool:
        """Whether all groups are served."""
        return self.is_active and not self.quarantined

    def take_groups(self) -> dict[str, ActorRef]:
        """Forget all groups. Returns the actors of the active ones, which have to be stopped."""
        active, self.active = self.active, {}
        self.passivated.take_all()
        self.quarantined = {}
        self.stopping += len(active)
        return active

    def when_stopped(self, call: Callable[[], None]) -> None:
        """Call when no actor of an earlier period of ownership is left, so that its late messages reach nobody."""
        if self.stopping:
            self._when_stopped.append(call)
        else:
            call()

    def count_stopped(self) -> None:
        """An actor has stopped."""
        self.stopping -= 1
        while self._when_stopped and not self.stopping:
            self._when_stopped.pop(0)()

    def error_reply_for(self, request: GroupRequest) -> Any:
        """The error reply to a request; None if its group is served."""
        if self.is_loading:
            return error_reply(request, REQUESTS[type(request)].error_while_loading)
        error = self.answers.request
        if error is not ErrorCode.NONE:
            return error_reply(request, error)
        quarantine = self.quarantined.get(request.group_id)
        if quarantine is None:
            return None
        if isinstance(request, DescribeGroup):
            return Described(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, request.group_id, ABSENT_NAME, message=quarantine.reason
            )
        return error_reply(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def list_quarantined(self, group_id: str) -> ListedGroup | None:
        """The entry of a quarantined group in listings."""
        quarantine = self.quarantined.get(group_id)
        return None if quarantine is None else ListedGroup(group_id, "", ABSENT_NAME, quarantine.group_type)


class GroupPartitions(list[GroupPartition]):
    """All partitions by number. ``is_full``: all groups of all partitions are served; the fast path of requests.

    ``memory``: the bytes of all groups.
    """

    def __init__(self, count: int) -> None:
        self.memory = memory = GroupMemory()
        super().__init__(GroupPartition(memory) for _ in range(count))
        self.is_full = False
        self.passivated = PassivatedGroups(self)

    def number_of(self, group_id: str) -> int:
        """The number of the partition that a group belongs to."""
        return offsets_partition(group_id, len(self))

    def of(self, group_id: str) -> GroupPartition:
        """The partition that a group belongs to."""
        return self[offsets_partition(group_id, len(self))]

    def apply(self, number: int, event: PartitionEvent, epoch: int, failure: str = "") -> bool:
        """See ``PartitionLife.apply``."""
        is_applied = self[number].apply(event, epoch, failure)
        self.update_is_full()
        return is_applied

    def update_is_full(self) -> None:
        self.is_full = all(partition.is_full for partition in self)

    def count_in(self, state: PartitionState) -> int:
        """How many partitions are in a state."""
        return sum(partition.state is state for partition in self)

    @property
    def listing_error(self) -> ErrorCode:
        """The error of ListGroups as a whole; NONE if the groups of the active partitions are listed."""
        return max((partition.answers.listing for partition in self), default=ErrorCode.NONE)

    @property
    def quarantined(self) -> dict[str, QuarantinedGroup]:
        """All quarantined groups."""
        return {group_id: quarantine for partition in self for group_id, quarantine in partition.quarantined.items()}


class PassivatedGroups(Mapping[str, bytes]):
    """All passivated groups: results of ``GroupData.pack`` by group id."""

    def __init__(self, partitions: GroupPartitions) -> None:
        self._partitions = partitions

    def __getitem__(self, group_id: str) -> bytes:
        return self._partitions.of(group_id).passivated[group_id]

    def __iter__(self) -> Iterator[str]:
        return (group_id for partition in self._partitions for group_id in partition.passivated)

    def __len__(self) -> int:
        return sum(len(partition.passivated) for partition in self._partitions)
