"""Messages that actors exchange, and replies to requests. All of them are immutable.

They use Kafka's terms but no wire format. ``runtime/kafka/api`` converts requests of any version to these messages, and
replies to responses of the request's version.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from .errors import ErrorCode
from .group.events import GroupEvent
from .ports import Appended, Entry
from .recorder.now import GroupNow
from .records import GroupType, OffsetRecord, Record


class GroupRequest(typing.Protocol):
    """Any request to a group. Its class has a row in ``actors/group/requests.py``."""

    @property
    def group_id(self) -> str: ...


# Requests to a group -------------------------------------------------------------------------------------------------


class Protocol(NamedTuple):
    """A protocol (assignor) that a member offers, with its subscription in that protocol's format."""

    name: str
    metadata: bytes


class JoinGroup(NamedTuple):
    group_id: str
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str  # as Kafka writes it: "/127.0.0.1"
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    needs_member_id: bool  # v4+: KIP-394
    can_skip_assignment: bool  # v9+: KIP-814
    reason: str | None = None


class JoinedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    """Reply to JoinGroup. ``members`` is set for the leader only. ``limit``: the setting by which it is refused."""

    error: ErrorCode
    member_id: str = ""
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False
    limit: str = ""


class SyncGroup(NamedTuple):
    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...]  # (member id, assignment)


class Synced(NamedTuple):
    """Reply to SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class Heartbeat(NamedTuple):
    """The reply is an ``ErrorCode``."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_id: int


class LeavingMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    reason: str | None = None


class LeaveGroup(NamedTuple):
    """``client_id``, ``client_host``: of the sender, as in JoinGroup; "" if it is not a client of the server."""

    group_id: str
    members: tuple[LeavingMember, ...]
    client_id: str = ""
    client_host: str = ""


class LeftMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    error: ErrorCode


class Left(NamedTuple):
    """Reply to LeaveGroup: one entry per member of the request, unless ``error`` is set."""

    error: ErrorCode
    members: tuple[LeftMember, ...] = ()


