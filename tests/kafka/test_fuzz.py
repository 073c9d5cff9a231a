"""A hundred thousand damaged requests of every API and version: they may close connections, and have no other effect.

Each frame is a valid request with one or several kinds of damage that broken clients and attackers cause. It is fed to
a connection that handles it at once: not to one with a pending request or an incomplete frame, or one that is closing.
Reference groups are described before and after; the requests contain their group ids, but not their member ids.
Frames are drawn from a seed, ``CALLBOARD_FUZZ_SEED``; ``CALLBOARD_FUZZ_FRAMES`` says how many.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
import uvloop
from harness import (
    Client,
    Member,
    MemoryClient,
    NodeHarness,
    commit_values,
    framed,
    heartbeat_values,
    join_and_sync,
    random_entity,
    running_node,
)
from peers.wire import message_type
from request_helpers import API_VERSIONS, array_requests, encode_body, encode_request

from callboard.runtime.kafka.api import Api

FRAMES = int(os.environ.get("CALLBOARD_FUZZ_FRAMES", "100000"))
SEED = int(os.environ.get("CALLBOARD_FUZZ_SEED", "20261122"))
MEMORY_BYTES_MAX = 2**30  # for the valid requests; sizes in frames must not be allocated
REQUEST_BYTES_MAX = 1_000_000
VARIANTS = 4  # valid requests per version
FRAMES_A_TURN = 10
FRAMES_A_BEAT = 100
CONNECTIONS_MAX = 50  # with pending requests; then the oldest disconnects
WATCHED = ("watched-1", "watched-2", "watched-3")

CANNOT_TOUCH = ("heartbeat", "leave_group", "sync_group", "offset_commit", "describe_groups", "delete_groups")
"""Requests that may name a reference group: without a member id they are refused, or only read."""

OF_PARTITIONS = ("offset_commit", "txn_offset_commit", "offset_delete")
NOBODY = {"member_id": "", "generation_id_or_member_epoch": -1, "group_instance_id": None}
"""The fields of a commit without a member, which a reference group refuses."""


class Payload(NamedTuple):
    """A valid request without its size, its entity, and the position of an array count."""

    api: Api
    version: int
    entity: Any
    data: bytes
    counts: tuple[tuple[bytes, int], ...]  # requests with an empty array, and the position of its count

    @property
    def is_flexible(self) -> bool:
        flexible: bool = type(self.entity).__flexible__
        return flexible


def payloads(chance: Random) -> list[Payload]:
    """Valid requests of every version. Topics are not deleted, so that commits succeed."""
    made = []
    for api, version in API_VERSIONS:
        if api.name == "delete_topics":
            continue
        types = message_type(api.name, version, "request")
        counts = tuple(
            (encode_request(api.key, version, body, types.__flexible__)[4:], place + head_bytes(types.__flexible__))
            for _, _, body, place in array_requests(api, version)
        )
        for _ in range(VARIANTS):
            entity = name_a_partition(api, name_a_watched_group(api, random_entity(types, chance), chance), chance)
            data = encode_request(api.key, version, encode_body(entity), types.__flexible__)[4:]
            made.append(Payload(api, version, entity, data, counts))
    return made


def head_bytes(is_flexible: bool) -> int:
    """Key, version, correlation id, client id "wire", and the tags of a flexible header."""
    return 15 if is_flexible else 14


def name_a_watched_group(api: Api, entity: Any, chance: Random) -> Any:
    if api.name in CANNOT_TOUCH and hasattr(entity, "group_id") and chance.random() < 0.5:
        return replace(entity, group_id=chance.choice(WATCHED))
    return entity


def name_a_partition(api: Api, entity: Any, chance: Random) -> Any:
    """Commits to unknown partitions are not sent to a group."""
    if api.name not in OF_PARTITIONS or chance.random() < 0.3:
        return entity
    topics = tuple(
        replace(topic, name="t", partitions=tuple(replace(one, partition_index=0) for one in topic.partitions))
        for topic in entity.topics
        if hasattr(topic, "name")
    )
    nobody = {name: value for name, value in NOBODY.items() if hasattr(entity, name)}
    return replace(entity, topics=topics or entity.topics, **nobody)


# Ways to damage a request ---------------------------------------------------------------------------------------------


def uvarint(value: int) -> bytes:
    return bytes((value & 0x7F | 0x80,)) + uvarint(value >> 7) if value > 0x7F else bytes((value,))


def flip_bits(payload: Payload, chance: Random) -> bytes:
    damaged = bytearray(payload.data)
    for _ in range(chance.choice((1, 1, 2, 8))):
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
    return framed(bytes(damaged))


def cut(payload: Payload, chance: Random) -> bytes:
    """A wrong frame size: too small, or too large, so that it includes bytes of the next frame."""
    size = chance.randrange(len(payload.data))
    return framed(payload.data[:size]) if chance.random() < 0.8 else framed(payload.data)[: 4 + size]


def spoil_a_count(payload: Payload, chance: Random) -> bytes:
    if not payload.counts:
        return flip_bits(payload, chance)
    data, place = chance.choice(payload.counts)
    if payload.is_flexible:
        spoilt = chance.choice((b"\0", b"\x02", uvarint(2**31), uvarint(2**32 - 1), b"\xff\xff\xff\xff\xff\x01"))
        return framed(data[:place] + spoilt + data[place + 1 :])
    spoilt = chance.choice((-1, -2, -(2**31), 1, 70_000, 2**31 - 1)).to_bytes(4, "big", signed=True)
    return framed(data[:place] + spoilt + data[place + 4 :])


def lengthen_arrays(payload: Payload, chance: Random) -> bytes:
    """A valid request with repeated array items."""
    times = chance.choice((2, 3, 30))
    longer = {
        field.name: value * times
        for field in fields(payload.entity)
        if isinstance(value := getattr(payload.entity, field.name), tuple)
    }
    entity = replace(payload.entity, **longer)
    return framed(payload.data[: head_bytes(payload.is_flexible)] + encode_body(entity))


def spoil_a_string(payload: Payload, chance: Random) -> bytes:
    """A string that is null, has a negative or too large length, is longer than Kafka allows, or is not UTF-8."""
    text = chance.choice(texts(payload.entity) or [""]).encode()
    if payload.is_flexible:
        old = uvarint(len(text) + 1) + text
        long = b"x" * 40_000
        new = chance.choice(
            (b"\0", uvarint(40_001) + long, uvarint(2**31), uvarint(len(text) + 3) + text + b"\xff\xfe")
        )
    else:
        old = len(text).to_bytes(2, "big") + text
        new = chance.choice((b"\xff\xff", b"\xff\xfe", b"\x80\0", b"\x7f\xff" + text, b"\0\x02\xff\xfe"))
    return framed(payload.data.replace(old, new, 1))


def texts(entity: Any) -> list[str]:
    """Yield all strings of an entity and its arrays."""
    found = []
    for field in fields(entity):
        value = getattr(entity, field.name)
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, str):
                found.append(one)
            elif is_dataclass(one):
                found += texts(one)
    return found


def add_tags(payload: Payload, chance: Random) -> bytes:
    """Unknown tagged fields, possibly with wrong sizes. Old versions have no tagged fields."""
    count = chance.choice((1, 2, 5))
    tags = b""
    for tag in range(count):
        data = chance.randbytes(chance.choice((0, 1, 200)))
        size = len(data) if chance.random() < 0.8 else chance.choice((0, 3, 2**20, 2**31 - 1, 2**32 - 1))
        tags += uvarint(100 + tag) + uvarint(size) + data
    if chance.random() < 0.1:
        count = chance.choice((0, 100, 2**31))
    return framed(payload.data[:-1] + uvarint(count) + tags)


def change_the_header(payload: Payload, chance: Random) -> bytes:
    """Another version, API, client id or header type than the body has."""
    damaged = bytearray(payload.data)
    match chance.randrange(5):
        case 0:
            damaged[2:4] = chance.randrange(-1, 20).to_bytes(2, "big", signed=True)
        case 1:
            damaged[0:2] = chance.randrange(-1, 100).to_bytes(2, "big", signed=True)
        case 2:
            damaged[8:10] = chance.choice((b"\xff\xff", b"\xff\xfe", b"\x7f\xff", b"\0\0"))
        case 3:
            damaged[14:14] = b"\0"
        case _:
            del damaged[14:15]
    return framed(bytes(damaged))


def mutate(payload: Payload, chance: Random) -> bytes:
    """Bytes that are changed, removed or inserted at random."""
    damaged = bytearray(payload.data)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        at = chance.randrange(len(damaged)) if damaged else 0
        match chance.randrange(6):
            case 0:
                damaged[at : at + 1] = chance.randbytes(1)
            case 1:
                damaged[at : at + 1] = chance.choice((b"\0", b"\x01", b"\x7f", b"\x80", b"\xff"))
            case 2:
                del damaged[at:]
            case 3:
                del damaged[at : at + chance.randrange(1, 6)]
            case 4:
                damaged[at:at] = chance.randbytes(chance.randrange(1, 6))
            case _:
                damaged[at : at + 4] = chance.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f"))
    return framed(bytes(damaged))


def spoil_the_frame(payload: Payload, chance: Random) -> bytes:
    """An invalid frame: its size is wrong, or it ends inside the header."""
    match chance.randrange(3):
        case 0:
            return framed(payload.data[: chance.randrange(10)])
        case 1:
            return chance.choice((bytes(4), b"\xff\xff\xff\xfe", b"\x7f\xff\xff\xff")) + payload.data
        case _:
            return chance.randbytes(chance.randrange(200))


def untouched(payload: Payload, _chance: Random) -> bytes:
    return framed(payload.data)


Way = Callable[[Payload, Random], bytes]
WAYS: tuple[Way, ...] = (
    *(flip_bits, cut, spoil_a_count, lengthen_arrays, spoil_a_string, add_tags, change_the_header, mutate),
    *(spoil_the_frame, untouched),
)


# What must not change -------------------------------------------------------------------------------------------------


async def reference_groups(client: Client) -> list[Member]:
    """Three Stable groups with a member and an offset each."""
    members = []
    for group_id in WATCHED:
        member = await join_and_sync(client, group_id, session_timeout=1_800_000)
        await client.ask("offset_commit", 9, **commit_values(group_id, member))
        members.append(member)
    return members


async def look(client: Client) -> Any:
    described = await client.ask("describe_groups", groups=list(WATCHED), include_authorized_operations=False)
    groups = [{"group_id": one, "member_id": None, "member_epoch": -1, "topics": None} for one in WATCHED]
    return described, await client.ask("offset_fetch", 9, groups=groups, require_stable=True)


class Fuzzer:
    """Feeds frames to fake connections, each to one that handles it at once."""

    def __init__(self, harness: NodeHarness) -> None:
        self.closed: Counter[str] = Counter()
        self.fed: Counter[str] = Counter()
        self.answers = 0
        self._door = harness
        self._waiting: deque[MemoryClient] = deque()
        self._idle: list[MemoryClient] = []

    def feed(self, way: str, data: bytes) -> None:
        client = self._idle.pop() if self._idle else MemoryClient(self._door.node)
        client.feed(data)
        self.fed[way] += 1
        self.closed[way] += client.is_closed
        self._waiting.append(client)

    def sort(self) -> None:
        """After an iteration of the loop: answered connections are idle; those with an incomplete frame are dropped."""
        for _ in range(len(self._waiting)):
            client = self._waiting.popleft()
            if client.transport.written and not (client.is_closed or client.connection._calls):
                self.answers += 1
                client.transport.written.clear()
                self._idle.append(client)
            elif client.is_closed or client.connection._partial_frame:
                client.close()
            else:
                self._waiting.append(client)
        while len(self._waiting) > CONNECTIONS_MAX:
            self._waiting.popleft().close()


@contextmanager
def memory_for(size: int) -> Iterator[None]:
    """Limit the memory of the process to the current size plus so many bytes; more raises MemoryError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    reserved = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (reserved + size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_damaged_requests_close_only_their_connections(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    with memory_for(MEMORY_BYTES_MAX), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(fuzz(tmp_path))
    assert [record.getMessage() for record in caplog.records] == []


async def fuzz(folder: Path) -> None:
    chance = Random(SEED)
    quiet = {"auto_create_topics_enable": False, "socket_request_max_bytes": REQUEST_BYTES_MAX}
    async with running_node(folder, {"sync": "none"}, **quiet) as harness:
        client = await harness.connect()
        members = await reference_groups(client)
        before, pool = await look(client), payloads(chance)
        fuzzer = Fuzzer(harness)
        for number in range(FRAMES):
            way = WAYS[number % len(WAYS)]
            fuzzer.feed(way.__name__, way(chance.choice(pool), chance))
            if number % FRAMES_A_TURN == 0:
                await asyncio.sleep(0)
                fuzzer.sort()
            if number % FRAMES_A_BEAT == 0:
                await beat(client, WATCHED[0], members[0])
        assert await look(client) == before
        for group_id, member in zip(WATCHED, members, strict=True):
            await beat(client, group_id, member)
        check_that_it_was_a_test(fuzzer)
        assert harness.node.groups.counters.commits > FRAMES / 1000, "commits get as far as the log"


async def beat(client: Client, group_id: str, member: Member) -> None:
    """Check that requests of other clients are answered."""
    assert (await client.ask("heartbeat", **heartbeat_values(group_id, member)))["error_code"] == "NONE"


def check_that_it_was_a_test(fuzzer: Fuzzer) -> None:
    """Check that every kind of damage had both outcomes. (A valid Produce with acks=0 may close its connection.)"""
    assert sum(fuzzer.fed.values()) == FRAMES
    assert fuzzer.answers > FRAMES / 5, "requests are answered, and not only refused"
    for way in WAYS:
        fed, closed = fuzzer.fed[way.__name__], fuzzer.closed[way.__name__]
        assert closed < fed, f"all are refused: {way.__name__}"
        assert closed > 0 or way in (untouched, lengthen_arrays), f"none is refused: {way.__name__}"
