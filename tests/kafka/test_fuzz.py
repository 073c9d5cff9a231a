"""Damaged requests of every API and version: they may close connections, and have no other effect.

Each frame is a valid request with one or several kinds of damage that broken clients and attackers cause. It is fed to
a connection that handles it at once: not to one with a pending request or an incomplete frame, or one that is closing.
Reference groups are described before and after; the requests contain their group ids, but not their member ids.
Frames are drawn from a seed, ``CALLBOARD_FUZZ_SEED``; ``CALLBOARD_FUZZ_FRAMES`` is their number.
``make soak`` sends 100,000 for each seed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
import uvloop
from ask_node_helpers import OF_CLIENTS, random_message
from fuzz_helpers import WATCHED, Fuzzer, beat, describe_reference_groups, reference_groups
from harness import (
    framed,
    random_entity,
    running_node,
)
from peers.wire import message_type
from request_helpers import API_VERSIONS, array_requests, encode_body, encode_request

from callboard.runtime.kafka.api import OWN_APIS, Api
from callboard.runtime.kafka.codec.message_json import write_message
from callboard.runtime.kafka.codec.own_api import ASK_NODE
from callboard.runtime.kafka.node_subjects import SUBJECTS

FRAMES = int(os.environ.get("CALLBOARD_FUZZ_FRAMES", "10000"))
SEED = int(os.environ.get("CALLBOARD_FUZZ_SEED", "20261122"))
MEMORY_BYTES_MAX = 2**30  # for the valid requests; sizes in frames must not be allocated
REQUEST_BYTES_MAX = 1_000_000
VARIANTS = 4  # valid requests per version
FRAMES_A_TURN = 10
FRAMES_A_BEAT = 100

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


def payloads(random: Random) -> list[Payload]:
    """Valid requests of every version. Topics are not deleted, so that commits succeed."""
    result = []
    for api, version in [*API_VERSIONS, *((own, own.max_version) for own in OWN_APIS)]:
        if api.name == "delete_topics":
            continue
        types = message_type(api.name, version, "request")
        counts = tuple(
            (encode_request(api.key, version, body, types.__flexible__)[4:], position + head_bytes(types.__flexible__))
            for _, _, body, position in array_requests(api, version)
        )
        for _ in range(VARIANTS):
            entity = use_known_partition(api, use_reference_group(api, random_entity(types, random), random), random)
            entity = use_subject(api, entity, random)
            data = encode_request(api.key, version, encode_body(entity), types.__flexible__)[4:]
            result.append(Payload(api, version, entity, data, counts))
    return result


def head_bytes(is_flexible: bool) -> int:
    """Key, version, correlation id, client id "wire", and the tags of a flexible header."""
    return 15 if is_flexible else 14


def use_reference_group(api: Api, entity: Any, random: Random) -> Any:
    if api.name in CANNOT_TOUCH and hasattr(entity, "group_id") and random.random() < 0.5:
        return replace(entity, group_id=random.choice(WATCHED))
    return entity


def use_known_partition(api: Api, entity: Any, random: Random) -> Any:
    """Commits to unknown partitions are not sent to a group."""
    if api.name not in OF_PARTITIONS or random.random() < 0.3:
        return entity
    topics = tuple(
        replace(
            topic, name="t", partitions=tuple(replace(partition, partition_index=0) for partition in topic.partitions)
        )
        for topic in entity.topics
        if hasattr(topic, "name")
    )
    no_member = {name: value for name, value in NOBODY.items() if hasattr(entity, name)}
    return replace(entity, topics=topics or entity.topics, **no_member)


def use_subject(api: Api, entity: Any, random: Random) -> Any:
    """AskNode with a message, as a client may send it."""
    if api.name != ASK_NODE:
        return entity
    subject = random.choice(OF_CLIENTS)
    message = random_message(SUBJECTS[subject].message, random)
    return replace(entity, subject=subject, group_id=message.group_id, content=write_message(message))


# Ways to damage a request ---------------------------------------------------------------------------------------------


def uvarint(value: int) -> bytes:
    return bytes((value & 0x7F | 0x80,)) + uvarint(value >> 7) if value > 0x7F else bytes((value,))


def flip_bits(payload: Payload, random: Random) -> bytes:
    damaged = bytearray(payload.data)
    for _ in range(random.choice((1, 1, 2, 8))):
        damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
    return framed(bytes(damaged))


def cut(payload: Payload, random: Random) -> bytes:
    """A wrong frame size: too small, or too large, so that it includes bytes of the next frame."""
    size = random.randrange(len(payload.data))
    return framed(payload.data[:size]) if random.random() < 0.8 else framed(payload.data)[: 4 + size]


def spoil_a_count(payload: Payload, random: Random) -> bytes:
    if not payload.counts:
        return flip_bits(payload, random)
    data, place = random.choice(payload.counts)
    if payload.is_flexible:
        spoilt = random.choice((b"\0", b"\x02", uvarint(2**31), uvarint(2**32 - 1), b"\xff\xff\xff\xff\xff\x01"))
        return framed(data[:place] + spoilt + data[place + 1 :])
    spoilt = random.choice((-1, -2, -(2**31), 1, 70_000, 2**31 - 1)).to_bytes(4, "big", signed=True)
    return framed(data[:place] + spoilt + data[place + 4 :])


def lengthen_arrays(payload: Payload, random: Random) -> bytes:
    """A valid request with repeated array items."""
    times = random.choice((2, 3, 30))
    longer = {
        field.name: value * times
        for field in fields(payload.entity)
        if isinstance(value := getattr(payload.entity, field.name), tuple)
    }
    entity = replace(payload.entity, **longer)
    return framed(payload.data[: head_bytes(payload.is_flexible)] + encode_body(entity))


def spoil_a_string(payload: Payload, random: Random) -> bytes:
    """A string that is null, has a negative or too large length, is longer than Kafka allows, or is not UTF-8."""
    text = random.choice(strings_of(payload.entity) or [""]).encode()
    if payload.is_flexible:
        old = uvarint(len(text) + 1) + text
        long = b"x" * 40_000
        new = random.choice(
            (b"\0", uvarint(40_001) + long, uvarint(2**31), uvarint(len(text) + 3) + text + b"\xff\xfe")
        )
    else:
        old = len(text).to_bytes(2, "big") + text
        new = random.choice((b"\xff\xff", b"\xff\xfe", b"\x80\0", b"\x7f\xff" + text, b"\0\x02\xff\xfe"))
    return framed(payload.data.replace(old, new, 1))


def strings_of(entity: Any) -> list[str]:
    """Return all strings of an entity and its arrays."""
    strings = []
    for field in fields(entity):
        value = getattr(entity, field.name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, str):
                strings.append(item)
            elif is_dataclass(item):
                strings += strings_of(item)
    return strings


def add_tags(payload: Payload, random: Random) -> bytes:
    """Unknown tagged fields, possibly with wrong sizes. Old versions have no tagged fields."""
    count = random.choice((1, 2, 5))
    tags = b""
    for tag in range(count):
        data = random.randbytes(random.choice((0, 1, 200)))
        size = len(data) if random.random() < 0.8 else random.choice((0, 3, 2**20, 2**31 - 1, 2**32 - 1))
        tags += uvarint(100 + tag) + uvarint(size) + data
    if random.random() < 0.1:
        count = random.choice((0, 100, 2**31))
    return framed(payload.data[:-1] + uvarint(count) + tags)


def change_the_header(payload: Payload, random: Random) -> bytes:
    """Another version, API, client id or header type than the body has."""
    damaged = bytearray(payload.data)
    match random.randrange(5):
        case 0:
            damaged[2:4] = random.randrange(-1, 20).to_bytes(2, "big", signed=True)
        case 1:
            damaged[0:2] = random.randrange(-1, 100).to_bytes(2, "big", signed=True)
        case 2:
            damaged[8:10] = random.choice((b"\xff\xff", b"\xff\xfe", b"\x7f\xff", b"\0\0"))
        case 3:
            damaged[14:14] = b"\0"
        case _:
            del damaged[14:15]
    return framed(bytes(damaged))


def mutate(payload: Payload, random: Random) -> bytes:
    """Bytes that are changed, removed or inserted at random."""
    damaged = bytearray(payload.data)
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        at = random.randrange(len(damaged)) if damaged else 0
        match random.randrange(6):
            case 0:
                damaged[at : at + 1] = random.randbytes(1)
            case 1:
                damaged[at : at + 1] = random.choice((b"\0", b"\x01", b"\x7f", b"\x80", b"\xff"))
            case 2:
                del damaged[at:]
            case 3:
                del damaged[at : at + random.randrange(1, 6)]
            case 4:
                damaged[at:at] = random.randbytes(random.randrange(1, 6))
            case _:
                damaged[at : at + 4] = random.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f"))
    return framed(bytes(damaged))


def spoil_the_frame(payload: Payload, random: Random) -> bytes:
    """An invalid frame: its size is wrong, or it ends inside the header."""
    match random.randrange(3):
        case 0:
            return framed(payload.data[: random.randrange(10)])
        case 1:
            return random.choice((bytes(4), b"\xff\xff\xff\xfe", b"\x7f\xff\xff\xff")) + payload.data
        case _:
            return random.randbytes(random.randrange(200))


def untouched(payload: Payload, _chance: Random) -> bytes:
    return framed(payload.data)


Way = Callable[[Payload, Random], bytes]
WAYS: tuple[Way, ...] = (
    *(flip_bits, cut, spoil_a_count, lengthen_arrays, spoil_a_string, add_tags, change_the_header, mutate),
    *(spoil_the_frame, untouched),
)


@contextmanager
def memory_for(size: int) -> Iterator[None]:
    """Limit the memory of the process to the current size plus ``size`` bytes; more raises MemoryError."""
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
    random = Random(SEED)
    quiet: dict[str, Any] = {"auto_create_topics_enable": False, "socket_request_max_bytes": REQUEST_BYTES_MAX}
    async with running_node(folder, {"sync": "none"}, **quiet) as harness:
        client = await harness.connect()
        members = await reference_groups(client)
        reference, pool = await describe_reference_groups(client), payloads(random)
        fuzzer = Fuzzer(harness)
        for number in range(FRAMES):
            way = WAYS[number % len(WAYS)]
            fuzzer.feed(way.__name__, way(random.choice(pool), random))
            if number % FRAMES_A_TURN == 0:
                await asyncio.sleep(0)
                fuzzer.sort()
            if number % FRAMES_A_BEAT == 0:
                await beat(client, WATCHED[0], members[0])
        assert await describe_reference_groups(client) == reference
        for group_id, member in zip(WATCHED, members, strict=True):
            await beat(client, group_id, member)
        check_counts(fuzzer)
        assert harness.node.groups.counters.commits > FRAMES / 1000, "too few commits were appended to the log"


def check_counts(fuzzer: Fuzzer) -> None:
    """Check that every kind of damage had both outcomes. (A valid Produce with acks=0 may close its connection.)"""
    assert sum(fuzzer.fed.values()) == FRAMES
    assert fuzzer.answers > FRAMES / 5, "too few requests were answered"
    for way in WAYS:
        fed, closed = fuzzer.fed[way.__name__], fuzzer.closed[way.__name__]
        assert closed < fed, f"all frames were refused: {way.__name__}"
        assert closed > 0 or way in (untouched, lengthen_arrays), f"no frame was refused: {way.__name__}"
