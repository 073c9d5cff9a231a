"""Puts members into groups by the real classic protocol: JoinGroup (twice, KIP-394), SyncGroup, and out by LeaveGroup.

A group may get several members. With no initial rebalance delay the first of them is alone in generation 1, so members
join again until the leader has heard of all of them: that is one generation with everybody in it.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from callboard.bench.harness import BenchError
from callboard.bench.wire import ANSWER_TIMEOUT_S, Api, Client, api

SESSION_TIMEOUT_MS = 1_800_000  # Kafka's largest: members do not beat while other rounds are measured
REBALANCE_TIMEOUT_MS = 10_000  # members that an earlier run left behind are thrown out after this
PATIENCE_S = 60.0  # a Kafka that just started makes its offsets topic first
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
PASSING = (UNKNOWN_TOPIC_OR_PARTITION, LOADING, NOT_AVAILABLE, NOT_COORDINATOR)


class Member(NamedTuple):
    """What a member needs for its heartbeats and commits; it commits to its own partition of its topic."""

    group_id: str
    member_id: str
    generation: int
    topic: str
    partition: int


def create_topic(client: Client, partitions: int) -> str:
    """Create the topic that is committed to, and return its name; one that exists is taken as it is.

    The name tells how many partitions it has, so that an earlier and smaller run left none that is too small.
    """
    topic = f"load-{partitions}"
    create = api("create_topics", 7)
    wanted = create.types.CreatableTopic(
        name=topic, num_partitions=partitions, replication_factor=1, assignments=(), configs=()
    )
    answer = client.ask(create, topics=(wanted,))
    _check(answer.topics[0].error_code, f"CreateTopics {topic!r}", allowed=(TOPIC_EXISTS,))
    return topic


def find_coordinator(client: Client, group_id: str) -> None:
    """Wait until the server is the group's coordinator and ready. Its address is taken to be the one we are on."""
    find = api("find_coordinator", 4)

    def ask() -> int:
        return int(client.ask(find, key_type=0, coordinator_keys=(group_id,)).coordinators[0].error_code)

    _patiently(ask, f"FindCoordinator of {group_id!r}")


def enrol(clients: Sequence[Client], groups: Sequence[str], topic: str) -> list[Member]:
    """Each client joins the group at its place in ``groups`` and gets its assignment: as many members as groups.

    Member i is assigned, and is to commit to, partition i of ``topic``.
    """
    casts: dict[str, _Cast] = {}
    seats = []
    for partition, (client, group_id) in enumerate(zip(clients, groups, strict=False)):
        cast = casts.setdefault(group_id, _Cast())
        seats.append(_Seat(client, group_id, cast, topic, partition))
    for seat in seats:
        seat.introduce()
    _join(seats, list(casts.values()))
    for seat in seats:
        seat.send_sync()
    for seat in seats:
        seat.receive_sync()
    return [seat.member() for seat in seats]


def leave(client: Client, member: Member) -> None:
    """Leave, so that the next run does not wait for this member."""
    api_ = api("leave_group", 5)
    identity = api_.types.MemberIdentity(member_id=member.member_id)
    answer = client.ask(api_, group_id=member.group_id, members=(identity,))
    _check(answer.error_code, f"LeaveGroup of {member.group_id!r}")


def commit(client: Client, member: Member, offset: int) -> None:
    """Commit one offset and wait for it; patient with a topic or coordinator that is still coming up."""
    fields = commit_fields(member, offset)

    def ask() -> int:
        return int(client.ask(api("offset_commit", 9), **fields).topics[0].partitions[0].error_code)

    _patiently(ask, f"OffsetCommit of {member.group_id!r} to {member.topic}-{member.partition}")


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
    """The committed offset of a member's partition, as the server tells it."""
    fetch = api("offset_fetch", 8)
    topic = fetch.types.OffsetFetchRequestTopics(name=member.topic, partition_indexes=(member.partition,))
    group = fetch.types.OffsetFetchRequestGroup(group_id=member.group_id, topics=(topic,))
    answer = client.ask(fetch, groups=(group,)).groups[0]
    _check(answer.error_code, f"OffsetFetch of {member.group_id!r}")
    partition = answer.topics[0].partitions[0]
    _check(partition.error_code, f"OffsetFetch of {member.topic}-{member.partition}")
    return int(partition.committed_offset)


