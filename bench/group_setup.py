"""Joins members to groups with the classic protocol: JoinGroup (twice, KIP-394), SyncGroup, and later LeaveGroup.

A group may have several members. Without an initial rebalance delay the first member is alone in generation 1, so
members rejoin until one generation contains all of them.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from callboard.bench.harness import BenchError
from callboard.bench.wire import ANSWER_TIMEOUT_S, Api, Client, api

SESSION_TIMEOUT_MS = 1_800_000  # Kafka's maximum: members send no heartbeats between their rounds
REBALANCE_TIMEOUT_MS = 10_000  # after this, members left by an earlier run are removed
RETRY_TIMEOUT_S = 60.0  # a Kafka that has just started creates its offsets topic first
RETRY_PAUSE_S = 0.05
PROTOCOL_TYPE = "consumer"
PROTOCOL_NAME = "range"

UNKNOWN_TOPIC_OR_PARTITION = 3
LOADING = 14
NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
REBALANCING = 27
TOPIC_EXISTS = 36
MEMBER_ID_REQUIRED = 79
TRANSIENT_ERRORS = (UNKNOWN_TOPIC_OR_PARTITION, LOADING, NOT_AVAILABLE, NOT_COORDINATOR)


class Member(NamedTuple):
    """The fields that a member needs for heartbeats and commits. It commits its own partition of a topic."""

    group_id: str
    member_id: str
    generation: int
    topic: str
    partition: int


def create_topic(client: Client, partitions: int) -> str:
    """Create the topic for the commits if it does not exist, and return its name.

    The name contains the number of partitions, so that a topic of an earlier, smaller run is not reused.
    """
    topic = f"load-{partitions}"
    create_named_topic(client, topic, partitions)
    return topic


def create_named_topic(client: Client, topic: str, partitions: int) -> None:
    """Create a topic if it does not exist."""
    create = api("create_topics", 7)
    new_topic = create.types.CreatableTopic(
        name=topic, num_partitions=partitions, replication_factor=1, assignments=(), configs=()
    )
    answer = client.ask(create, topics=(new_topic,))
    _check(answer.topics[0].error_code, f"CreateTopics {topic!r}", allowed=(TOPIC_EXISTS,))


def find_coordinator(client: Client, group_id: str) -> str:
    """Wait until the coordinator of the group is ready. Returns its address."""
    find = api("find_coordinator", 4)
    address = ""

    def ask() -> int:
        nonlocal address
        [coordinator] = client.ask(find, key_type=0, coordinator_keys=(group_id,)).coordinators
        address = f"{coordinator.host}:{coordinator.port}"
        return int(coordinator.error_code)

    _retry_transient(ask, f"FindCoordinator of {group_id!r}")
    return address


def await_group(client: Client, group_id: str) -> None:
    """Wait until the coordinator, to which the client is connected, serves the group."""

    def ask() -> int:
        [group] = client.ask(api("describe_groups", 5), groups=(group_id,), include_authorized_operations=False).groups
        return int(group.error_code)

    _retry_transient(ask, f"DescribeGroups of {group_id!r}")


def join_members(
    clients: Sequence[Client], groups: Sequence[str], topic: str, session_ms: int = SESSION_TIMEOUT_MS
) -> list[Member]:
    """Each client joins the group at its index in ``groups`` and receives its assignment.

    Member i is assigned partition i of ``topic``.
    """
    joining_groups: dict[str, _JoiningGroup] = {}
    members = []
    for partition, (client, group_id) in enumerate(zip(clients, groups, strict=False)):
        joining_group = joining_groups.setdefault(group_id, _JoiningGroup())
        members.append(_JoiningMember(client, group_id, joining_group, topic, partition, session_ms))
    for member in members:
        member.request_member_id()
    _join(members, list(joining_groups.values()))
    for member in members:
        member.send_sync()
    for member in members:
        member.receive_sync()
    return [member.member() for member in members]


def leave(client: Client, member: Member) -> None:
    """Leave the group, so that the next run does not wait for this member."""
    api_ = api("leave_group", 5)
    identity = api_.types.MemberIdentity(member_id=member.member_id)
    answer = client.ask(api_, group_id=member.group_id, members=(identity,))
    _check(answer.error_code, f"LeaveGroup of {member.group_id!r}")


def commit(client: Client, member: Member, offset: int) -> None:
    """Commit one offset and wait for it. Retries while the topic or the coordinator is not ready."""
    fields = commit_fields(member, offset)

    def ask() -> int:
        return int(client.ask(api("offset_commit", 9), **fields).topics[0].partitions[0].error_code)

    _retry_transient(ask, f"OffsetCommit of {member.group_id!r} to {member.topic}-{member.partition}")


def commit_fields(member: Member, offset: int) -> dict[str, Any]:
    """The fields of an OffsetCommit v9 of one offset."""
    types = api("offset_commit", 9).types
    partition = types.OffsetCommitRequestPartition(
        partition_index=member.partition, committed_offset=offset, committed_metadata=""
    )
    return {
        "group_id": member.group_id,
        "generation_id_or_member_epoch": member.generation,
        "member_id": member.member_id,
        "topics": (types.OffsetCommitRequestTopic(name=member.topic, partitions=(partition,)),),
    }


def committed(client: Client, member: Member) -> int:
    """The committed offset of a member's partition, fetched from the server."""
    fetch = api("offset_fetch", 8)
    topic = fetch.types.OffsetFetchRequestTopics(name=member.topic, partition_indexes=(member.partition,))
    group = fetch.types.OffsetFetchRequestGroup(group_id=member.group_id, topics=(topic,))
    answer = client.ask(fetch, groups=(group,)).groups[0]
    _check(answer.error_code, f"OffsetFetch of {member.group_id!r}")
    partition = answer.topics[0].partitions[0]
    _check(partition.error_code, f"OffsetFetch of {member.topic}-{member.partition}")
    return int(partition.committed_offset)


