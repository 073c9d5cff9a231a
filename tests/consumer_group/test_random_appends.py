"""Consumer groups under appends that wait and fail, restarts and lost answers: no partition has two owners.

Members behave as clients do: they give back what they are told to before they say so, and rejoin with nothing.
"""

from __future__ import annotations

from random import Random

import pytest
from actor_system.ports import RecordedReply
from consumer_group.actor_world import GROUP, ActorWorld

from callboard.actors.consumer_group.messages import ConsumerHeartbeat
from callboard.actors.consumer_group.records import Partition
from callboard.actors.consumer_group.state import GroupState
from callboard.actors.errors import ErrorCode

STEPS = 150
REJOIN = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND}
RETRY = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR}
FAILURES = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.MESSAGE_TOO_LARGE)


class Client:
    """``epoch`` 0: not a member. ``owned``: what it consumes. ``has_missed``: whether an answer was lost, or an error.

    Then it says everything again, and is told its assignment.
    """

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.epoch = 0
        self.owned: frozenset[Partition] = frozenset()
        self.reply: RecordedReply | None = None
        self.has_missed = False

    def request(self, leaves: bool) -> ConsumerHeartbeat:
        if leaves and self.epoch:
            self.owned = frozenset()
            return ConsumerHeartbeat(GROUP, self.member_id, -1)
        request = ConsumerHeartbeat(GROUP, self.member_id, self.epoch, owned=tuple(self.owned))
        is_full = self.epoch == 0 or self.has_missed
        return request._replace(rebalance_timeout_ms=20_000, topics=("t", "jobs")) if is_full else request

    def read_reply(self) -> None:
        if self.reply is None or self.reply.is_waiting:
            return
        reply, self.reply = self.reply.value, None
        self.has_missed = reply.error in RETRY
        if reply.error in REJOIN:
            self.epoch, self.owned = 0, frozenset()
        elif reply.error:
            assert reply.error in RETRY, reply
        else:
            self.epoch = max(reply.member_epoch, 0)
            if reply.assigned is not None:
                self.owned = frozenset(reply.assigned)


class Run:
    """One random run. ``world`` is replaced at each restart."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = ActorWorld()
        self.clients = [Client(f"m{number}") for number in range(5)]

    def step(self) -> None:
        random, log = self.random, self.world.log
        self.world.holds_appends = True
        action = random.choices(("beat", "complete", "fail", "advance", "restart"), (12, 6, 2, 1, 0.3))[0]
        if action == "beat":
            self.send(random.choice(self.clients))
        elif action == "complete" and log.in_flight:
            self.world.complete_append()
        elif action == "fail" and log.in_flight:
            self.world.fail(random.choice(FAILURES))
        elif action == "advance":
            self.world.advance(random.choice((1_000, 10_000, 30_000)))
        elif action == "restart":
            self.restart()
        for client in self.clients:
            client.read_reply()
        self.check()

    def send(self, client: Client) -> None:
        if client.reply is None:
            client.reply = self.world.post(client.request(leaves=self.random.random() < 0.05))

    def restart(self) -> None:
        """What is in flight is lost, and so are the answers."""
        self.world = self.world.restarted()
        for client in self.clients:
            client.has_missed, client.reply = client.has_missed or client.reply is not None, None

    @property
    def durable(self) -> GroupState:
        value = self.world.log.groups()[GROUP].value if GROUP in self.world.log.groups() else None
        return GroupState(GROUP) if value is None else value

    def check(self) -> None:
        """What members of the group own, by what is durable, belongs to them alone."""
        members = self.durable.members
        owners: dict[Partition, str] = {}
        for client in self.clients:
            for partition in client.owned if client.member_id in members else ():
                assert partition not in owners, f"{partition} belongs to {owners[partition]} and {client.member_id}"
                owners[partition] = client.member_id

    def settle(self) -> None:
        """Without failures every partition finds an owner."""
        self.world.holds_appends = False
        self.world.run()
        for _ in range(8):
            for client in self.clients:
                client.read_reply()
                client.reply = self.world.post(client.request(leaves=False))
                client.read_reply()
                self.check()
        group = self.world.consumer_group
        assert group.queue.is_idle
        assert group.durable is not None and group.soft.members == group.durable.members == self.durable.members
        assert (group.soft.targets, group.soft.owners) == (group.durable.targets, group.durable.owners)
        assert group.soft.phase.value == "Stable"
        assert sum(len(client.owned) for client in self.clients) == 6
        assert group.timers.sessions.keys() == group.soft.members.keys()


@pytest.mark.parametrize("seed", range(12))
def test_no_partition_has_two_owners(seed: int) -> None:
    run = Run(seed)
    for _ in range(STEPS):
        run.step()
    run.settle()
