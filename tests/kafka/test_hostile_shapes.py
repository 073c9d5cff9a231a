"""Very long requests, generated from the schemas: none holds the event loop.

Each array of each request has 10 to 100,000 items, equal or different ones, or strings of the greatest length. The CPU
time of each turn of the loop, and that of the whole request, is compared with a reference that is measured in the same
run. Each version of a request that has other arrays than the one before it is sent.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from harness import MemoryClient, NodeHarness, async_test, frame, random_entity, random_item, running_node
from kio.serial import _introspect as introspect
from peers.wire import message_type
from request_helpers import arrays, encode_body, encode_request
from tag_helpers import uvarint

from callboard.runtime.kafka.api import APIS, Api
from callboard.runtime.kafka.codec.schemas import schema
from callboard.runtime.settings.table import Settings

SIZES = (10, 1_000, 9_900, 100_000)
DIFFERENT_MAX = 1_000
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


class Shape(NamedTuple):
    """A request with one long array."""

    name: str
    size: int
    body: bytes


def array_names(entity_type: Any) -> Iterator[str]:
    """The arrays of a request or of an entity in it, with their types."""
    for field in fields(entity_type):
        kind = introspect.classify_field(field)
        if kind.is_array:
            yield f"{field.name} {kind.type_.__name__}"
        if is_dataclass(kind.type_):
            yield from array_names(kind.type_)


def versions(api: Api) -> Iterator[int]:
    """The newest version, and each one whose arrays differ from those of the next one."""
    arrays_of_next: list[str] = []
    for version in range(api.max_version, api.min_version - 1, -1):
        names = [*array_names(message_type(api.name, version, "request"))]
        if names != arrays_of_next or version == api.max_version:
            yield version
        arrays_of_next = names


REQUESTS = [(api, version) for api in APIS for version in versions(api)]
each_request = pytest.mark.parametrize(
    ("api", "version"), REQUESTS, ids=[f"{api.name}-v{version}" for api, version in REQUESTS]
)


def shapes(api: Api, version: int, size: int) -> Iterator[Shape]:
    """For each array of a version: the same item ``size`` times, and up to a thousand different items."""
    request = random_entity(message_type(api.name, version, "request"), Random(3))
    for inner, field, rebuild in arrays(request):
        item = random_item(field, introspect.classify_field(field).type_, Random(5))
        empty, null, one = (encode_body(rebuild(replace(inner, **{field.name: v}))) for v in ((), None, (item,)))
        yield Shape(f"{api.name} {field.name} equal", size, repeated(empty, null, one, size, type(inner).__flexible__))
        if size <= DIFFERENT_MAX:
            items = tuple(numbered(item, number) for number in range(size))
            body = encode_body(rebuild(replace(inner, **{field.name: items})))
            yield Shape(f"{api.name} {field.name} different", size, body)


def repeated(empty: bytes, null: bytes, one: bytes, size: int, flexible: bool) -> bytes:
    """The request ``one`` with its item ``size`` times. ``empty`` and ``null`` show where the count is."""
    start = next(index for index, (byte, other) in enumerate(zip(empty, null, strict=False)) if byte != other)
    end = start + (1 if flexible else 4)
    item = one[end : len(one) - len(empty) + end]
    count = uvarint(size + 1) if flexible else size.to_bytes(4, "big")
    return empty[:start] + count + item * size + empty[end:]


def numbered(item: Any, number: int) -> Any:
    """The item with a number in its first field that is not an array: another one for each number."""
    if isinstance(item, str):
        return f"n{number}"
    if isinstance(item, bool) or not (isinstance(item, int | UUID) or is_dataclass(item)):
        return item
    if not is_dataclass(item):
        return UUID(int=number + 1) if isinstance(item, UUID) else number % 100
    names = [field.name for field in fields(item) if isinstance(getattr(item, field.name), str | UUID)]
    return replace(item, **{name: numbered(getattr(item, name), number) for name in names[:1]})  # type: ignore[type-var]


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


@pytest.fixture
def _no_garbage_collection() -> Iterator[None]:
    """The collector's pauses depend on the objects of other tests; ``serve`` sets it up in its own way."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


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
