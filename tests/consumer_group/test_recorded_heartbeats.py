"""Heartbeats are answered as by a real Kafka: same errors, texts, epochs and assignments.

``heartbeats.json.xz`` has 250 random sequences of heartbeats to a broker of Kafka 4.3.1, each to a group of its own,
named "g" here, with ``group.consumer.assignment.interval.ms=0``. "t0 u1" is partition 0 of t and partition 1 of u. The
members "c0", "c1", "d0" and "d1" are static.
"""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest
from consumer_group.actor_world import ActorWorld
from consumer_group.group_world import GROUP, Topics, World

from callboard.actors.consumer_group.checks import check_request
from callboard.actors.consumer_group.messages import JOIN_EPOCH, ConsumerHeartbeat, ConsumerHeartbeatReply
from callboard.actors.errors import CoordinatorError, ErrorCode

RECORDED: dict[str, Any] = json.loads(lzma.decompress(Path(__file__).with_name("heartbeats.json.xz").read_bytes()))

Values = dict[str, Any]


def recorded_world() -> World:
    topics = Topics()
    for name, (topic_id, count) in RECORDED["topics"].items():
        topics.add(name, bytes.fromhex(topic_id), count)
    return World(topics)


def answer(world: World, given: Values) -> Values:
    """The reply in the form of the recording."""
    fields = given | ({"topics": tuple(given["topics"])} if "topics" in given else {})
    fields |= {"client_id": "cli", "client_host": "/127.0.0.1"}
    try:
        if world.state.seen.members_max == 0:
            refuse_without_group(world, fields)
        reply = world.beat(fields.pop("member_id"), fields.pop("member_epoch"), **fields)
    except CoordinatorError as error:
        return {"error": int(error.code), "message": str(error)}
    told = {} if reply.assigned is None else {"assigned": world.text(reply.assigned)}
    return {"member_epoch": reply.member_epoch, "heartbeat_interval_ms": reply.heartbeat_interval_ms} | told


def answer_of_actor(world: ActorWorld, given: Values) -> Values:
    """The same by the whole coordinator."""
    fields = given | ({"topics": tuple(given["topics"])} if "topics" in given else {})
    fields |= {"client_id": "cli"}
    if fields.get("owned", "") is None:
        del fields["owned"]
    reply: ConsumerHeartbeatReply = world.beat(fields.pop("member_id"), fields.pop("member_epoch"), **fields).value
    if reply.error:
        return {"error": int(reply.error), "message": reply.message}
    told = {} if reply.assigned is None else {"assigned": world.text(reply.assigned)}
    return {"member_epoch": reply.member_epoch, "heartbeat_interval_ms": reply.heartbeat_interval_ms} | told


def recorded_actor_world() -> ActorWorld:
    world = ActorWorld()
    topics: dict[str, tuple[str, int]] = RECORDED["topics"]
    world.topics_view.counts = {name: count for name, (_, count) in topics.items()}
    world.topics_view.ids = {name: bytes.fromhex(topic_id) for name, (topic_id, _) in topics.items()}
    return world


def refuse_without_group(world: World, fields: Values) -> None:
    """The group does not exist yet, which the coordinator would find out before it asks the group."""
    owned = world.partitions(fields.get("owned"))
    request = ConsumerHeartbeat(GROUP, **(fields | {"owned": owned}))
    check_request(request, world.assignors)
    if request.member_epoch != JOIN_EPOCH:
        group = "Group" if request.member_epoch < 0 else "Consumer group"
        raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"{group} {GROUP} not found.")


@pytest.mark.parametrize("number", range(0, len(RECORDED["sequences"]), 25))
def test_as_kafka(number: int) -> None:
    for sequence in RECORDED["sequences"][number : number + 25]:
        world = recorded_world()
        answers = [answer(world, given) for given, _ in sequence]
        assert answers == [expected for _, expected in sequence]


@pytest.mark.parametrize("number", range(0, len(RECORDED["sequences"]), 25))
def test_the_actor_answers_as_kafka(number: int) -> None:
    for sequence in RECORDED["sequences"][number : number + 25]:
        world = recorded_actor_world()
        answers = [answer_of_actor(world, given) for given, _ in sequence]
        assert answers == [expected for _, expected in sequence]
        if GROUP in world.directory.groups:
            assert world.restarted().described() == world.described(), "a restart loads what is described"


def test_the_recording_has_what_can_happen() -> None:
    replies = [reply for sequence in RECORDED["sequences"] for _, reply in sequence]
    errors = {ErrorCode(reply["error"]) for reply in replies if "error" in reply}
    assert errors >= {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
    }
    assert len([reply for reply in replies if reply.get("assigned")]) > 500
