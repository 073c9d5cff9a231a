"""Cluster: the few things that commands want to know and to change, each asked of the broker whose business it is."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from ...actors.errors import ErrorCode
from ..settings.table import Address
from .assignment import read_assignment
from .blocking import BlockingConnection
from .errors import TRY_AGAIN, ClientError, Refused

LATEST, EARLIEST = -1, -2  # the timestamps of ListOffsets that are none
NO_OFFSET = -1
CLIENTS = -1  # ListOffsets: the replica id of one who is no broker
PAUSE_S = 0.2  # before a coordinator is looked for again
CONSUMER = "consumer"  # the protocol type whose assignments can be read
CLASSIC = "classic"

Place = tuple[str, int]
"""A topic and a partition."""

T = TypeVar("T")


class Group(NamedTuple):
    """A line of the list. ``state`` and ``group_type`` are empty where the server is too old to say."""

    group_id: str
    state: str
    group_type: str
    protocol_type: str


class Member(NamedTuple):
    """``assigned`` is None where the group's protocol is not that of consumers."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assigned: tuple[Place, ...] | None


class Description(NamedTuple):
    group_id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: Address
    members: tuple[Member, ...]


class Offset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str


class Broker(NamedTuple):
    node_id: int
    address: Address


class Cluster:
    """Connections to the brokers of a cluster, made when they are needed; ``close`` ends them.

    Every method raises ClientError where the server is away, and Refused where it says no.
    """

    def __init__(self, bootstrap: Address, timeout_s: float) -> None:
        self._timeout_s = timeout_s
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

    # Groups ----------------------------------------------------------------------------------------------------------

    def groups(self) -> list[Group]:
        """All groups, by name."""
        found: list[Group] = []
        for broker in self._brokers(self._metadata([])).values():
            found += self._patiently(partial(self._groups_of, broker.address))
        return sorted(found)

    def _groups_of(self, address: Address) -> list[Group]:
        answer = self._connection_to(address).ask("list_groups", states_filter=(), types_filter=())
        _check(f"list the groups of {address}", answer.error_code)
        return [
            Group(one.group_id, getattr(one, "group_state", ""), getattr(one, "group_type", ""), one.protocol_type)
            for one in answer.groups
        ]

    def describe(self, group_id: str) -> Description:
        """Raises Refused with GROUP_ID_NOT_FOUND for a group that is not there.

        Groups of a newer protocol (KIP-848) cannot be described this way: that is a ClientError that says so.
        """

        def ask(connection: BlockingConnection) -> Description:
            answer = connection.ask("describe_groups", groups=(group_id,), include_authorized_operations=False)
            [group] = answer.groups
            dead = ErrorCode.GROUP_ID_NOT_FOUND if group.group_state == "Dead" else ErrorCode.NONE
            _check(f"group '{group_id}'", group.error_code or dead)
            is_consumer = group.protocol_type == CONSUMER
            members = tuple(_member(one, is_consumer) for one in group.members)
            return Description(
                group_id, group.group_state, group.protocol_type, group.protocol_data, connection.address, members
            )

        try:
            return self._at_coordinator(group_id, ask)
        except Refused as refused:
            other = next((one.group_type for one in self.groups() if one.group_id == group_id), CLASSIC)
            if refused.code != ErrorCode.GROUP_ID_NOT_FOUND or other.lower() == CLASSIC:
                raise
            raise ClientError(
                f"group '{group_id}' is of type {other}, and only those of type {CLASSIC} can be described; "
                f"use the server's own tools for it"
            ) from refused

    def delete_group(self, group_id: str) -> None:
        def ask(connection: BlockingConnection) -> None:
            [result] = connection.ask("delete_groups", groups_names=(group_id,)).results
            _check(f"group '{group_id}'", result.error_code)

        self._at_coordinator(group_id, ask)

    def remove_members(self, group_id: str, members: Iterable[Member], reason: str) -> None:
        """Take members out of their group, as Kafka's admin client does: a static one by its instance id (KIP-345).

        They notice with their next heartbeat or commit, which is refused, and join anew. Who is gone already is no
        error. Needs Kafka 2.4; ``reason`` is for the server's log (KIP-800).
        """
        leaving = [
            {
                "member_id": "" if one.group_instance_id is not None else one.member_id,
                "group_instance_id": one.group_instance_id,
                "reason": reason,
            }
            for one in members
        ]

        def ask(connection: BlockingConnection) -> None:
            answer = connection.ask("leave_group", group_id=group_id, members=leaving)
            _check(f"group '{group_id}'", answer.error_code)
            for one in answer.members:
                if one.error_code not in (0, ErrorCode.UNKNOWN_MEMBER_ID):
                    _check(f"member '{one.group_instance_id or one.member_id}' of group '{group_id}'", one.error_code)

        self._at_coordinator(group_id, ask)

    # Offsets ---------------------------------------------------------------------------------------------------------

    def committed(self, group_id: str) -> dict[Place, Offset]:
        """Every offset that the group has, by topic and partition."""

        def ask(connection: BlockingConnection) -> dict[Place, Offset]:
            answer = connection.ask("offset_fetch", group_id=group_id, topics=None, require_stable=False)
            _check(f"group '{group_id}'", answer.error_code)
            return {
                (topic.name, one.partition_index): Offset(
                    one.committed_offset, getattr(one, "committed_leader_epoch", -1), one.metadata or ""
                )
                for topic in answer.topics
                for one in topic.partitions
                if one.committed_offset != NO_OFFSET
            }

        return dict(sorted(self._at_coordinator(group_id, ask).items()))

    def commit(self, group_id: str, offsets: Mapping[Place, int]) -> dict[Place, int]:
        """Write offsets for a group without members; returns what was refused, with the error code."""
        return self.commit_offsets(group_id, {place: Offset(offset, -1, "") for place, offset in offsets.items()})

    def commit_offsets(self, group_id: str, offsets: Mapping[Place, Offset]) -> dict[Place, int]:
        """The same with leader epochs and metadata. Servers before Kafka 2.1 know no leader epochs."""
        topics = _by_topic(offsets, lambda place: _commit_of(place[1], offsets[place]))

        def ask(connection: BlockingConnection) -> dict[Place, int]:
            answer = connection.ask(
                "offset_commit",
                group_id=group_id,
                generation_id_or_member_epoch=-1,
                member_id="",
                group_instance_id=None,
                retention_time=_no_retention(),
                topics=topics,
            )
            return _errors(answer)

        return self._at_coordinator(group_id, ask)

    def delete_offsets(self, group_id: str, places: Iterable[Place]) -> dict[Place, int]:
        """Let a group forget offsets; returns what was refused, with the error code."""
        topics = _by_topic(places, lambda place: {"partition_index": place[1]})

        def ask(connection: BlockingConnection) -> dict[Place, int]:
            answer = connection.ask("offset_delete", group_id=group_id, topics=topics)
            _check(f"group '{group_id}'", answer.error_code)
            return _errors(answer)

        return self._at_coordinator(group_id, ask)

    # Topics ----------------------------------------------------------------------------------------------------------

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic. Raises Refused where there is no such topic."""
        [found] = self._metadata([topic]).topics
        _check(f"topic '{topic}'", found.error_code)
        return sorted(one.partition_index for one in found.partitions)

    def list_offsets(self, places: Iterable[Place], timestamp: int) -> dict[Place, int]:
        """The offsets at a time, in milliseconds, or ``LATEST`` or ``EARLIEST``.

        Places that do not exist are left out, and so are those with no record at or after the time.
        """
        found: dict[Place, int] = {}
        for address, led in self._by_leader(places).items():
            topics = _by_topic(led, lambda place: _asked_offset(place[1], timestamp))
            answer = self._connection_to(address).ask(
                "list_offsets", replica_id=CLIENTS, isolation_level=0, topics=topics
            )
            for topic in answer.topics:
                for one in topic.partitions:
                    if not one.error_code and one.offset != NO_OFFSET:
                        found[topic.name, one.partition_index] = one.offset
        return found

    def _by_leader(self, places: Iterable[Place]) -> dict[Address, list[Place]]:
        wanted = set(places)
        led: dict[Address, list[Place]] = defaultdict(list)
        if not wanted:
            return led
        metadata = self._metadata(sorted({topic for topic, _ in wanted}))
        brokers = self._brokers(metadata)
        for topic in metadata.topics:
            for one in topic.partitions:
                if (topic.name, one.partition_index) in wanted and one.leader_id in brokers:
                    led[brokers[one.leader_id].address].append((topic.name, one.partition_index))
        return led

    def _metadata(self, topics: Iterable[str]) -> Any:
        asked = tuple({"name": topic} for topic in topics)
        return self._connection_to(self._bootstrap).ask(
            "metadata",
            topics=asked,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )

    # Connections -----------------------------------------------------------------------------------------------------

    @staticmethod
    def _brokers(metadata: Any) -> dict[int, Broker]:
        return {one.node_id: Broker(one.node_id, Address(one.host, one.port)) for one in metadata.brokers}

    def _connection_to(self, address: Address) -> BlockingConnection:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = BlockingConnection(address, self._timeout_s)
        return connection

    def _at_coordinator(self, group_id: str, ask: Callable[[BlockingConnection], T]) -> T:
        """Ask the group's coordinator."""
        return self._patiently(lambda: ask(self._connection_to(self._coordinator(group_id))))

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Ask, and where the answer is what passes by itself, ask again, as long as one waits for an answer."""
        until_s = time.monotonic() + self._timeout_s
        while True:
            try:
                return ask()
            except Refused as refused:
                if refused.code not in TRY_AGAIN or time.monotonic() + PAUSE_S > until_s:
                    raise
                time.sleep(PAUSE_S)

    def _coordinator(self, group_id: str) -> Address:
        answer = self._connection_to(self._bootstrap).ask("find_coordinator", key=group_id, key_type=0)
        _check(f"group '{group_id}'", answer.error_code)
        return Address(answer.host, answer.port)


def _check(what: str, code: int) -> None:
    if code:
        raise Refused(what, int(code))


def _member(one: Any, is_consumer: bool) -> Member:
    assigned = read_assignment(one.member_assignment) if is_consumer else None
    instance_id = getattr(one, "group_instance_id", None)
    return Member(one.member_id, instance_id, one.client_id, one.client_host.removeprefix("/"), assigned)


def _commit_of(partition: int, offset: Offset) -> dict[str, Any]:
    return {
        "partition_index": partition,
        "committed_offset": offset.offset,
        "committed_leader_epoch": offset.leader_epoch,
        "committed_metadata": offset.metadata,
    }


def _asked_offset(partition: int, timestamp: int) -> dict[str, Any]:
    return {"partition_index": partition, "current_leader_epoch": -1, "timestamp": timestamp}


def _no_retention() -> Any:
    """OffsetCommit v2 to v4: the server's own retention."""
    from datetime import timedelta

    return timedelta(milliseconds=-1)


def _by_topic(places: Iterable[Place], make: Callable[[Place], dict[str, Any]]) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for place in places:
        topics[place[0]].append(make(place))
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]


def _errors(answer: Any) -> dict[Place, int]:
    """What is refused of an answer by topics and partitions. What passes by itself is raised, as Refused."""
    refused = {
        (topic.name, one.partition_index): int(one.error_code)
        for topic in answer.topics
        for one in topic.partitions
        if one.error_code
    }
    for (topic, partition), code in refused.items():
        if code in TRY_AGAIN:
            raise Refused(f"{topic}-{partition}", code)
    return refused
