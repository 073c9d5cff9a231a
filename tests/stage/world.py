"""World: the whole coordinator, timer and writer and all, on the test's thread; log and time are in its hands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from callboard.actors.base import ActorRef
from callboard.actors.coordinator.actor import CoordinatorActor, Directory
from callboard.actors.group.actor import GroupActor
from callboard.actors.group.offsets import GroupData
from callboard.actors.messages import GroupRequest, Joined
from callboard.actors.timer.actor import TimerActor
from callboard.actors.timer.messages import Wake
from callboard.actors.writer import OffsetWriterActor
from callboard.runtime.engine.simulation import Simulation
from callboard.runtime.engine.system import System

from . import requests
from .ports import GroupRules, HandAlarm, HandLog, Place, SeededRandom


class World:
    """Posts requests as the front door does. With ``holds_back`` the log waits for ``keep`` and ``fail``."""

    def __init__(
        self,
        groups: Mapping[str, GroupData] | None = None,
        *,
        holds_back: bool = False,
        seed: int | None = None,
        log: HandLog | None = None,
    ) -> None:
        self.rules = GroupRules()
        self.log = log or HandLog()
        self.alarm = HandAlarm()
        self.holds_back = holds_back
        self.places: list[Place] = []  # of all requests that were ever sent
        self.dispatcher = Simulation(seed)
        self.clock = self.dispatcher.clock
        self.clock.now_ms = 1_000_000
        self.system = System(self.dispatcher)
        self.directory = Directory(self.rules)
        self.timer = self.system.spawn(TimerActor, self.clock, self.alarm)
        self.writer = self.system.spawn(OffsetWriterActor, self.log, self.clock)
        self.coordinator: ActorRef = self.system.spawn(
            CoordinatorActor,
            self.directory,
            self.clock,
            SeededRandom(seed or 0),
            self.rules,
            self.timer,
            self.writer,
            self.rules.offsets_topic_num_partitions,
            groups or {},
        )
        self.run()

    def post(self, request: GroupRequest) -> Place:
        """Send, and run until all is quiet."""
        place = self.send(request)
        self.run()
        return place

    def send(self, request: GroupRequest) -> Place:
        place = Place()
        self.places.append(place)
        self.directory.post(request, place)
        return place

    def ask(self, message: Any) -> Place:
        """A question to the coordinator itself."""
        place = Place()
        self.coordinator.post(message, place)
        self.run()
        return place

    def tell_coordinator(self, message: Any) -> None:
        self.coordinator.tell(message)
        self.run()

    def tell(self, group_id: str, message: Any) -> None:
        self.directory.groups[group_id].tell(message)
        self.run()

    @property
    def deadlines(self) -> int:
        """How many deadlines groups have filed; the coordinator has one more, for its sweep."""
        timer = self.timer.actor_inbox.actor
        assert isinstance(timer, TimerActor)
        return len(timer._timers) - 1

    # The log ---------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        self.dispatcher.run()
        while self.log.in_flight and not self.holds_back:
            self.log.keep()
            self.dispatcher.run()
        assert all(len(place.answers) + len(place.errors) <= 1 for place in self.places), "answered twice"

    def keep(self) -> None:
        """The round in flight is durable."""
        self.log.keep()
        self.run()

    def keep_all(self) -> None:
        while self.log.in_flight:
            self.keep()

    def fail(self, *args: Any) -> None:
        self.log.fail(*args)
        self.run()

    # Time ------------------------------------------------------------------------------------------------------------

    def advance(self, ms: int) -> None:
        """Move the clock, and ring the alarm on the way."""
        until_ms = self.clock.now_ms + ms
        while self.alarm.due_ms is not None and self.alarm.due_ms <= until_ms:
            self.clock.now_ms = max(self.clock.now_ms, self.alarm.due_ms)
            self.alarm.due_ms = None
            self.timer.tell(Wake())
            self.run()
        self.clock.now_ms = until_ms

    # Short ways ------------------------------------------------------------------------------------------------------

    def form(self, *options: dict[str, Any]) -> list[Joined]:
        """Members join and sync; the group is Stable afterwards. Returns what they were answered, the leader first."""
        places = [self.post(requests.join(**{"client": f"m{number}", **one})) for number, one in enumerate(options)]
        while any(place.is_waiting for place in places):
            self.advance(self.rules.group_initial_rebalance_delay_ms)
        joined: list[Joined] = [place.value for place in places]
        for one in joined:
            parts = {other.member_id: b"of " + other.member_id.encode() for other in joined}
            mine = parts if one.leader == one.member_id else None
            group_id = options[0].get("group_id", requests.GROUP)
            self.post(requests.sync(one.member_id, one.generation_id, mine, group_id=group_id))
        return joined

    def group(self, group_id: str = requests.GROUP) -> GroupActor:
        """The actor itself, to look into."""
        actor = self.directory.groups[group_id].actor_inbox.actor
        assert isinstance(actor, GroupActor)
        return actor
