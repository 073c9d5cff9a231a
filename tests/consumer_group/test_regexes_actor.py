"""Regular expressions are resolved in the background of a group's actor, and the result is a decision of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from consumer_group.actor_world import GROUP, ActorWorld

from callboard.actors.consumer_group.decision_size import decision_size
from callboard.actors.consumer_group.environment import ConsumerGroupPorts
from callboard.actors.consumer_group.messages import RegexesResolved
from callboard.actors.consumer_group.records import RegexValue
from callboard.actors.consumer_group.regexes import only_describable
from callboard.actors.consumer_group.state import GroupState
from callboard.actors.errors import ErrorCode
from callboard.actors.messages import OffsetDelete
from callboard.actors.steps import ITEMS_PER_STEP, Steps, pieces, run_steps


class Regexes:
    """``RegexMatcher`` of Python."""

    def problem(self, regex: str) -> str | None:
        return "is not valid." if "(" in regex else None

    def find(self, regexes: Collection[str], names: Collection[str]) -> Mapping[str, tuple[str, ...]]:
        if "broken" in regexes:
            raise OSError
        return {regex: tuple(name for name in sorted(names) if re.fullmatch(regex, name)) for regex in regexes}


class HeldWork:
    """``BackgroundWork`` that is done when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []

    def run(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.waiting.append((work, done))

    def finish(self, world: ActorWorld) -> None:
        works, self.waiting = self.waiting, []
        for work, done in works:
            done(work())
        world.run()


def regex_world() -> tuple[ActorWorld, HeldWork]:
    background = HeldWork()
    return ActorWorld(consumer_groups=ConsumerGroupPorts(regexes=Regexes(), background=background)), background


def join(world: ActorWorld, member_id: str, regex: str) -> Any:
    return world.beat(member_id, 0, rebalance_timeout_ms=60_000, regex=regex, owned="")


def test_member_has_its_topics_with_the_heartbeat_after_the_result() -> None:
    world, background = regex_world()
    assert world.told(join(world, "a", "j.*")) == (1, "")
    assert world.told(world.beat("a", 1)) == (1, None)
    assert len(background.waiting) == 1, "one at a time"
    background.finish(world)
    assert world.key_types() == [16, 3]
    assert world.told(world.beat("a", 1, owned="")) == (2, "jobs0 jobs1 jobs2")
    assert world.post(OffsetDelete(GROUP, (("jobs", (0,)), ("t", (0,))))).value.topics == (
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.NONE,
    )


def test_invalid_regex_creates_no_group() -> None:
    world, _background = regex_world()
    assert join(world, "a", "(").value.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert world.listed() == ()
    assert world.beat("a", 1, regex="(").value.error is ErrorCode.GROUP_ID_NOT_FOUND


def test_result_waits_for_the_entry_in_flight() -> None:
    world, background = regex_world()
    world.holds_appends = True
    reply = join(world, "a", "j.*")
    background.finish(world)
    assert reply.is_waiting
    world.complete_append()
    assert world.told(reply) == (1, "")
    world.complete_append()
    world.holds_appends = False
    assert world.told(world.beat("a", 1, owned="")) == (2, "jobs0 jobs1 jobs2")


def test_topics_that_the_sender_may_not_describe_are_left_out() -> None:
    """The filter is that of the heartbeat that lets the expression be resolved, and is asked once."""
    world, background = regex_world()
    asked: list[Collection[str]] = []

    def describable(names: Collection[str]) -> Steps[Collection[str]]:
        asked.append(names)
        yield
        return [name for name in names if name != "jobs"]

    reply = world.beat("a", 0, rebalance_timeout_ms=60_000, regex="t|jobs", owned="", describable=describable)
    assert world.told(reply) == (1, "")
    background.finish(world)
    assert asked == [["jobs", "t"]]
    assert world.told(world.beat("a", 1, owned="", describable=None))[1] == "t0 t1 t2"


def test_new_topic_is_found_after_the_interval() -> None:
    world, background = regex_world()
    join(world, "a", "j.*")
    background.finish(world)
    world.beat("a", 1, owned="")
    world.topics_view.counts["java"] = 1
    world.topics_view.version = world.topics_view.created_version = world.topics_view.version + 1
    world.advance(10_001)
    world.beat("a", 2)
    background.finish(world)
    assert world.told(world.beat("a", 2))[1] == "java0 jobs0 jobs1 jobs2"


def test_invalid_expression_is_refused_with_its_text() -> None:
    world, _ = regex_world()
    value = join(world, "a", "t(").value
    assert (value.error, value.message) == (
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        "SubscribedTopicRegex `t(` is not valid.",
    )


def test_failure_in_the_background_is_tried_again() -> None:
    world, background = regex_world()
    join(world, "a", "broken")
    background.finish(world)
    world.beat("a", 1)
    assert len(background.waiting) == 1


def test_result_for_a_group_that_has_gone_is_dropped() -> None:
    world, background = regex_world()
    join(world, "a", "j.*")
    world.beat("a", -1)
    world.advance(180_000)
    assert list(world.directory.passivated) == [GROUP]
    background.finish(world)
    assert world.key_types()[-1] == 3, "the leave was the last to write"


def test_expressions_are_resolved_again_after_a_restart() -> None:
    world, background = regex_world()
    join(world, "a", "j.*")
    background.finish(world)
    world.beat("a", 1, owned="")
    restarted = world.restarted()
    assert restarted.assigned() == {"a": "jobs0 jobs1 jobs2"}
    assert restarted.told(restarted.beat("a", 2)) == (2, None)


def test_many_topics_are_filtered_in_steps() -> None:
    """Between them the loop serves others."""
    names = tuple(f"t{number:04}" for number in range(1000))

    def describable(asked: Collection[str]) -> Steps[Collection[str]]:
        for _ in pieces(asked):
            yield
        return [name for name in asked if name != "t0007"]

    result = RegexesResolved(GROUP, {regex: RegexValue(names) for regex in ("t.*", "t.+")}, describable)
    assert decision_size(GroupState(GROUP), result) == 2 * len(names)
    assert len(list(only_describable(result))) > len(names) // ITEMS_PER_STEP
    shown = run_steps(only_describable(result))
    assert {regex: len(value.topics) for regex, value in shown.items()} == {"t.*": 999, "t.+": 999}
