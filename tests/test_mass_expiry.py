"""Twenty thousand members whose sessions end at once: everybody else is served in between.

Nothing here looks at the clock. What counts is how much is done for those that expire between a heartbeat of another
group and its answer: names, turns of actors, records of a round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from stage.company import Company
from stage.ports import HandLog, Place
from stage.requests import heartbeat, join
from stage.world import World

from callboard.actors.errors import ErrorCode
from callboard.actors.group.classic import ClassicGroup
from callboard.actors.group.effects import Effects
from callboard.actors.group.offsets import GroupData
from callboard.actors.messages import DescribeGroup, ListGroups
from callboard.actors.records import GroupRecord, GroupValue, MemberValue
from callboard.actors.timer.actor import TURN_LIMIT
from callboard.actors.timer.messages import Wake
from callboard.actors.writer import ROUND_MAX
from callboard.runtime.engine.dispatcher import MESSAGES_A_TURN

MEMBERS = 20_000
SESSION_MS = 10_000
OTHER = "other"


def group(*members: str, session_timeout_ms: int = SESSION_MS) -> GroupData:
    """A Stable group as the log has it."""
    data = GroupData()
    kept = tuple(MemberValue(one, None, "c", "/h", 60_000, session_timeout_ms, b"s", b"a") for one in members)
    value = GroupValue("consumer", 1, "range", members[0], 1, kept)
    data.replay(GroupRecord("any", value))
    return data


def in_one() -> dict[str, GroupData]:
    return {"crowd": group(*(f"member-{number}" for number in range(MEMBERS)))}


def in_many() -> dict[str, GroupData]:
    return {f"group-{number}": group("member") for number in range(MEMBERS)}


class Theatre(World):
    """A world that goes on step by step, whose alarm rings as soon as it is due, as that of a busy loop does."""

    def __init__(self, groups: dict[str, GroupData]) -> None:
        other = group("talker", session_timeout_ms=1_800_000)
        super().__init__({**groups, OTHER: other}, log=RecordingLog())
        self.dispatcher._messages_a_turn = MESSAGES_A_TURN
        self.expired = 0

    def step(self) -> None:
        """One turn of one actor, if there is anything to do at this time."""
        if self.alarm.due_ms is not None and self.alarm.due_ms <= self.clock.now_ms:
            self.alarm.due_ms = None
            self.timer.tell(Wake())
        if not self.dispatcher.step() and self.log.in_flight:
            self.log.keep()

    @property
    def is_busy(self) -> bool:
        return bool(
            self.expired < MEMBERS or self.log.in_flight or self.dispatcher._ready or self.dispatcher._after_turn
        )

    def beats(self) -> Iterator[tuple[int, int]]:
        """Heartbeats of the other group until all is quiet: turns and expired names before each answer."""
        while self.is_busy:
            place, turns, before = Place(), 0, self.expired
            self.directory.post(heartbeat("talker", 1, group_id=OTHER), place)
            while place.is_waiting:
                self.step()
                turns += 1
            assert place.value is ErrorCode.NONE
            if not self.dispatcher._ready:
                self.step()  # what waits for an idle moment has it
            yield turns, self.expired - before


class RecordingLog(HandLog):
    """Keeps no records, only how many there were in each round."""

    def _outcome(self, entry: object, error: ErrorCode) -> object:  # type: ignore[override]
        return super()._outcome(entry._replace(records=()), error)  # type: ignore[attr-defined]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Theatre]:
    """Whoever stands in this list counts what expires."""
    theatres: list[Theatre] = []
    original = ClassicGroup.expired

    def expired(self: ClassicGroup, name: tuple[str, ...], effects: Effects) -> None:
        for theatre in theatres:
            theatre.expired += 1
        original(self, name, effects)

    monkeypatch.setattr(ClassicGroup, "expired", expired)
    return theatres


@pytest.mark.parametrize("cast", [in_one, in_many])
def test_others_are_served_while_twenty_thousand_expire(
    cast: Callable[[], dict[str, GroupData]], counted: list[Theatre]
) -> None:
    groups = cast()
    theatre = Theatre(groups)
    counted.append(theatre)
    theatre.clock.now_ms += SESSION_MS + 10
    waits = list(theatre.beats())
    assert theatre.expired == MEMBERS
    assert max(names for _, names in waits) <= 2 * TURN_LIMIT
    assert max(turns for turns, _ in waits) <= 2 * ROUND_MAX
    assert len(waits) >= MEMBERS // (2 * TURN_LIMIT)
    assert max(map(len, theatre.log.rounds)) <= ROUND_MAX
    theatre.run()
    listed = theatre.ask(ListGroups()).value
    assert {one.group_id for one in listed if one.state == "Stable"} == {OTHER}
    assert len(listed) == len(groups) + 1
    for group_id in list(groups)[:3]:
        assert theatre.post(DescribeGroup(group_id)).value.state == "Empty"


def test_who_joins_anew_meanwhile_does_not_wait_either(counted: list[Theatre]) -> None:
    """A new group is made by the coordinator, which hears of each group that becomes Empty: it keeps up with them."""
    theatre = Theatre(in_many())
    counted.append(theatre)
    theatre.clock.now_ms += SESSION_MS + 10
    most = 0
    while theatre.expired < MEMBERS:
        place, before = Place(), theatre.expired
        theatre.directory.post(join(group_id=f"new-{before}", version=9), place)
        while place.is_waiting:
            theatre.step()
        assert place.error is ErrorCode.MEMBER_ID_REQUIRED
        most = max(most, theatre.expired - before)
        for _ in range(100):
            theatre.step()
    assert most <= 4 * TURN_LIMIT


def test_what_an_expiry_costs_does_not_depend_on_how_many_have_expired() -> None:
    """By the number of entries that are looked at to find the leader's heir: a plain dict walks over all that left."""
    company = Company()
    company.load(in_one()["crowd"].value)  # type: ignore[arg-type]
    members, effects = company.group.members, Effects()
    company.clock.now_ms += SESSION_MS
    for number in range(MEMBERS - 1):
        company.group.expired(("session", f"member-{number}"), effects)
        assert company.group.leader_id == f"member-{number + 1}"
    assert list(members.by_id) == [f"member-{MEMBERS - 1}"]
    assert type(members.by_id).__name__ == "OrderedDict", "its first entry is found in one step"