class Commit(NamedTuple):
    """One offset to commit. Null ``metadata`` in the request is "" here."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class OffsetCommit(NamedTuple):
    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_id: int  # -1 for a simple consumer
    commits: tuple[Commit, ...]
    retention_ms: int = -1  # v2-v4 only
    supports_group_id_not_found: bool = True  # v9+: GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION
    former_member_id: str = ""  # of a simple consumer: the member that its connection was before


class TxnOffsetCommit(NamedTuple):
    """Offsets that take effect when a transaction commits (KIP-447). Sent by way of ``TransactionsActor``."""

    group_id: str
    transactional_id: str
    producer_id: int
    producer_epoch: int
    member_id: str
    group_instance_id: str | None
    generation_id: int  # -1 before version 3, and from producers without group metadata
    commits: tuple[Commit, ...]
    adds_partition_to_transaction: bool = False  # v5+: no AddOffsetsToTxn precedes it (KIP-890)
    supports_transaction_abortable: bool = True  # v4+: TRANSACTION_ABORTABLE instead of INVALID_TXN_STATE


class Committed(NamedTuple):
    """Reply to OffsetCommit and TxnOffsetCommit. ``errors`` has one code per commit of the request.

    ``durability`` applies to the commits without an error; see ``ports.Appended``. ``limit``: the setting by which
    some or all of the commits are refused.
    """

    errors: tuple[ErrorCode, ...]
    durability: str = ""
    limit: str = ""


class OffsetFetch(NamedTuple):
    """The reply is ``Fetched``. If ``topics`` is None, it contains all offsets of the group.

    The member is not checked if it has neither an id nor an epoch.
    """

    group_id: str
    topics: tuple[tuple[str, tuple[int, ...]], ...] | None
    require_stable: bool = False
    member_id: str | None = None  # v9+: of a member of a group of the consumer protocol
    member_epoch: int = -1


class FetchedOffset(NamedTuple):
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    error: ErrorCode


def no_offset(partition: int) -> FetchedOffset:
    """The reply for a partition without a commit."""
    return FetchedOffset(partition, -1, -1, "", ErrorCode.NONE)


class Fetched(NamedTuple):
    error: ErrorCode
    topics: tuple[tuple[str, tuple[FetchedOffset, ...]], ...] = ()


class OffsetDelete(NamedTuple):
    group_id: str
    topics: tuple[tuple[str, tuple[int, ...]], ...]


class OffsetsDeleted(NamedTuple):
    """Reply to OffsetDelete, when the tombstones are durable. ``topics``: an error code per topic of the request."""

    error: ErrorCode
    topics: tuple[ErrorCode, ...] = ()


class DescribeGroup(NamedTuple):
    group_id: str


class DescribedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class Described(NamedTuple):
    """Reply to DescribeGroup. An unknown group has the state ``Dead``."""

    error: ErrorCode
    group_id: str
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()
    message: str | None = None  # human-readable explanation of the error


class DeleteGroup(NamedTuple):
    """The reply is an ``ErrorCode``, when the tombstones are durable."""

    group_id: str


class ExpireOffsets(NamedTuple):
    """From the coordinator's retention scan to a group: delete expired offsets. The reply comes afterwards.

    ``candidates``: tombstones of the offsets that had expired when the group looked for them; None if it has not yet.
    """

    candidates: tuple[OffsetRecord, ...] | None = None


class DeleteTopicOffsets(NamedTuple):
    """To a group: delete the offsets of deleted topics. The reply comes when that is durable."""

    topics: frozenset[str]


class DescribeEvents(NamedTuple):
    """Only in this process. Heartbeats and commits cause no events."""

    group_id: str


class DescribedEvents(NamedTuple):
    """The last events of a group, oldest first; none if it is not in memory."""

    error: ErrorCode
    events: tuple[GroupEvent, ...] = ()


class ExplainGroup(NamedTuple):
    """Only in this process."""

    group_id: str


class Explained(NamedTuple):
    """``now``: None if the group does not exist."""

    error: ErrorCode
    now: GroupNow | None = None


class DescribeCommits(NamedTuple):
    """Only from this process, or from another node of a cluster."""

    group_id: str


class CommitsDescribed(NamedTuple):
    """``commits``: since the group is in memory. ``topics``: by topic, partitions and when their offset was committed.

    Times are in milliseconds since 1970, of the clock that shows ``now_ms``; -1 if it is not known.
    """

    error: ErrorCode
    commits: int = 0
    topics: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()
    now_ms: int = 0


# Requests to the coordinator -----------------------------------------------------------------------------------------


class ListGroups(NamedTuple):
    """The reply is a ``GroupListing``, or an ErrorCode while partitions are being loaded."""


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    group_type: GroupType


class GroupChanged(NamedTuple):
    """From a group to the coordinator: the fields of its entry in listings have changed."""

    group_id: str
    state: str
    protocol_type: str
    group_type: GroupType


class GroupDeleted(NamedTuple):
    """From a group to the coordinator: the group was deleted, its actor may stop."""

    group_id: str


class PartitionGained(NamedTuple):
    """To the coordinator or TransactionsActor: this node owns a partition from now on, which has to be loaded.

    Numbered as in the log: partitions of transactions follow those of offsets. The reply is True when the partition is
    loading and its content may be sent, False if the message is late: the epoch is not higher than an earlier one.
    """

    partition: int
    epoch: int


class GroupsLoaded(NamedTuple):
    """To the coordinator: some groups of a partition, packed if they can be passivated."""

    partition: int
    epoch: int
    passivated: Mapping[str, bytes]
    active: Mapping[str, Any]  # GroupData


class QuarantinedGroup(NamedTuple):
    """Why a group cannot be restored from its records, and its type as far as they tell."""

    reason: str
    group_type: GroupType


class PartitionLoaded(NamedTuple):
    """To the coordinator or TransactionsActor, after the content of the partition: the partition was read.

    ``quarantined``: groups whose records are invalid, by group id. ``failure``: the reason why the partition could
    not be read or, if it is active, why it cannot be served any more; else empty.
    """

    partition: int
    epoch: int
    quarantined: Mapping[str, QuarantinedGroup] = {}
    failure: str = ""


class PartitionLost(NamedTuple):
    """To the coordinator or TransactionsActor: this node does not own a partition any more.

    The reply comes when everything that belonged to it has stopped.
    """

    partition: int
    epoch: int


class ActorStopped(NamedTuple):
    """To the coordinator: an actor of a partition that is being unloaded has stopped."""

    partition: int


class AllLoaded(NamedTuple):
    """To the coordinator at start: all partitions were read."""


class TopicsDeleted(NamedTuple):
    """To the coordinator: topics were deleted, so groups should delete their offsets.

    ``done`` is called when the groups of all partitions that are owned then have done so, durably.
    """

    topics: frozenset[str]
    done: Callable[[], None] | None = None


class GroupScanned(NamedTuple):
    """To the coordinator: a group has replied to a message of a scan."""

    scan: Any  # GroupScan


class ContinueScan(NamedTuple):
    """From the coordinator to itself: run the next part of a scan, after the turns of other actors."""

    scan: Any  # GroupScan


class ContinueWork(NamedTuple):
    """From an actor to itself: run the next part of its work, after the turns of other actors."""

    run: Callable[[], None]


class SettingsChanged(NamedTuple):
    """To the coordinator: settings have changed, so deadlines that depend on them are scheduled again."""


class FinishLoad(NamedTuple):
    """To a group with many members, from itself, before all other messages: they are restored in steps."""


class Unpack(NamedTuple):
    """To a group with many offsets, as its first message: they are unpacked in steps."""


class Unload(NamedTuple):
    """To a group: its partition was lost or has failed. The reply comes when the actor has stopped."""


class Shutdown(NamedTuple):
    """The server stops: a group replies to parked requests. The reply comes when all earlier messages are handled."""


# Between group and writer --------------------------------------------------------------------------------------------


class Append(NamedTuple):
    """To the OffsetWriterActor. ``context`` is returned with the outcome."""

    owner: Any  # ActorRef
    entry: Entry
    context: Any


class Written(NamedTuple):
    """From the OffsetWriterActor to the owner of an entry."""

    outcome: Appended
    records: tuple[Record, ...]
    context: Any


class PartitionOpened(NamedTuple):
    """To the OffsetWriterActor: entries of a partition get this epoch from now on."""

    partition: int
    epoch: int


class PartitionClosed(NamedTuple):
    """To the OffsetWriterActor: entries of a partition are refused from now on, those that wait too."""

    partition: int


class RoundDone(NamedTuple):
    """From the log to the OffsetWriterActor: one outcome per entry of the round, in the same order."""

    outcomes: Sequence[Appended]


class Flush(NamedTuple):
    """From the OffsetWriterActor to itself, after a turn. ``entry_count``: entries that waited before that turn."""

    entry_count: int
    turns: int


class Drain(NamedTuple):
    """To the OffsetWriterActor. The reply comes when no entry waits and no round is in flight."""
