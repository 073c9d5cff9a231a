"""Very long requests, generated from the schemas: none holds the event loop.

Each array of each request has 10 to 100,000 items, equal or different ones, or strings of the greatest length. The CPU
time of each turn of the loop, and that of the whole request, is compared with a reference that is measured in the same
run. Each version of a request that has other arrays than the one before it is sent.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from harness import MemoryClient, NodeHarness, async_test, frame, random_entity, random_item, running_node
from kio.serial import _introspect as introspect
from peers.wire import message_type
from request_helpers import encode_body, encode_request
from request_shapes import each_request, shapes
from work_counter import _no_garbage_collection

from callboard.runtime.kafka.api import APIS, Api
from callboard.runtime.kafka.codec.schemas import schema
from callboard.runtime.settings.table import Settings

__all__ = ["_no_garbage_collection"]

SIZES = (10, 1_000, 9_900, 100_000)
STRING = "x" * 32_767
TURN_MAX = 75
"""The longest turn of the loop, in references of about half a millisecond. A slice takes 2 ms: the margin is wide."""

TOTAL_BASE, TOTAL_PER_ITEM = 100, 0.5
"""A request may take so many references, and so many more for each item. Most take a tenth."""

IDLE_TURNS = 300  # without a response: the request is parked, such as a JoinGroup
HEARTBEAT = frame("heartbeat", 4, group_id="g", generation_id=1, member_id="m", group_instance_id=None)


class Cost(NamedTuple):
    """CPU seconds: of the longest turn of the loop, and of all."""

    longest_s: float
    total_s: float


def with_longest_strings(entity: Any) -> Any:
    """The entity with the longest strings, and ten items in each array."""
    values = {}
    for field in fields(entity):
        kind, value = introspect.classify_field(field), getattr(entity, field.name)
        if kind.is_array:
            values[field.name] = (longest(random_item(field, kind.type_, Random(5))),) * 10
        elif introspect.get_field_tag(field) is None:
            values[field.name] = longest(value)
    return replace(entity, **values)


def longest(value: Any) -> Any:
    if is_dataclass(value):
        return with_longest_strings(value)
    return STRING if isinstance(value, str) else value


def total_max(size: int) -> float:
    """The budget of a request with so many items, in references."""
    return TOTAL_BASE + size * TOTAL_PER_ITEM


def reference_s() -> float:
    """CPU time for decoding a commit of a thousand partitions at once, the best of ten."""
    partition = {"partition_index": 1, "committed_offset": 1, "committed_leader_epoch": 1, "committed_metadata": None}
    topics = [{"name": "t", "partitions": [partition] * 1_000}]
    data = frame(
        *("offset_commit", 9),
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=topics,
        group_instance_id=None,
    )
    body = data[data.index(b"\x02g") :]
    times = []
    for _ in range(10):
        began_s = time.thread_time()
        assert len(schema("offset_commit", 9).read(body, 0)[0].topics[0].partitions) == 1_000
        times.append(time.thread_time() - began_s)
    return min(times)


async def cost_of(harness: NodeHarness, data: bytes) -> Cost:
    """Send a request on a connection of its own, and wait until it is answered, refused or parked."""
    client = MemoryClient(harness.node)
    longest_s, idle_turns = 0.0, 0
    first_s = began_s = time.thread_time()
    client.feed(data)
    while not (client.transport.written or client.is_closed) and idle_turns < IDLE_TURNS:
        await asyncio.sleep(0)
        now_s = time.thread_time()
        longest_s, began_s = max(longest_s, now_s - began_s), now_s
        idle_turns = 0 if len(harness.node.services.slices) else idle_turns + 1
    client.close()
    now_s = time.thread_time()
    return Cost(max(longest_s, now_s - began_s), now_s - first_s)


@pytest.mark.usefixtures("_no_garbage_collection")
@each_request
@async_test
async def test_long_request_stays_within_its_budgets(tmp_path: Path, api: Api, version: int) -> None:
    flexible = message_type(api.name, version, "request").__flexible__
    async with running_node(tmp_path, {"sync": "none"}) as harness:
        reference, slow = reference_s(), []
        for size in SIZES:
            for shape in shapes(api, version, size):
                cost = await cost_of(harness, encode_request(api.key, version, shape.body, flexible))
                turn, total = cost.longest_s / reference, cost.total_s / reference
                if turn > TURN_MAX or total > total_max(size):
                    slow.append((*shape[:2], f"a turn of {turn:.0f} references, {total:.0f} in all"))
        assert slow == []
        refused = sum(1 for _ in shapes(api, version, SIZES[-1]))
        assert harness.node.services.over_limit.counts[api.limit] == refused
        answers = MemoryClient(harness.node)
        answers.feed(HEARTBEAT)
        assert len(await answers.answered(1)) == 1


@pytest.mark.usefixtures("_no_garbage_collection")
@each_request
@async_test
async def test_longest_strings_stay_within_their_budgets(tmp_path: Path, api: Api, version: int) -> None:
    flexible = message_type(api.name, version, "request").__flexible__
    entity = with_longest_strings(random_entity(message_type(api.name, version, "request"), Random(3)))
    async with running_node(tmp_path, {"sync": "none"}) as harness:
        reference = reference_s()
        cost = await cost_of(harness, encode_request(api.key, version, encode_body(entity), flexible))
        assert cost.longest_s < TURN_MAX * reference
        assert cost.total_s < total_max(SIZES[0] ** 3) * reference


def test_longest_arrays_are_above_every_limit() -> None:
    assert max(getattr(Settings(), api.limit) for api in APIS) < SIZES[-1]
