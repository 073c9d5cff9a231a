"""The messages that actors exchange, and the answers that go back to the front door. All of them are immutable.

They speak Kafka's language but not its bytes: the front door turns requests of any version into these, and answers
into the version that was asked in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .errors import ErrorCode
from .ports import Appended, Entry
from .records import Record

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
    """Answer to JoinGroup. ``members`` is filled for the leader only."""

    error: ErrorCode
    member_id: str = ""
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class SyncGroup(NamedTuple):
    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...]  # (member id, assignment)


class Synced(NamedTuple):
    """Answer to SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class Heartbeat(NamedTuple):
    """Answered with a bare ``ErrorCode``."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_id: int


class Leaving(NamedTuple):
    member_id: str
    group_instance_id: str | None
    reason: str | None = None


class LeaveGroup(NamedTuple):
    group_id: str
    members: tuple[Leaving, ...]


class LeftMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    error: ErrorCode


class Left(NamedTuple):
    """Answer to LeaveGroup: one entry for each identity asked for, unless ``error`` is set."""

    error: ErrorCode
    members: tuple[LeftMember, ...] = ()


class Commit(NamedTuple):
    """One offset to commit. ``metadata`` null on the wire is "" here."""

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
    tells_unknown_group: bool = True  # v9+: GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION


class TxnOffsetCommit(NamedTuple):
    """Offsets that count when a transaction commits. It passes the transactions, then goes to its group (KIP-447)."""

    group_id: str
    transactional_id: str
    producer_id: int
    producer_epoch: int
    member_id: str
    group_instance_id: str | None
    generation_id: int  # -1 from versions before 3, and from producers without a group's metadata
    commits: tuple[Commit, ...]
    joins_transaction: bool = False  # v5+: there was no AddOffsetsToTxn before it (KIP-890)
    tells_abortable: bool = True  # v4+: TRANSACTION_ABORTABLE instead of INVALID_TXN_STATE


class Committed(NamedTuple):
    """Answer to OffsetCommit and TxnOffsetCommit: ``errors`` runs parallel to the request's commits.

    ``durability``: of those without an error, as in ``ports.Appended``.
    """

    errors: tuple[ErrorCode, ...]
    durability: str = ""


class OffsetFetch(NamedTuple):
    """Answered with ``Fetched``. ``topics`` None asks for everything that the group has."""

    group_id: str
    topics: tuple[tuple[str, tuple[int, ...]], ...] | None
    require_stable: bool = False


class FetchedOffset(NamedTuple):
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    error: ErrorCode


class Fetched(NamedTuple):
    error: ErrorCode
    topics: tuple[tuple[str, tuple[FetchedOffset, ...]], ...] = ()


class OffsetDelete(NamedTuple):
    group_id: str
    topics: tuple[tuple[str, tuple[int, ...]], ...]


class OffsetsDeleted(NamedTuple):
    """Answer to OffsetDelete, when the tombstones are durable: an error for each of the request's topics."""

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
    """Answer to DescribeGroup. An unknown group is described with the state ``Dead``."""

    error: ErrorCode
    group_id: str
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()
    message: str | None = None  # what the error means, for people


class DeleteGroup(NamedTuple):
    """Answered with a bare ``ErrorCode``, when the tombstones are durable."""

    group_id: str


class ExpireOffsets(NamedTuple):
    """From the coordinator's sweep to a group, now and then: what is old goes. Answered when that is durable."""


class ForgetTopics(NamedTuple):
    """To a group: topics are gone, and their offsets go with them. Answered when that is durable."""

    topics: frozenset[str]


GroupRequest = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | OffsetCommit
    | TxnOffsetCommit
    | OffsetFetch
    | OffsetDelete
    | DescribeGroup
    | DeleteGroup
)

# Requests to the coordinator -----------------------------------------------------------------------------------------


class ListGroups(NamedTuple):
    """Answered with a tuple of ``ListedGroup``. Filters are lower case; empty means all."""

    states: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    group_type: str


class GroupChanged(NamedTuple):
    """A group tells the coordinator what a listing shows of it."""

    group_id: str
    state: str
    protocol_type: str


class GroupGone(NamedTuple):
    """A group was deleted; its actor may stop."""

    group_id: str


class GroupsLoaded(NamedTuple):
    """To the coordinator at start: some groups of a partition, packed or, if they cannot sleep, as they are."""

    asleep: Mapping[str, bytes]
    awake: Mapping[str, Any]  # GroupData


class PartitionLoaded(NamedTuple):
    """To the coordinator at start, behind its groups: a partition of the log was read.

    ``quarantined``: groups that could not be made from their records, and why. ``failure``: why the partition could not
    be read; empty if it was.
    """

    partition: int
    quarantined: Mapping[str, str]
    failure: str = ""


class AllLoaded(NamedTuple):
    """To the coordinator at start: no partition is left to be read."""


class TopicsDeleted(NamedTuple):
    """To the coordinator: these topics are gone, and with them what groups have committed of them."""

    topics: frozenset[str]


class Walked(NamedTuple):
    """To the coordinator: one of the groups that a walk through all has asked is done."""

    walk: Any  # Walk


class WalkOn(NamedTuple):
    """The coordinator to itself: a walk's next slice, after everybody else's turns."""

    walk: Any  # Walk


class SettingsChanged(NamedTuple):
    """To the coordinator: whatever it has scheduled by a setting is to be scheduled anew."""


class Shutdown(NamedTuple):
    """The end is near: a group answers who is parked. Answered when all that came before has been handled."""


# Between group and writer --------------------------------------------------------------------------------------------


class Append(NamedTuple):
    """To the OffsetWriterActor. ``context`` comes back with the outcome."""

    owner: Any  # ActorRef
    entry: Entry
    context: Any


class Written(NamedTuple):
    """From the OffsetWriterActor to the owner of an entry."""

    outcome: Appended
    records: tuple[Record, ...]
    context: Any


class RoundDone(NamedTuple):
    """From the Log port to the OffsetWriterActor: outcomes in the order of the round's entries."""

    outcomes: Sequence[Appended]


class Flush(NamedTuple):
    """The OffsetWriterActor to itself: a turn is over; ``gathered`` says how much there was before it."""

    gathered: int
    turns: int


class Drain(NamedTuple):
    """To the OffsetWriterActor: answered when nothing is on its way to the log any more."""