class _JoiningGroup:
    """The members of one group while they join. Generations up to ``stale`` do not contain all members."""

    def __init__(self) -> None:
        self.members: list[_JoiningMember] = []
        self.stale = 0
        self.complete: int | None = None

    @property
    def is_complete(self) -> bool:
        return all(not member.is_joining and member.generation == self.complete for member in self.members)

    def on_joined(self, member: _JoiningMember, answer: Any) -> None:
        """Handle a JoinGroup response. Only the leader's response lists the members."""
        if answer.leader != member.member_id:
            return
        if len(answer.members) == len(self.members):
            self.complete = answer.generation_id
        else:
            self.stale = answer.generation_id

    def rejoin_stale_members(self) -> None:
        for member in self.members:
            if not member.is_joining and member.generation <= self.stale:
                member.send_join()


class _JoiningMember:
    """A client that is joining a group."""

    def __init__(
        self,
        client: Client,
        group_id: str,
        joining_group: _JoiningGroup,
        topic: str,
        partition: int,
        session_ms: int,
    ) -> None:
        self.client = client
        self.session_ms = session_ms
        self.group_id = group_id
        self.joining_group = joining_group
        self.topic = topic
        self.partition = partition
        self.member_id = ""
        self.generation = -1
        self.is_leader = False
        self.is_joining = False
        joining_group.members.append(self)

    def request_member_id(self) -> None:
        """Get a member id (KIP-394)."""

        def ask() -> int:
            self.send_join()
            answer = self.client.receive()
            self.member_id, self.is_joining = answer.member_id, False
            return 0 if answer.error_code == MEMBER_ID_REQUIRED else int(answer.error_code)

        _retry_transient(ask, f"JoinGroup of {self.group_id!r}")

    def send_join(self) -> None:
        join = api("join_group", 9)
        protocol = join.types.JoinGroupRequestProtocol(name=PROTOCOL_NAME, metadata=_subscription(self.topic))
        self.is_joining = True
        self.client.send(
            join,
            group_id=self.group_id,
            session_timeout=timedelta(milliseconds=self.session_ms),
            rebalance_timeout=timedelta(milliseconds=REBALANCE_TIMEOUT_MS),
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=(protocol,),
        )

    def receive_join(self) -> None:
        answer = self.client.receive()
        self.is_joining = False
        _check(answer.error_code, f"JoinGroup of {self.group_id!r}", allowed=(REBALANCING,))
        self.generation = answer.generation_id
        self.is_leader = answer.leader == self.member_id
        self.joining_group.on_joined(self, answer)
        self.joining_group.rejoin_stale_members()

    def send_sync(self) -> None:
        sync = api("sync_group", 5)
        self.client.send(
            sync,
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL_NAME,
            assignments=self._assignments(sync) if self.is_leader else (),
        )

    def receive_sync(self) -> None:
        answer = self.client.receive()
        _check(answer.error_code, f"SyncGroup of {self.group_id!r}")
        if answer.assignment != _assignment(self.topic, self.partition):
            raise BenchError(f"member {self.member_id!r} of {self.group_id!r} received another member's assignment")

    def member(self) -> Member:
        return Member(self.group_id, self.member_id, self.generation, self.topic, self.partition)

    def _assignments(self, sync: Api) -> tuple[Any, ...]:
        return tuple(
            sync.types.SyncGroupRequestAssignment(
                member_id=member.member_id, assignment=_assignment(member.topic, member.partition)
            )
            for member in self.joining_group.members
        )


def _join(members: Sequence[_JoiningMember], joining_groups: list[_JoiningGroup]) -> None:
    """Let all members join, repeatedly, until each group is complete in one generation."""
    with selectors.DefaultSelector() as selector:
        for member in members:
            selector.register(member.client.socket, selectors.EVENT_READ, member)
            member.send_join()
        while not all(joining_group.is_complete for joining_group in joining_groups):
            ready = selector.select(ANSWER_TIMEOUT_S)
            if not ready:
                raise BenchError(f"no response to JoinGroup in {ANSWER_TIMEOUT_S:.0f} s; is the group in use?")
            for key, _ in ready:
                key.data.receive_join()


def _retry_transient(ask: Callable[[], int], description: str) -> None:
    """Retry while the error code is transient."""
    deadline = time.monotonic() + RETRY_TIMEOUT_S
    while (code := ask()) in TRANSIENT_ERRORS and time.monotonic() < deadline:
        time.sleep(RETRY_PAUSE_S)
    _check(code, description)


def _check(code: int, description: str, allowed: tuple[int, ...] = ()) -> None:
    if code != 0 and code not in allowed:
        raise BenchError(f"{description} returned error code {int(code)}, expected 0")


def _subscription(topic: str) -> bytes:
    """A consumer's metadata, ConsumerProtocolSubscription v0: version, topics, user data null."""
    name = topic.encode()
    return b"\0\0" + b"\0\0\0\1" + len(name).to_bytes(2, "big") + name + b"\xff\xff\xff\xff"


def _assignment(topic: str, partition: int) -> bytes:
    """ConsumerProtocolAssignment v0 of one partition: version, topics, user data null."""
    name = topic.encode()
    return (
        b"\0\0\0\0\0\1"
        + (len(name).to_bytes(2, "big") + name + b"\0\0\0\1" + partition.to_bytes(4, "big"))
        + b"\xff\xff\xff\xff"
    )
