"""A simulated group of the classic protocol with its flight recorder."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from actor_system.simulated_group import SimulatedGroup

from callboard.actors.messages import Joined
from callboard.actors.recorder.flight_recorder import FlightRecorder
from callboard.actors.recorder.record import RebalanceRecord
from callboard.actors.recorder.tracker import RebalanceTracker


class RecordedGroup(SimulatedGroup):
    """``records``: those of the turns so far, oldest first."""

    def __init__(self, *, holds_appends: bool = False) -> None:
        super().__init__(holds_appends=holds_appends)
        self.tracker = RebalanceTracker("company")
        self.recorder = FlightRecorder()

    @property
    def records(self) -> list[RebalanceRecord]:
        turns, self.turns = self.turns, []
        for notes, events in turns:
            drafts = [*map(self.tracker.note, notes), *map(self.tracker.add, events)]
            for draft in filter(None, drafts):
                self.recorder.finish(draft)
        return list(reversed(self.recorder.records("company")))

    @property
    def last(self) -> RebalanceRecord:
        return self.records[-1]

    def sync_all(self, members: list[Joined], assigned: Mapping[str, bytes], pause_ms: int = 0) -> None:
        """The leader sends the assignment, then the others sync, each after a pause. By client id."""
        by_id = {member.member_id: assigned[self.client_of(member.member_id)] for member in members}
        for member in sorted(members, key=lambda joined: joined.member_id != joined.leader):
            instance = self.group.members.by_id[member.member_id].group_instance_id
            is_leader = member.member_id == member.leader
            self.sync(member.member_id, member.generation_id, by_id if is_leader else None, instance=instance)
            self.advance(pause_ms)

    def client_of(self, member_id: str) -> str:
        return self.group.members.by_id[member_id].client_id


def assignment(**partitions: list[int]) -> bytes:
    """An assignment in the format of Kafka's consumers."""
    topics = b"".join(
        struct.pack(">h", len(topic)) + topic.encode() + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
        for topic, numbers in partitions.items()
    )
    return struct.pack(">hi", 0, len(partitions)) + topics + struct.pack(">i", -1)