class _Cast:
    """The members of one group while they gather. Generations up to ``stale`` are known to lack somebody."""

    def __init__(self) -> None:
        self.seats: list[_Seat] = []
        self.stale = 0
        self.complete: int | None = None

    @property
    def gathered(self) -> bool:
        return all(not seat.asking and seat.generation == self.complete for seat in self.seats)

    def hear(self, seat: _Seat, answer: Any) -> None:
        """A member was told its generation; the leader's answer tells who else is in it."""
        if answer.leader != seat.member_id:
            return
        if len(answer.members) == len(self.seats):
            self.complete = answer.generation_id
        else:
            self.stale = answer.generation_id

    def ask_again(self) -> None:
        for seat in self.seats:
            if not seat.asking and seat.generation <= self.stale:
                seat.send_join()


class _Seat:
    """One client on its way into a group."""

    def __init__(self, client: Client, group_id: str, cast: _Cast, topic: str, partition: int) -> None:
        self.client = client
        self.group_id = group_id
        self.cast = cast
        self.topic = topic
        self.partition = partition
        self.member_id = ""
        self.generation = -1
        self.leads = False
        self.asking = False
        cast.seats.append(self)

    def introduce(self) -> None:
        """Get a member id (KIP-394)."""

        def ask() -> int:
            self.send_join()
            answer = self.client.receive()
            self.member_id, self.asking = answer.member_id, False
            return 0 if answer.error_code == MEMBER_ID_REQUIRED else int(answer.error_code)

        _patiently(ask, f"JoinGroup of {self.group_id!r}")

    def send_join(self) -> None:
        join = api("join_group", 9)
        protocol = join.types.JoinGroupRequestProtocol(name=PROTOCOL_NAME, metadata=_subscription(self.topic))
        self.asking = True
        self.client.send(
            join,
            group_id=self.group_id,
            session_timeout=timedelta(milliseconds=SESSION_TIMEOUT_MS),
            rebalance_timeout=timedelta(milliseconds=REBALANCE_TIMEOUT_MS),
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=(protocol,),
        )

    def receive_join(self) -> None:
        answer = self.client.receive()
        self.asking = False
        _check(answer.error_code, f"JoinGroup of {self.group_id!r}", allowed=(REBALANCING,))
        self.generation = answer.generation_id
        self.leads = answer.leader == self.member_id
        self.cast.hear(self, answer)
        self.cast.ask_again()

    def send_sync(self) -> None:
        sync = api("sync_group", 5)
        self.client.send(
            sync,
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL_NAME,
            assignments=self._assignments(sync) if self.leads else (),
        )

    def receive_sync(self) -> None:
        answer = self.client.receive()
        _check(answer.error_code, f"SyncGroup of {self.group_id!r}")
        if answer.assignment != _assignment(self.topic, self.partition):
            raise BenchError(f"member {self.member_id!r} of {self.group_id!r} was given another one's assignment")

    def member(self) -> Member:
        return Member(self.group_id, self.member_id, self.generation, self.topic, self.partition)

    def _assignments(self, sync: Api) -> tuple[Any, ...]:
        return tuple(
            sync.types.SyncGroupRequestAssignment(
                member_id=seat.member_id, assignment=_assignment(seat.topic, seat.partition)
            )
            for seat in self.cast.seats
        )


def _join(seats: Sequence[_Seat], casts: list[_Cast]) -> None:
    """Let every seat join, and again, until each group is complete in one generation."""
    with selectors.DefaultSelector() as selector:
        for seat in seats:
            selector.register(seat.client.socket, selectors.EVENT_READ, seat)
            seat.send_join()
        while not all(cast.gathered for cast in casts):
            ready = selector.select(ANSWER_TIMEOUT_S)
            if not ready:
                raise BenchError(f"no answer to JoinGroup in {ANSWER_TIMEOUT_S:.0f} s; is the group in use elsewhere?")
            for key, _ in ready:
                key.data.receive_join()


def _patiently(ask: Callable[[], int], what: str) -> None:
    """Ask until the answer's error code is not one that passes by itself."""
    deadline = time.monotonic() + PATIENCE_S
    while (code := ask()) in PASSING and time.monotonic() < deadline:
        time.sleep(RETRY_PAUSE_S)
    _check(code, what)


def _check(code: int, what: str, allowed: tuple[int, ...] = ()) -> None:
    if code != 0 and code not in allowed:
        raise BenchError(f"{what} was answered with error code {int(code)}, expected 0")


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
