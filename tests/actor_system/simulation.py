"""CoordinatorSimulation: the whole coordinator with timer and writer on the test's thread."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from callboard.actors.base import ActorRef
from callboard.actors.consumer_group.environment import ConsumerGroupPorts
from callboard.actors.coordinator.actor import DEFAULT_PORTS, CoordinatorActor
from callboard.actors.coordinator.directory import Directory
from callboard.actors.group.actor import GroupActor
from callboard.actors.group.classic import ClassicGroup
from callboard.actors.group.offsets import GroupData
from callboard.actors.messages import (
    AllLoaded,
    GroupRequest,
    GroupsLoaded,
    Joined,
    ListedGroup,
    ListGroups,
    PartitionGained,
    PartitionLoaded,
)
from callboard.actors.timer.actor import TimerActor
from callboard.actors.timer.messages import Wake
from callboard.actors.writer import OffsetWriterActor
from callboard.runtime.engine.simulation import Simulation
from callboard.runtime.engine.system import System

from . import requests
from .ports import FakeGroupSettings, FakeTopicsView, ManualAlarm, ManualLog, RecordedReply, SeededRandom

EPOCH = 0
"""The epoch of all partitions at the start."""


class CoordinatorSimulation:
    """With ``holds_appends`` every round of the log waits for ``complete_append`` or ``fail``."""

    def __init__(
        self,
        groups: Mapping[str, GroupData] | None = None,
        *,
        holds_appends: bool = False,
        seed: int | None = None,
        log: ManualLog | None = None,
        consumer_groups: ConsumerGroupPorts = DEFAULT_PORTS,
    ) -> None:
        self.settings = FakeGroupSettings()
        self.topics_view = FakeTopicsView()
        self.log = log or ManualLog()
        self.alarm = ManualAlarm()
        self.holds_appends = holds_appends
        self.replies: list[RecordedReply] = []  # of all requests
        self.dispatcher = Simulation(seed)
        self.random = SeededRandom(seed or 0)
        self.clock = self.dispatcher.clock
        self.clock.now_ms = 1_000_000
        self.system = System(self.dispatcher)
        self.directory = Directory(self.settings, self.settings.offsets_topic_num_partitions)
        self.timer = self.system.spawn(TimerActor, self.clock, self.alarm)
        self.writer = self.system.spawn(OffsetWriterActor, self.log, self.clock)
        self.coordinator: ActorRef = self.system.spawn(
            CoordinatorActor,
            self.directory,
            self.clock,
            self.random,
            self.settings,
            self.timer,
            self.writer,
            self.topics_view,
            consumer_groups,
        )
        for partition in range(self.settings.offsets_topic_num_partitions):
            self.coordinator.tell(PartitionGained(partition, EPOCH))
        for group_id, data in (groups or {}).items():
            if not data.is_empty():  # as by the loader
                self._load(group_id, data)
        for partition in range(self.settings.offsets_topic_num_partitions):
            self.coordinator.tell(PartitionLoaded(partition, EPOCH))
        self.coordinator.tell(AllLoaded())
        self.run()

    def _load(self, group_id: str, data: GroupData) -> None:
        partition = self.directory.partitions.number_of(group_id)
        is_packed = data.is_packable()
        passivated = {group_id: data.pack()} if is_packed else {}
        self.coordinator.tell(GroupsLoaded(partition, EPOCH, passivated, {} if is_packed else {group_id: data}))

    def post(self, request: GroupRequest) -> RecordedReply:
        """Send a request and run until no actor has messages."""
        reply = self.send(request)
        self.run()
        return reply

    def send(self, request: GroupRequest) -> RecordedReply:
        reply = RecordedReply()
        self.replies.append(reply)
        self.directory.post(request, reply)
        return reply

    def ask(self, message: Any) -> RecordedReply:
        """Send a request to the coordinator actor and run."""
        reply = RecordedReply()
        self.coordinator.post(message, reply)
        self.run()
        return reply

    def listed(
        self, states: frozenset[str] = frozenset(), types: frozenset[str] = frozenset()
    ) -> tuple[ListedGroup, ...]:
        """The groups that ListGroups lists."""
        return tuple(chain.from_iterable(self.ask(ListGroups()).value.pieces(states, types)))

    def tell_coordinator(self, message: Any) -> None:
        self.coordinator.tell(message)
        self.run()

    def tell(self, group_id: str, message: Any) -> None:
        self.directory.groups[group_id].tell(message)
        self.run()

    @property
    def deadlines(self) -> int:
        """Number of deadlines of groups; the coordinator has one more, for its retention scan."""
        timer = self.timer.actor_inbox.actor
        assert isinstance(timer, TimerActor)
        return len(timer._timers) - 1

    # The log ---------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        self.dispatcher.run()
        while self.log.in_flight and not self.holds_appends:
            self.log.complete_append()
            self.dispatcher.run()
        assert all(len(reply.answers) + len(reply.errors) <= 1 for reply in self.replies), "a request got two replies"

    def complete_append(self) -> None:
        """Make the round in flight durable and run."""
        self.log.complete_append()
        self.run()

    def complete_all_appends(self) -> None:
        while self.log.in_flight:
            self.complete_append()

    def fail(self, *args: Any) -> None:
        self.log.fail(*args)
        self.run()

    # Time ------------------------------------------------------------------------------------------------------------

    def advance(self, ms: int) -> None:
        """Move the clock. The alarm fires on the way."""
        until_ms = self.clock.now_ms + ms
        while self.alarm.due_ms is not None and self.alarm.due_ms <= until_ms:
            self.clock.now_ms = max(self.clock.now_ms, self.alarm.due_ms)
            self.alarm.due_ms = None
            self.timer.tell(Wake(self.clock.now_ms))
            self.run()
        self.clock.now_ms = until_ms

    # Shortcuts -------------------------------------------------------------------------------------------------------

    def form_group(self, *options: dict[str, Any]) -> list[Joined]:
        """Members join and sync; the group is Stable afterwards. Returns the join replies, the leader's first."""
        replies = [
            self.post(requests.join(**{"client": f"m{number}", **member_options}))
            for number, member_options in enumerate(options)
        ]
        while any(reply.is_waiting for reply in replies):
            self.advance(self.settings.group_initial_rebalance_delay_ms)
        members: list[Joined] = [reply.value for reply in replies]
        assignments = {member.member_id: b"of " + member.member_id.encode() for member in members}
        for member in members:
            own_assignments = assignments if member.leader == member.member_id else None
            group_id = options[0].get("group_id", requests.GROUP)
            self.post(requests.sync(member.member_id, member.generation_id, own_assignments, group_id=group_id))
        return members

    def group(self, group_id: str = requests.GROUP) -> GroupActor:
        """The instance of the group's actor."""
        actor = self.directory.groups[group_id].actor_inbox.actor
        assert isinstance(actor, GroupActor)
        return actor

    def classic_group(self, group_id: str = requests.GROUP) -> ClassicGroup:
        """The soft state of a classic group."""
        return classic_group(self.group(group_id))


def classic_group(actor: GroupActor) -> ClassicGroup:
    assert isinstance(actor.group, ClassicGroup)
    return actor.group
