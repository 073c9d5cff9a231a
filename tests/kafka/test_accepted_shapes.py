"""The largest requests that are accepted, generated from the schemas: no piece of their work holds the event loop.

Each array has as many items as the limit of its API allows, equal or different ones. The clocks let each turn of the
loop do one piece of the work. The CPU time of the longest turn is compared with a reference that is measured in the
same run, and is the best of three attempts. So it depends neither on the machine nor on what else runs there.

Those of ``SAMPLE`` are sent by default. ``CALLBOARD_ACCEPTED_SHAPES`` is the beginning of other names, or "all".
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest
from harness import MemoryClient, NodeHarness, async_test, random_entity, random_item, running_node
from kio.serial import _introspect as introspect
from peers.wire import message_type
from request_helpers import arrays, encode_body, encode_request
from request_shapes import REQUESTS, Shape, numbered, repeated, shapes
from work_counter import _no_garbage_collection, _one_step_a_turn, endless_clock

from callboard.runtime.kafka.api import Api
from callboard.runtime.kafka.codec.schemas import schema
from callboard.runtime.node.environment import Environment, WorkClocks

__all__ = ["_no_garbage_collection", "_one_step_a_turn"]

PIECE_MAX = 14
"""The longest piece, in references of about a third of a millisecond: 5 ms."""

ATTEMPTS = 3
IDLE_TURNS = 30_000  # without a response: the request is parked
ITEMS_SPARE = 4  # for the entity around the array, and its other arrays
FIRST = 100_000
"""The number in the first item. All have the same length."""

WANTED = os.environ.get("CALLBOARD_ACCEPTED_SHAPES", "")
SAMPLE = (
    "join_group protocols",
    "list_groups states_filter different",
    "list_groups types_filter different",
    "offset_fetch groups equal",
    "sync_group assignments",
)


def is_wanted(name: str) -> bool:
    return WANTED == "all" or name.startswith(WANTED or SAMPLE)


def item_count(item: Any) -> int:
    """An item with all items of its arrays."""
    if not is_dataclass(item):
        return 1
    values = [(introspect.classify_field(field).is_array, getattr(item, field.name)) for field in fields(item)]
    return 1 + sum(item_count(each) for is_array, value in values if is_array for each in value or ())


def accepted(api: Api, version: int, items_max: int) -> Iterator[Shape]:
    """For each array of a version, the request with most items."""
    request = random_entity(message_type(api.name, version, "request"), Random(3))
    for inner, field, rebuild in arrays(request):
        item = random_item(field, introspect.classify_field(field).type_, Random(5))
        size = (items_max - item_count(request) - ITEMS_SPARE) // item_count(item)
        values = ((), None, (numbered(item, FIRST),))
        empty, null, one = (encode_body(rebuild(replace(inner, **{field.name: value}))) for value in values)
        body = repeated(empty, null, one, size, type(inner).__flexible__)
        yield Shape(f"{api.name} {field.name} equal", size, body)
        for marker, numbers in ((b"n%d" % FIRST, names()), (UUID(int=FIRST + 1).bytes, ids())):
            if body.count(marker) == size:
                different = re.sub(re.escape(marker), lambda _match, numbers=numbers: next(numbers), body)  # type: ignore[misc]
                yield Shape(f"{api.name} {field.name} different", size, different)


def names() -> Iterator[bytes]:
    return (b"n%d" % number for number in count(FIRST))


def ids() -> Iterator[bytes]:
    return (UUID(int=number).bytes for number in count(FIRST))


def reference_s(data: bytes) -> float:
    """CPU time for decoding a thousand partitions at once, the best of ten."""
    times = []
    for _ in range(10):
        began_s = time.thread_time()
        schema("offset_commit", 9).read(data, 0)
        times.append(time.thread_time() - began_s)
    return min(times)


def reference_body() -> bytes:
    request_type = message_type("offset_commit", 9, "request")
    commit = random_entity(request_type, Random(3))
    topic = random_entity(introspect.classify_field(field_of(request_type, "topics")).type_, Random(3))
    partition_field = field_of(type(topic), "partitions")
    partition = random_item(partition_field, introspect.classify_field(partition_field).type_, Random(5))
    partition = replace(partition, committed_metadata=None)
    return encode_body(replace(commit, topics=(replace(topic, partitions=(partition,) * 1_000),)))


def field_of(entity_type: Any, name: str) -> Any:
    return next(field for field in fields(entity_type) if field.name == name)


async def longest_turn_s(harness: NodeHarness, data: bytes) -> float:
    """CPU time of the longest turn of the loop, until the request is freed."""
    client, longest_s, idle_turns = MemoryClient(harness.node), 0.0, 0
    began_s = time.thread_time()
    client.feed(data)
    while len(harness.node.services.slices) or not (client.transport.written or idle_turns > IDLE_TURNS):
        await asyncio.sleep(0)
        now_s = time.thread_time()
        longest_s, began_s = max(longest_s, now_s - began_s), now_s
        idle_turns = 0 if len(harness.node.services.slices) else idle_turns + 1
    assert not client.is_closed, "the request is accepted"
    client.close()
    await asyncio.sleep(0)
    return longest_s


APIS_WANTED = {name.split()[0] for name in ([WANTED] if WANTED else SAMPLE)}
CASES = [(api, version) for api, version in REQUESTS if WANTED == "all" or api.name in APIS_WANTED]


@pytest.mark.usefixtures("_no_garbage_collection", "_one_step_a_turn")
@pytest.mark.parametrize(("api", "version"), CASES, ids=[f"{api.name}-v{version}" for api, version in CASES])
@async_test
async def test_no_piece_of_the_largest_request_is_long(tmp_path: Path, api: Api, version: int) -> None:
    flexible = message_type(api.name, version, "request").__flexible__
    environment = Environment(work_clocks=WorkClocks(slice_ns=endless_clock(), budget_ns=lambda: 0))
    async with running_node(tmp_path, {"sync": "none"}, environment=environment) as harness:
        items_max = getattr(harness.node.settings, api.limit)
        for shape in shapes(api, version, 10):  # loads the API
            await longest_turn_s(harness, encode_request(api.key, version, shape.body, flexible))
        slow, reference = [], reference_body()
        for shape in accepted(api, version, items_max):
            if not is_wanted(shape.name):
                continue
            data = encode_request(api.key, version, shape.body, flexible)
            pieces: list[float] = []
            while len(pieces) < ATTEMPTS and not (pieces and min(pieces) < PIECE_MAX):
                pieces.append(await longest_turn_s(harness, data) / reference_s(reference))
            if min(pieces) >= PIECE_MAX:
                slow.append(f"{shape.name}, {shape.size} items: a piece of {min(pieces):.0f} references")
        assert slow == []
        assert harness.node.services.over_limit.counts[api.limit] == 0
