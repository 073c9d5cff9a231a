"""A heartbeat that changes nothing is answered without a decision, with the reply that a decision would give.

``World.heartbeat`` compares both for each heartbeat.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pytest
from consumer_group.actor_world import ActorWorld
from consumer_group.group_world import GROUP, Topics, World

from callboard.actors.consumer_group.messages import ConsumerHeartbeat
from callboard.actors.consumer_group.unchanged import unchanged_reply
from callboard.actors.errors import CoordinatorError

INSTANCES = {"a": None, "b": "i", "c": "j", "d": "j"}
TIMES_MS = (100, 5_000, 11_000, 600_001)


def subscription(random: Random, has_regexes: bool) -> dict[str, Any]:
    named = {"topics": random.choice((("t",), ("t", "u"), ()))}
    return random.choice((named, named, {"regex": random.choice(("t.*", "u", ""))} if has_regexes else named))


def random_heartbeat(world: World, random: Random, has_regexes: bool) -> None:
    """Mostly one that changes nothing. Others repeat fields, say what they own, come late, join, leave, are static."""
    member_id, instance_id = random.choice(list(INSTANCES.items()))
    member = world.state.members.get(member_id)
    fields: dict[str, Any] = {"instance_id": random.choice((instance_id, instance_id, None, "i"))}
    epoch = 0 if member is None else member.current.member_epoch
    if member is None or random.random() < 0.05:
        epoch = random.choice((0, 0, epoch, epoch + 1))
        fields |= {"rebalance_timeout_ms": 60_000, "owned": (), **subscription(random, has_regexes)}
    elif random.random() < 0.05:
        epoch = random.choice((-1, -2, epoch - 1))
    elif random.random() < 0.3:
        fields["owned"] = tuple(member.current.assigned)
    elif random.random() < 0.2:
        fields |= random.choice(
            ({"rack_id": "r"}, {"client_id": "other"}, {"client_host": "h"}, subscription(random, has_regexes))
        )
    with suppress(CoordinatorError):
        world.heartbeat(member_id, epoch, **fields)


@pytest.mark.parametrize("has_regexes", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_both_ways_give_the_same_reply(seed: int, has_regexes: bool) -> None:
    random, world = Random(seed), World(Topics(t=3, u=2))
    for _ in range(400):
        change = random.random()
        if change < 0.02:
            world.topics.grow("t", (world.topics.partition_count("t") or 0) + 1)
        elif change < 0.03:
            world.topics.create(f"t{world.topics.version}", 1)
        elif change < 0.06:
            world.wall_ms += random.choice(TIMES_MS)
        elif change < 0.12 and world.plan.regexes_to_resolve:
            world.resolve()
        elif change > 0.98:
            world.settings = world.settings._replace(heartbeat_interval_ms=random.choice((1_000, 5_000)))
        random_heartbeat(world, random, has_regexes)
    assert world.unchanged > 20


def test_a_repeated_heartbeat_is_compared_with_the_state_once() -> None:
    """Until a record changes the state, the topics change, or the heartbeat is another one."""
    world = World(Topics(t=2))
    world.join("a", "t")
    request = ConsumerHeartbeat(GROUP, "a", world.beat("a", 2, owned="").member_epoch)
    reply = unchanged_reply(world.state, request, world)
    assert reply is not None
    assert unchanged_reply(world.state, request, world) is reply
    assert unchanged_reply(world.state, request._replace(member_epoch=1), world) is None
    world.topics.create("u", 1)
    assert unchanged_reply(world.state, request, world) is None
    world.beat("a", 2)
    assert unchanged_reply(world.state, request, world) is reply
    world.join("b", "t")
    assert unchanged_reply(world.state, request, world) is None


def test_static_members_and_those_with_regular_expressions_take_the_short_way() -> None:
    world = World(Topics(t=2))
    world.join("a", instance_id="i", regex="t.*")
    world.resolve()
    epoch = world.beat("a", 1, owned="").member_epoch
    world.unchanged = 0
    world.beat("a", epoch, instance_id="i")
    assert world.unchanged == 1
    world.topics.create("t2", 1)
    world.beat("a", epoch, instance_id="i")
    world.wall_ms += TIMES_MS[-1]
    world.beat("a", epoch, instance_id="i")
    assert world.unchanged == 1 and world.plan.regexes_to_resolve


def test_heartbeat_that_changes_nothing_renews_the_session_and_writes_nothing() -> None:
    world = ActorWorld()
    world.join("a", instance_id="i")
    world.settle("a")
    appends, epoch = len(world.log.rounds), world.consumer_group.soft.epoch.epoch
    for _ in range(4):
        world.advance(30_000)
        assert world.told(world.beat("a", epoch, instance_id="i")) == (epoch, None)
    assert len(world.log.rounds) == appends
    world.advance(46_000)
    assert not world.consumer_group.soft.members
