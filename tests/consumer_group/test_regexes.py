"""Subscriptions by regular expression. ``regexes.txt`` has what a real Kafka did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from consumer_group.group_world import Topics, World

from callboard.actors.consumer_group.plan import ConsumerGroupSettings, NoRegexes, Plan
from callboard.actors.consumer_group.records import RegexRecord, RegexValue
from callboard.actors.consumer_group.regexes import apply_result
from callboard.actors.consumer_group.subscriptions import subscribe_equally, topics_of
from callboard.actors.errors import CoordinatorError, ErrorCode
from callboard.actors.steps import run_steps

# What Kafka did ------------------------------------------------------------------------------------------------------


def _scenarios() -> Iterator[tuple[str, list[str]]]:
    text = Path(__file__).with_name("regexes.txt").read_text()
    for scenario in text.split("## ")[1:]:
        name, *lines = scenario.strip().splitlines()
        yield name, lines


SCENARIOS = dict(_scenarios())


class Recorded:
    """Plays a scenario. The results of regular expressions are there after each answer."""

    def __init__(self) -> None:
        self.world = World(Topics())
        self.key_types: list[int] = []
        self._epochs: dict[str, int] = {}
        self._told: dict[str, tuple[tuple[bytes, int], ...]] = {}

    def play(self, line: str) -> str | None:
        """The answer, if the line is a heartbeat."""
        step, *arguments = line.partition(" -> ")[0].split(" ")
        match step:
            case "create":
                self.world.topics.create(f"@{arguments[0]}", int(arguments[1]))
            case "grow":
                self.world.topics.grow(f"@{arguments[0]}", int(arguments[1]))
            case "delete":
                self.world.topics.delete(f"@{arguments[0]}")
            case "wait":
                self.world.wall_ms += int(arguments[0])
            case _:
                return self._beat(step, arguments)
        return None

    def _beat(self, member_id: str, arguments: list[str]) -> str:
        self.world.wall_ms += 1
        fields = self._fields(member_id, arguments)
        epoch = int(fields.pop("epoch", self._epochs.get(member_id, 0)))
        if epoch == 0:
            fields = {"rebalance_timeout_ms": 60_000, "owned": (), "server_assignor": "range", **fields}
        try:
            reply = self.world.heartbeat(member_id, epoch, **fields)
        except CoordinatorError as error:
            return f"{error.code.name} {error}"
        self._note_records()
        self._epochs[member_id] = reply.member_epoch
        if reply.assigned is not None:
            self._told[member_id] = reply.assigned
        if self.world.plan.regexes_to_resolve:
            self.world.resolve()
            self._note_records()
        return f"{reply.member_epoch}" + ("" if reply.assigned is None else f" [{self._text(reply.assigned)}]")

    def _fields(self, member_id: str, arguments: list[str]) -> dict[str, Any]:
        fields: dict[str, Any] = dict(item.split("=", 1) for item in arguments if "=" in item)
        if "topics" in fields:
            fields["topics"] = tuple(f"@{name}" for name in fields["topics"].split(",") if name)
        if "owns" in arguments:
            fields["owned"] = self._told.get(member_id, ())
        return fields

    def _note_records(self) -> None:
        self.key_types += self.world.key_types()

    def _text(self, partitions: tuple[tuple[bytes, int], ...]) -> str:
        names = {self.world.topics.topic_id(name): name[1:] for name in self.world.topics.names()}
        return " ".join(sorted(f"{names[topic_id]}-{number}" for topic_id, number in partitions))


@pytest.mark.parametrize("name", SCENARIOS)
def test_regular_expressions_as_in_kafka(name: str) -> None:
    *lines, records = SCENARIOS[name]
    recorded = Recorded()
    answers = [(line, recorded.play(line)) for line in lines]
    expected = [(line, line.partition(" -> ")[2] or None) for line in lines]
    assert answers == expected
    assert recorded.key_types == [int(text) for text in records.removeprefix("records:").split()]


# When a resolution begins --------------------------------------------------------------------------------------------


@pytest.fixture
def world() -> World:
    """Member m has a resolved expression, t.*, and all partitions."""
    world = World(Topics(t=1))
    join(world, "m", "t.*")
    world.resolve()
    world.beat("m", 1)
    assert (world.assigned("m"), world.phase) == ("t0", "Stable")
    return world


def join(world: World, member_id: str, regex: str, *topics: str) -> None:
    world.join(member_id, *topics, regex=regex)


def begins(world: World) -> set[str]:
    world.beat("m", world.state.members["m"].current.member_epoch)
    return set(world.plan.regexes_to_resolve)


def test_nothing_is_resolved_without_a_reason(world: World) -> None:
    world.wall_ms += 10_001
    assert begins(world) == set()
    world.wall_ms += 600_000
    assert begins(world) == {"t.*"}


@pytest.mark.parametrize(("since_ms", "expected"), [(10_000, set()), (10_001, {"t.*"})])
def test_new_topics_wait_until_the_last_result_is_old(world: World, since_ms: int, expected: set[str]) -> None:
    world.topics.create("u", 1)
    world.wall_ms += since_ms
    assert begins(world) == expected


def test_topics_that_grow_or_are_deleted_are_no_reason(world: World) -> None:
    world.topics.grow("t", 2)
    world.wall_ms += 10_001
    assert begins(world) == set()
    world.topics.delete("t")
    assert begins(world) == set()


def test_one_resolution_at_a_time(world: World) -> None:
    world.topics.create("u", 1)
    world.wall_ms += 10_001
    world.is_resolving = True
    assert begins(world) == set()
    world.is_resolving = False
    assert begins(world) == {"t.*"}


def test_a_result_from_before_a_restart_may_have_missed_topics(world: World) -> None:
    world.wall_ms += 10_001
    world.state.seen = world.state.seen._replace(regexes_version=None)
    assert begins(world) == {"t.*"}
    world.resolve()
    world.wall_ms += 10_001
    assert begins(world) == set()


def test_a_result_of_the_future_does_not_count(world: World) -> None:
    """The clock was set back. Otherwise nothing would be resolved until it is there again."""
    world.topics.create("u", 1)
    world.wall_ms -= 100_000
    assert begins(world) == {"t.*"}


def test_all_expressions_of_a_group_are_resolved_together(world: World) -> None:
    world.wall_ms += 10_001
    join(world, "n", "u.*")
    assert set(world.plan.regexes_to_resolve) == {"t.*", "u.*"}


def test_an_expression_that_is_dropped_is_not_resolved(world: World) -> None:
    world.wall_ms += 10_001
    world.beat("m", 2, regex="u.*", owned="t0")
    assert set(world.plan.regexes_to_resolve) == {"u.*"}


def test_a_group_without_expressions_resolves_nothing(world: World) -> None:
    world.wall_ms += 1_000_000
    world.beat("m", 2, regex="", topics=("t",))
    assert world.plan.regexes_to_resolve == ()
    assert begins(world) == set()


# What changes --------------------------------------------------------------------------------------------------------


def test_a_result_for_an_expression_that_nobody_has_any_more_is_dropped(world: World) -> None:
    world.beat("m", 2, regex="", topics=("t",), owned="t0")
    epoch = world.state.epoch.epoch
    world.resolve("t.*")
    assert (world.key_types(), world.state.regexes, world.state.epoch.epoch) == ([], {}, epoch)


def test_a_result_that_changes_nothing_is_recorded_without_an_epoch(world: World) -> None:
    world.wall_ms += 20_000
    world.resolve("t.*")
    assert world.key_types() == [16]
    assert world.state.regexes["t.*"].timestamp_ms == world.wall_ms


def test_a_result_finds_a_topic_that_has_grown(world: World) -> None:
    world.topics.grow("t", 2)
    world.resolve("t.*")
    assert world.key_types() == [16, 3]
    assert world.state.seen.topics_version == world.topics.version


def test_the_last_member_that_leaves_takes_its_expression_along(world: World) -> None:
    join(world, "n", "t.*")
    world.remove("m")
    assert world.key_types() == [-8, -7, -5, 3]
    world.remove("n")
    assert world.key_types() == [-8, -7, -5, -16, 3]
    assert (world.state.regexes, world.state.regex_members) == ({}, {})
    assert world.state.epoch.metadata_hash == 0


def test_a_static_member_keeps_its_expression_while_it_is_away() -> None:
    world = World(Topics(t=1))
    world.join("m", regex="t.*", instance_id="seat")
    world.resolve()
    world.beat("m", 1, instance_id="seat")
    world.beat("m", -2, instance_id="seat")
    world.join("m2", regex="t.*", instance_id="seat")
    assert world.state.regex_members == {"t.*": 1}
    assert world.assigned("m2") == "t0"


def test_invalid_expressions_are_refused_when_they_are_new(world: World) -> None:
    assert world.error_of("m", 2, regex="t(") is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert world.state.members["m"].about.regex == "t.*"
    world.regexes = NoRegexes()
    assert world.error_of("m", 2, regex="u.*") is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert world.error_of("m", 2, regex="t.*") is ErrorCode.NONE
    assert world.error_of("m", 2, regex="") is ErrorCode.NONE


def test_without_a_library_the_text_says_so(world: World) -> None:
    world.regexes = NoRegexes()
    with pytest.raises(CoordinatorError, match=r"^SubscribedTopicRegex `u` cannot be used: .* name the topics\.$"):
        world.beat("m", 2, regex="u")


def test_the_refresh_interval_is_a_setting() -> None:
    world = World(Topics(t=1), ConsumerGroupSettings(assignment_interval_ms=0, regex_refresh_interval_ms=60_000))
    join(world, "m", "t.*")
    world.resolve()
    world.beat("m", 1)
    world.wall_ms += 60_000
    assert begins(world) == set()
    world.wall_ms += 1
    assert begins(world) == {"t.*"}


# Subscriptions -------------------------------------------------------------------------------------------------------


def test_the_topics_of_a_member_are_a_union() -> None:
    world = World(Topics(t=1, u=1, v=1))
    join(world, "m", "t|u", "u", "v")
    about = world.state.members["m"].about
    assert run_steps(topics_of(about, {})) == ("u", "v")
    assert run_steps(topics_of(about, {"t|u": RegexValue(("t", "u"))})) == ("t", "u", "v")
    assert run_steps(topics_of(about, {"t|u": RegexValue(())})) == ("u", "v")
    assert run_steps(topics_of(about._replace(topics=()), {"t|u": RegexValue(("t", "u"))})) == ("t", "u")


@pytest.mark.parametrize(
    ("subscriptions", "expected"),
    [
        (["t", "t"], True),
        (["t", "u"], False),
        (["/t.*", "/t.*"], True),
        (["/t.*", "/u.*"], False),
        (["/t.*", "t"], False),
        (["t/t.*", "t/t.*"], False),
        (["", ""], True),
    ],
)
def test_which_subscriptions_are_equal(subscriptions: list[str], expected: bool) -> None:
    """Names and expression of each member."""
    world = World(Topics(t=1, u=1))
    for number, text in enumerate(subscriptions):
        names, _, regex = text.partition("/")
        join(world, f"m{number}", regex, *names.split())
    assert subscribe_equally(world.state.subscriptions) is expected


def test_replay_counts_the_members_of_an_expression(world: World) -> None:
    join(world, "n", "t.*")
    join(world, "o", "u.*")
    assert world.state.regex_members == {"t.*": 2, "u.*": 1}
    world.state.replay(RegexRecord("g", "t.*", None))
    assert world.state.regex_members == {"t.*": 2, "u.*": 1}
    assert world.state.copy().regex_members == world.state.regex_members


def test_result_of_many_regular_expressions_is_compared_in_steps(world: World) -> None:
    """Each of them may match all topics of the server."""
    for number in range(50):
        world.join(f"m{number}", regex=f"t{number}.*")
    results = {regex: RegexValue(("t1",), 1, 1) for regex in world.state.regex_members}
    steps = apply_result(world.state, results, world, Plan())
    assert sum(1 for _ in steps) >= len(results) == 51
