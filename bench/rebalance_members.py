"""The members of ``callboard bench members --protocol consumer``, as Kafka's clients behave in each protocol.

A member has a connection, and at most one request in flight. It sends a heartbeat per interval, and whatever an answer
makes due at once. All members of a group have one topic.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from callboard.actors.assignors.base import Assignor, MemberState
from callboard.actors.assignors.consumer_protocol import (
    MemberAssignment,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from callboard.actors.assignors.fallback import to_member_subscription
from callboard.bench.consumer_members import ConsumerMember
from callboard.bench.group_setup import MEMBER_ID_REQUIRED, REBALANCING, SESSION_TIMEOUT_MS
from callboard.bench.harness import BenchError
from callboard.bench.wire import Client, api

REBALANCE_TIMEOUT = timedelta(minutes=5)


class Owners:
    """The owner of each partition, as the members see it. ``unowned_s``: partition-seconds without an owner."""

    def __init__(self, count: int, now_s: float) -> None:
        self.count = count
        self.given_up = 0  # partitions that their owner has stopped, since ``begin``
        self._owners: dict[int, Member] = {}
        self._unowned_since_s = dict.fromkeys(range(count), now_s)
        self._unowned_s = 0.0

    @property
    def are_complete(self) -> bool:
        return not self._unowned_since_s

    def begin(self, now_s: float) -> None:
        self.given_up, self._unowned_s = 0, 0.0
        self._unowned_since_s = dict.fromkeys(self._unowned_since_s, now_s)

    def unowned_s(self, now_s: float) -> float:
        return self._unowned_s + sum(now_s - since_s for since_s in self._unowned_since_s.values())

    def change(self, member: Member, owned: frozenset[int], now_s: float) -> None:
        """The member stops partitions and starts others. Raises BenchError if another member has one of those."""
        for number in member.owned - owned:
            del self._owners[number]
            self._unowned_since_s[number] = now_s
            self.given_up += 1
        for number in owned - member.owned:
            if number in self._owners:
                raise BenchError(f"partition {number} has two owners")
            self._owners[number] = member
            self._unowned_s += now_s - self._unowned_since_s.pop(number)
        member.owned = owned


class Group:
    """What the members of a group have in common."""

    def __init__(self, group_id: str, topic: str, owners: Owners, clock: Callable[[], float]) -> None:
        self.group_id = group_id
        self.topic = topic
        self.owners = owners
        self.clock = clock


class Member(ABC):
    """``is_rebalancing``: whether it waits for a new assignment. ``is_waiting``: whether a request is in flight."""

    def __init__(self, client: Client, group: Group) -> None:
        self.client = client
        self.group = group
        self.owned: frozenset[int] = frozenset()
        self.is_rebalancing = False
        self.is_waiting = False

    @property
    def is_settled(self) -> bool:
        return not self.is_rebalancing and bool(self.owned)

    @abstractmethod
    def join(self) -> None: ...

    @abstractmethod
    def beat(self) -> None: ...

    @abstractmethod
    def receive(self) -> None:
        """Receive an answer, and send what it makes due. Raises BenchError for an error."""

    @abstractmethod
    def leave(self) -> None:
        """Leave while no request is in flight, and wait for the answer."""

    def have(self, owned: frozenset[int]) -> None:
        self.group.owners.change(self, owned, self.group.clock())


class ConsumerProtocolMember(Member):
    """The coordinator assigns its partitions, in the answers to its heartbeats."""

    def __init__(self, client: Client, group: Group) -> None:
        super().__init__(client, group)
        self._member = ConsumerMember(client, group.group_id, group.topic)

    def join(self) -> None:
        self.is_waiting = True
        self._member.send_join()

    def beat(self) -> None:
        self.is_waiting = True
        self._member.send_heartbeat()

    def receive(self) -> None:
        self.is_waiting = False
        if self._member.receive():
            self.have(self._member.owned)
            self.is_waiting = True
            self._member.send_owned()

    def leave(self) -> None:
        self._member.leave()
        self.have(frozenset())


class ClassicMember(Member):
    """Of the classic protocol. With an eager assignor it stops everything before it joins again."""

    def __init__(self, client: Client, group: Group, assignor: Assignor) -> None:
        super().__init__(client, group)
        self._assignor = assignor
        self._member_id = ""
        self._generation = -1
        self._on_answer: Callable[[Any], None] = self._beaten  # of the request that waits

    def join(self) -> None:
        had = tuple((self.group.topic, number) for number in sorted(self.owned))
        self.is_rebalancing = True
        if not self._assignor.is_cooperative and self.owned:
            self.have(frozenset())
        protocol = api("join_group", 9).types.JoinGroupRequestProtocol(
            name=self._assignor.name, metadata=self._subscription(had)
        )
        self._send(
            "join_group",
            9,
            self._joined,
            session_timeout=timedelta(milliseconds=SESSION_TIMEOUT_MS),
            rebalance_timeout=REBALANCE_TIMEOUT,
            protocol_type="consumer",
            protocols=(protocol,),
        )

    def _subscription(self, had: tuple[tuple[str, int], ...]) -> bytes:
        topics = frozenset((self.group.topic,))
        user_data = self._assignor.metadata(MemberState(topics, had, self._generation))
        owned = had if self._assignor.is_cooperative else ()
        return write_subscription(Subscription(tuple(topics), user_data, owned, self._generation))

    def beat(self) -> None:
        self._send("heartbeat", 4, self._beaten, generation_id=self._generation)

    def receive(self) -> None:
        self.is_waiting = False
        self._on_answer(self.client.receive())

    def leave(self) -> None:
        leave = api("leave_group", 5)
        identity = leave.types.MemberIdentity(member_id=self._member_id)
        _check(self.client.ask(leave, group_id=self.group.group_id, members=(identity,)), "LeaveGroup")
        self._member_id, self._generation = "", -1
        self.have(frozenset())

    def _send(self, name: str, version: int, on_answer: Callable[[Any], None], **fields: Any) -> None:
        self.is_waiting = True
        self._on_answer = on_answer
        self.client.send(api(name, version), group_id=self.group.group_id, member_id=self._member_id, **fields)

    def _beaten(self, answer: Any) -> None:
        if _check(answer, "Heartbeat", REBALANCING):
            self.join()

    def _joined(self, answer: Any) -> None:
        if _check(answer, "JoinGroup", MEMBER_ID_REQUIRED, REBALANCING):
            self._member_id = answer.member_id or self._member_id
            self.join()
            return
        self._member_id, self._generation = answer.member_id, answer.generation_id
        self._send(
            "sync_group",
            5,
            self._synced,
            generation_id=self._generation,
            protocol_type="consumer",
            protocol_name=self._assignor.name,
            assignments=self._assignments(answer.members),
        )

    def _assignments(self, members: Sequence[Any]) -> tuple[Any, ...]:
        """Only the leader gets the members."""
        subscriptions = [to_member_subscription(member, _read(member.metadata)) for member in members]
        partitions = {self.group.topic: self.group.owners.count}
        assignment = self._assignor.assign(partitions, subscriptions) if members else {}
        make = api("sync_group", 5).types.SyncGroupRequestAssignment
        return tuple(
            make(member_id=member_id, assignment=write_assignment(MemberAssignment(tuple(share))))
            for member_id, share in assignment.items()
        )

    def _synced(self, answer: Any) -> None:
        if _check(answer, "SyncGroup", REBALANCING):
            self.join()
            return
        assigned = read_assignment(answer.assignment)
        if assigned is None:
            raise BenchError("SyncGroup was answered with an assignment that cannot be read")
        before, owned = self.owned, frozenset(number for _, number in assigned.partitions)
        self.is_rebalancing = False
        self.have(owned)
        if before - owned:
            self.join()  # only with a cooperative assignor: others may have them in the next generation


def _read(metadata: bytes) -> Subscription:
    subscription = read_subscription(metadata)
    if subscription is None:
        raise BenchError("JoinGroup was answered with a subscription that cannot be read")
    return subscription


def _check(answer: Any, name: str, *allowed: int) -> int:
    """The error code. Raises BenchError unless it is 0 or one of ``allowed``."""
    if answer.error_code not in (0, *allowed):
        raise BenchError(f"{name} was answered with error code {int(answer.error_code)}")
    return int(answer.error_code)
