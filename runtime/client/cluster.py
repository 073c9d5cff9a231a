"""Cluster: the requests that commands need, each sent to the broker that serves it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from ...actors.assignors.assignment import read_assignment
from ...actors.errors import ErrorCode
from ...actors.records import CLASSIC
from ..settings.address import Address
from .blocking import BlockingConnection
from .errors import RETRIABLE_ERRORS, ClientError, RefusedError, raise_if_error
from .security import NO_SECURITY, ClientSecurity

LATEST, EARLIEST = -1, -2  # special timestamps of ListOffsets
NO_OFFSET = -1
CLIENT_REPLICA_ID = -1  # ListOffsets: the replica id of clients
RETRY_DELAY_S = 0.2
CONSUMER = "consumer"  # the protocol type whose assignments can be read, and the type of groups of KIP-848

TopicPartition = tuple[str, int]
"""A topic and a partition."""

T = TypeVar("T")


class GroupListing(NamedTuple):
    """An entry of the list of groups. Old servers do not return ``state`` and ``group_type``; they are then empty."""

    group_id: str
    state: str
    group_type: str
    protocol_type: str


class MemberDescription(NamedTuple):
    """A member. ``assigned`` is None if the protocol type is not "consumer".

    ``epoch`` and ``target``, the partitions that it shall have: None in a group of the classic protocol.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assigned: tuple[TopicPartition, ...] | None
    epoch: int | None = None
    target: tuple[TopicPartition, ...] | None = None


class GroupEpochs(NamedTuple):
    """Of a group of the consumer protocol (KIP-848). ``assignment``: the one of the target assignment."""

    group: int
    assignment: int


