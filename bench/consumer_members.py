"""Members of the consumer protocol (KIP-848), each on a connection of its own, which may have other members, too."""

from __future__ import annotations

import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from callboard.bench.harness import BenchError
from callboard.bench.wire import Client, api

JOIN_EPOCH, LEAVE_EPOCH = 0, -1
REBALANCE_TIMEOUT = timedelta(minutes=5)
INTERVAL_MS = 5_000  # between heartbeats, the default of Kafka and of Callboard
STABLE_TIMEOUT_S = 60.0
LOOK_PAUSE_S = 0.02
STABLE = "Stable"


class ConsumerMember:
    """``owned``: the numbers of its partitions of its only topic. ``epoch``: 0 until it has joined."""

    def __init__(self, client: Client, group_id: str, topic: str, member_id: str | None = None) -> None:
        self.client = client
        self.group_id = group_id
        self.member_id = new_member_id() if member_id is None else member_id
        self.epoch = JOIN_EPOCH
        self.interval_ms = INTERVAL_MS
        self.owned: frozenset[int] = frozenset()
        self._topic = topic
        self._topic_id: Any = None

    def send_join(self) -> None:
        self._send(rebalance_timeout=REBALANCE_TIMEOUT, subscribed_topic_names=(self._topic,), topic_partitions=())

    def send_heartbeat(self) -> None:
        self._send(topic_partitions=None)

    def send_owned(self) -> None:
        """A heartbeat that says which partitions the member has."""
        partitions = {"topic_id": self._topic_id, "partitions": sorted(self.owned)}
        self._send(topic_partitions=[partitions] if self.owned else ())

    def leave(self) -> None:
        """Leave the group. The member may join again."""
        self.epoch = LEAVE_EPOCH
        self._send(topic_partitions=None)
        self._answer()
        self.epoch, self.owned = JOIN_EPOCH, frozenset()

    def receive(self) -> bool:
        """Receive the answer; whether it changes what the member has. Raises BenchError for an error."""
        answer = self._answer()
        self.epoch = answer.member_epoch
        self.interval_ms = answer.heartbeat_interval // timedelta(milliseconds=1)
        if answer.assignment is None:
            return False
        before, self.owned = self.owned, self._numbers(answer.assignment.topic_partitions)
        return self.owned != before

    def beat(self) -> None:
        """Send a heartbeat, and another one if its answer changes what the member has."""
        self.send_heartbeat()
        while self.receive():
            self.send_owned()

    def _numbers(self, topics: Sequence[Any]) -> frozenset[int]:
        for topic in topics:
            self._topic_id = topic.topic_id
        return frozenset(number for topic in topics for number in topic.partitions)

    def _send(self, **fields: Any) -> None:
        self.client.send(
            api("consumer_group_heartbeat", 1),
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            **fields,
        )

    def _answer(self) -> Any:
        answer = self.client.receive()
        if answer.error_code:
            raise BenchError(
                f"ConsumerGroupHeartbeat of {self.group_id!r} returned error code {int(answer.error_code)}, expected 0"
            )
        return answer


def new_member_id() -> str:
    """As Kafka's clients make it (KIP-1082)."""
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def join_consumers(clients: Sequence[Client], groups: Sequence[str], topic: str) -> list[ConsumerMember]:
    """Each client joins the group at its index in ``groups``. Returns when all groups are stable."""
    members = [ConsumerMember(client, group_id, topic) for client, group_id in zip(clients, groups, strict=True)]
    for member in members:
        member.send_join()
    for member in members:
        if member.receive():
            member.send_owned()
            member.receive()
    _settle(members)
    return members


def _settle(members: Sequence[ConsumerMember]) -> None:
    one_of_each = {member.group_id: member for member in members}.values()
    deadline = time.monotonic() + STABLE_TIMEOUT_S
    while unstable := [member for member in one_of_each if not _is_stable(member)]:
        if time.monotonic() > deadline:
            raise BenchError(f"{unstable[0].group_id!r} is not stable after {STABLE_TIMEOUT_S:.0f} s")
        time.sleep(LOOK_PAUSE_S)
        for member in members:
            member.beat()


def _is_stable(member: ConsumerMember) -> bool:
    describe = api("consumer_group_describe", 1)
    [group] = member.client.ask(describe, group_ids=(member.group_id,), include_authorized_operations=False).groups
    return bool(group.group_state == STABLE)