class GroupDescription(NamedTuple):
    """``protocol``: the assignor. ``epochs``: None in a group of the classic protocol."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: Address
    members: tuple[MemberDescription, ...]
    group_type: str = CLASSIC
    epochs: GroupEpochs | None = None


class OffsetAndMetadata(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str


class Broker(NamedTuple):
    node_id: int
    address: Address


class Cluster:
    """Connections to the brokers of a cluster, opened on demand.

    Every method raises ClientError if the server cannot be reached, and RefusedError if it answers with an error.
    """

    def __init__(self, bootstrap: Address, timeout_s: float, security: ClientSecurity = NO_SECURITY) -> None:
        self._timeout_s = timeout_s
        self._security = security
        self._bootstrap = bootstrap
        self._connections: dict[Address, BlockingConnection] = {}

    def close(self) -> None:
        while self._connections:
            self._connections.popitem()[1].close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, name: str, **values: Any) -> Any:
        """Send a request to the bootstrap server. ``name``: kio's name of the API. Returns kio's entity."""
        return self._connection_to(self._bootstrap).ask(name, **values)

    # Groups ----------------------------------------------------------------------------------------------------------

    def groups(self) -> list[GroupListing]:
        """Return all groups, sorted by id."""
        listings: list[GroupListing] = []
        for broker in self._brokers(self.metadata([])).values():
            listings += self._retry(partial(self._list_groups_of, broker.address))
        return sorted(listings)

    def _list_groups_of(self, address: Address) -> list[GroupListing]:
        response = self._connection_to(address).ask("list_groups", states_filter=(), types_filter=())
        raise_if_error(f"list the groups of {address}", response.error_code)
        return [
            GroupListing(
                group.group_id, getattr(group, "group_state", ""), getattr(group, "group_type", ""), group.protocol_type
            )
            for group in response.groups
        ]

    def describe(self, group_id: str) -> GroupDescription:
        """Describe a group. Raises RefusedError with GROUP_ID_NOT_FOUND if it does not exist.

        Raises ClientError for a group of another protocol than the classic and the consumer protocol.
        """
        try:
            return self._describe_classic(group_id)
        except RefusedError as refused:
            group_type = next((group.group_type for group in self.groups() if group.group_id == group_id), CLASSIC)
            if refused.code != ErrorCode.GROUP_ID_NOT_FOUND or group_type.lower() == CLASSIC:
                raise
            if group_type.lower() == CONSUMER:
                return self._describe_consumer_group(group_id)
            raise ClientError(
                f"group '{group_id}' is of type {group_type}, and only those of the types {CLASSIC} and {CONSUMER} can"
                f" be described; use the server's own tools for it"
            ) from refused

    def _describe_classic(self, group_id: str) -> GroupDescription:
        def ask(connection: BlockingConnection) -> GroupDescription:
            response = connection.ask("describe_groups", groups=(group_id,), include_authorized_operations=False)
            [group] = response.groups
            dead = ErrorCode.GROUP_ID_NOT_FOUND if group.group_state == "Dead" else ErrorCode.NONE
            raise_if_error(f"group '{group_id}'", group.error_code or dead)
            is_consumer = group.protocol_type == CONSUMER
            members = tuple(_member(member, is_consumer) for member in group.members)
            return GroupDescription(
                group_id, group.group_state, group.protocol_type, group.protocol_data, connection.address, members
            )

        return self.ask_coordinator(group_id, ask)

    def _describe_consumer_group(self, group_id: str) -> GroupDescription:
        def ask(connection: BlockingConnection) -> GroupDescription:
            request = {"group_ids": (group_id,), "include_authorized_operations": False}
            [group] = connection.ask("consumer_group_describe", **request).groups
            raise_if_error(f"group '{group_id}'", group.error_code)
            return GroupDescription(
                *(group_id, group.group_state, CONSUMER, group.assignor_name, connection.address),
                tuple(map(_consumer, group.members)),
                CONSUMER,
                GroupEpochs(group.group_epoch, group.assignment_epoch),
            )

        return self.ask_coordinator(group_id, ask)

    def delete_group(self, group_id: str) -> None:
        def ask(connection: BlockingConnection) -> None:
            [result] = connection.ask("delete_groups", groups_names=(group_id,)).results
            raise_if_error(f"group '{group_id}'", result.error_code)

        self.ask_coordinator(group_id, ask)

    def remove_members(self, group_id: str, members: Iterable[MemberDescription], reason: str) -> None:
        """Remove members from a group, like Kafka's admin client: static members by their instance id (KIP-345).

        The next heartbeat or commit of a removed member is refused, and it joins again. Members that have already left
        are no error. Needs Kafka 2.4; ``reason`` is for the server's log (KIP-800).
        """
        leaving = [
            {
                "member_id": "" if member.group_instance_id is not None else member.member_id,
                "group_instance_id": member.group_instance_id,
                "reason": reason,
            }
            for member in members
        ]

        def ask(connection: BlockingConnection) -> None:
            response = connection.ask("leave_group", group_id=group_id, members=leaving)
            raise_if_error(f"group '{group_id}'", response.error_code)
            for member in response.members:
                if member.error_code not in (0, ErrorCode.UNKNOWN_MEMBER_ID):
                    name = member.group_instance_id or member.member_id
                    raise_if_error(f"member '{name}' of group '{group_id}'", member.error_code)

        self.ask_coordinator(group_id, ask)

    # Offsets ---------------------------------------------------------------------------------------------------------

    def committed(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return all committed offsets of a group."""

        def ask(connection: BlockingConnection) -> dict[TopicPartition, OffsetAndMetadata]:
            response = connection.ask("offset_fetch", group_id=group_id, topics=None, require_stable=False)
            raise_if_error(f"group '{group_id}'", response.error_code)
            return {
                (topic.name, partition.partition_index): OffsetAndMetadata(
                    partition.committed_offset,
                    getattr(partition, "committed_leader_epoch", -1),
                    partition.metadata or "",
                )
                for topic in response.topics
                for partition in topic.partitions
                if partition.committed_offset != NO_OFFSET
            }

        return dict(sorted(self.ask_coordinator(group_id, ask).items()))

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Commit offsets for a group without members; return the error codes of refused partitions."""
        return self.commit_offsets(
            group_id, {key: OffsetAndMetadata(offset, -1, "") for key, offset in offsets.items()}
        )

    def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, int]:
        """Like ``commit``, with leader epochs and metadata. Servers before Kafka 2.1 ignore leader epochs."""
        topics = _by_topic(offsets, lambda key: _commit_request(key[1], offsets[key]))

        def ask(connection: BlockingConnection) -> dict[TopicPartition, int]:
            response = connection.ask(
                "offset_commit",
                group_id=group_id,
                generation_id_or_member_epoch=-1,
                member_id="",
                group_instance_id=None,
                retention_time=_no_retention(),
                topics=topics,
            )
            return _errors(response)

        return self.ask_coordinator(group_id, ask)

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Delete offsets of a group; return the error codes of refused partitions."""
        topics = _by_topic(partitions, lambda key: {"partition_index": key[1]})

        def ask(connection: BlockingConnection) -> dict[TopicPartition, int]:
            response = connection.ask("offset_delete", group_id=group_id, topics=topics)
            raise_if_error(f"group '{group_id}'", response.error_code)
            return _errors(response)

        return self.ask_coordinator(group_id, ask)

    # Topics ----------------------------------------------------------------------------------------------------------

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic. Raises RefusedError if it does not exist."""
        [entry] = self.metadata([topic]).topics
        raise_if_error(f"topic '{topic}'", entry.error_code)
        return sorted(partition.partition_index for partition in entry.partitions)

    def list_offsets(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        """Return the offsets at a timestamp in milliseconds, or at ``LATEST`` or ``EARLIEST``.

        Partitions that do not exist, or that have no record at or after the timestamp, are left out.
        """
        offsets: dict[TopicPartition, int] = {}
        for address, led in self._by_leader(partitions).items():
            topics = _by_topic(led, lambda key: _list_offsets_request(key[1], timestamp))
            response = self._connection_to(address).ask(
                "list_offsets", replica_id=CLIENT_REPLICA_ID, isolation_level=0, topics=topics
            )
            for topic in response.topics:
                for partition in topic.partitions:
                    if not partition.error_code and partition.offset != NO_OFFSET:
                        offsets[topic.name, partition.partition_index] = partition.offset
        return offsets

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> dict[Address, list[TopicPartition]]:
        requested = set(partitions)
        led: dict[Address, list[TopicPartition]] = defaultdict(list)
        if not requested:
            return led
        metadata = self.metadata(sorted({topic for topic, _ in requested}))
        brokers = self._brokers(metadata)
        for topic in metadata.topics:
            for partition in topic.partitions:
                key = topic.name, partition.partition_index
                if key in requested and partition.leader_id in brokers:
                    led[brokers[partition.leader_id].address].append(key)
        return led

    def metadata(self, topics: Iterable[str] | None) -> Any:
        """The brokers, and topics: those with these names, or all if it is None. Creates none."""
        return self.ask(
            "metadata",
            topics=None if topics is None else tuple({"name": topic, "topic_id": None} for topic in topics),
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )

    # Connections -----------------------------------------------------------------------------------------------------

    @staticmethod
    def _brokers(metadata: Any) -> dict[int, Broker]:
        return {
            broker.node_id: Broker(broker.node_id, Address(broker.host, broker.port)) for broker in metadata.brokers
        }

    def _connection_to(self, address: Address) -> BlockingConnection:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = BlockingConnection(address, self._timeout_s, self._security)
        return connection

    def ask_coordinator(self, group_id: str, ask: Callable[[BlockingConnection], T]) -> T:
        """Send a request to the coordinator of the group."""
        return self._retry(lambda: ask(self._connection_to(self._coordinator(group_id))))

    def _retry(self, ask: Callable[[], T]) -> T:
        """Call ``ask``, and again after temporary errors, until the timeout."""
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            try:
                return ask()
            except RefusedError as refused:
                if refused.code not in RETRIABLE_ERRORS or time.monotonic() + RETRY_DELAY_S > deadline_s:
                    raise
                time.sleep(RETRY_DELAY_S)

    def _coordinator(self, group_id: str) -> Address:
        response = self.ask("find_coordinator", key=group_id, key_type=0)
        raise_if_error(f"group '{group_id}'", response.error_code)
        return Address(response.host, response.port)


def _member(member: Any, is_consumer: bool) -> MemberDescription:
    assigned = read_assignment(member.member_assignment) if is_consumer else None
    instance_id = getattr(member, "group_instance_id", None)
    return MemberDescription(
        member.member_id, instance_id, member.client_id, member.client_host.removeprefix("/"), assigned
    )


def _consumer(member: Any) -> MemberDescription:
    host = member.client_host.removeprefix("/")
    return MemberDescription(
        *(member.member_id, member.instance_id, member.client_id, host),
        _partitions(member.assignment),
        member.member_epoch,
        _partitions(member.target_assignment),
    )


def _partitions(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted((topic.topic_name, number) for topic in assignment.topic_partitions for number in topic.partitions)
    )


def _commit_request(partition: int, offset: OffsetAndMetadata) -> dict[str, Any]:
    return {
        "partition_index": partition,
        "committed_offset": offset.offset,
        "committed_leader_epoch": offset.leader_epoch,
        "committed_metadata": offset.metadata,
    }


def _list_offsets_request(partition: int, timestamp: int) -> dict[str, Any]:
    return {"partition_index": partition, "current_leader_epoch": -1, "timestamp": timestamp}


def _no_retention() -> Any:
    """Return the value for the server's default retention, in OffsetCommit v2 to v4."""
    from datetime import timedelta

    return timedelta(milliseconds=-1)


def _by_topic(
    partitions: Iterable[TopicPartition], make: Callable[[TopicPartition], dict[str, Any]]
) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for key in partitions:
        topics[key[0]].append(make(key))
    return [{"name": name, "partitions": entries} for name, entries in topics.items()]


def _errors(response: Any) -> dict[TopicPartition, int]:
    """Return the errors of a response by partition. Raises RefusedError for a temporary error."""
    refused = {
        (topic.name, partition.partition_index): int(partition.error_code)
        for topic in response.topics
        for partition in topic.partitions
        if partition.error_code
    }
    for (topic, partition), code in refused.items():
        if code in RETRIABLE_ERRORS:
            raise RefusedError(f"{topic}-{partition}", code)
    return refused


def connect_to_first(addresses: Sequence[Address], timeout_s: float, security: ClientSecurity) -> Cluster:
    """The cluster of the first server that can be reached. Raises ClientError with the reasons of all of several."""
    if len(addresses) == 1:
        return Cluster(addresses[0], timeout_s, security)
    reasons = []
    for address in addresses:
        cluster = Cluster(address, timeout_s, security)
        try:
            cluster._connection_to(address)
        except ClientError as error:
            reasons.append(str(error))
        else:
            return cluster
    raise ClientError("; ".join(reasons))
