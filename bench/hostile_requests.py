"""Large requests that a client may send: the rows of ``callboard bench hostile``.

Each frame is written by hand, since kio's encoder takes seconds for a million items. ``tests/bench`` compares small
ones with kio. A row says what the server must have before: topics, records or groups.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Literal, NamedTuple

from callboard.bench.discarding_connection import DiscardingConnection
from callboard.bench.group_setup import Member, commit, create_named_topic
from callboard.bench.groups import fill
from callboard.bench.harness import BenchError
from callboard.bench.wire import Client, api
from callboard.runtime.log.format.batch import encode_batch, frame_record

CLIENT_ID = b"hostile"
GROUP = b"hostile"
TOPIC = b"hostile"
BROKER_ID = b"1"
TOPIC_PARTITIONS = 10_000
CHARACTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
BATCHES_PER_REQUEST = 500
BATCH_TIMESTAMP_MS = 1_700_000_000_000
REQUESTED_TIMESTAMP_MS = BATCH_TIMESTAMP_MS + 1  # later than all batches, so a search without an index reads them all
BROKER_RESOURCE = 4
NEWEST = -1
GROUPS = 30_000

AnswerForm = Literal["one frame", "frame per item", "http"]

MakeRequest = Callable[[int, int], bytes]
"""Called with the number of items and the number of the turn, which is different for each request of a run."""


class HostileRequest(NamedTuple):
    """A row: one kind of request, with ``items`` items.

    ``title``, ``item_name``: for the table. ``prepare`` is called with the address and the number of items when the
    server is ready; ``fill_folder`` writes the data folder before the server is started.
    """

    name: str
    title: str
    items: int
    item_name: str
    make: MakeRequest
    prepare: Callable[[str, int], None] | None = None
    fill_folder: Callable[[Path], None] | None = None
    answer: AnswerForm = "one frame"


# The bytes of requests -----------------------------------------------------------------------------------------------


def _frame(key: int, version: int, body: bytes, is_flexible: bool) -> bytes:
    header = struct.pack(">hhih", key, version, 1, len(CLIENT_ID)) + CLIENT_ID + (b"\0" if is_flexible else b"")
    return struct.pack(">i", len(header) + len(body)) + header + body


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _compact_count(count: int) -> bytes:
    """The length of a compact array or string."""
    return _varint(count + 1)


def _compact_string(text: bytes) -> bytes:
    return _compact_count(len(text)) + text


def _string(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


def _repeated(items: bytes, count: int, item_bytes: int) -> bytes:
    """The first ``count`` items of an endless repetition of ``items``."""
    size = count * item_bytes
    return (items * (size // len(items) + 1))[:size]


_ONE_CHARACTER_STRINGS = b"".join(b"\2" + bytes((character,)) for character in CHARACTERS)
_ONE_CHARACTER_MEMBERS = b"".join(b"\2" + bytes((character,)) + b"\0\0\0" for character in CHARACTERS)


def describe_configs(count: int, _turn: int) -> bytes:
    """DescribeConfigs v1: the broker, ``count`` times, with all its settings."""
    resource = bytes((BROKER_RESOURCE,)) + _string(BROKER_ID) + struct.pack(">i", -1)
    return _frame(32, 1, struct.pack(">i", count) + resource * count + b"\0", False)


def metadata(count: int, turn: int) -> bytes:
    """Metadata v4 of ``count`` new topics that the server may create."""
    names = (b"%04x%04x" % (turn, number) for number in range(count))
    return _frame(3, 4, struct.pack(">i", count) + b"".join(map(_string, names)) + b"\1", False)


def offset_fetch(count: int, _turn: int) -> bytes:
    """OffsetFetch v6 of ``count`` partitions of one topic."""
    topic = _compact_string(TOPIC) + _compact_count(count) + _int32s(count) + b"\0"
    return _frame(9, 6, _compact_string(GROUP) + _compact_count(1) + topic + b"\0", True)


def _int32s(count: int) -> bytes:
    return struct.pack(f">{count}i", *range(count))


def find_coordinator(count: int, _turn: int) -> bytes:
    """FindCoordinator v4 with ``count`` group ids of one character."""
    keys = _repeated(_ONE_CHARACTER_STRINGS, count, 2)
    return _frame(10, 4, b"\0" + _compact_count(count) + keys + b"\0", True)


def fetch(count: int, _turn: int) -> bytes:
    """Fetch v4 of ``count`` partitions of one topic."""
    partitions = b"".join(struct.pack(">iqi", number % TOPIC_PARTITIONS, 0, 1 << 20) for number in range(count))
    head = struct.pack(">iiiib", -1, 0, 0, 1 << 20, 0)  # replica, max wait, min bytes, max bytes, isolation level
    topics = struct.pack(">i", 1) + _string(TOPIC) + struct.pack(">i", count) + partitions
    return _frame(1, 4, head + topics, False)


def leave_group(count: int, _turn: int) -> bytes:
    """LeaveGroup v5 of ``count`` members that the group does not have."""
    members = _repeated(_ONE_CHARACTER_MEMBERS, count, 5)
    return _frame(13, 5, _compact_string(GROUP) + _compact_count(count) + members + b"\0", True)


def offset_commit(count: int, turn: int) -> bytes:
    """OffsetCommit v8 of ``count`` partitions by no member (a simple consumer)."""
    offset = struct.pack(">qi", turn, -1) + _compact_string(b"") + b"\0"
    partitions = b"".join(struct.pack(">i", number % TOPIC_PARTITIONS) + offset for number in range(count))
    topic = _compact_string(TOPIC) + _compact_count(count) + partitions + b"\0"
    head = _compact_string(GROUP) + struct.pack(">i", -1) + _compact_string(b"") + b"\0"  # generation, member, instance
    return _frame(8, 8, head + _compact_count(1) + topic + b"\0", True)


def list_offsets(_count: int, _turn: int) -> bytes:
    """ListOffsets v1 of one partition by time. The items are the batches that the partition has."""
    partition = struct.pack(">iq", 0, REQUESTED_TIMESTAMP_MS)
    topics = struct.pack(">i", 1) + _string(TOPIC) + struct.pack(">i", 1) + partition
    return _frame(2, 1, struct.pack(">i", -1) + topics, False)


def list_groups(count: int, _turn: int) -> bytes:
    """``count`` requests ListGroups v0, in one piece."""
    return _frame(16, 0, b"", False) * count


def scrape(_count: int, _turn: int) -> bytes:
    """A request for the page of metrics."""
    return b"GET /metrics HTTP/1.1\r\n\r\n"


# What the server has before ------------------------------------------------------------------------------------------


def prepare_topic(address: str, _count: int) -> None:
    with Client(address) as client:
        create_named_topic(client, TOPIC.decode(), TOPIC_PARTITIONS)


def prepare_group(address: str, _count: int) -> None:
    with Client(address) as client:
        create_named_topic(client, TOPIC.decode(), TOPIC_PARTITIONS)
        commit(client, Member(GROUP.decode(), "", -1, TOPIC.decode(), 0), 0)


def prepare_batches(address: str, count: int) -> None:
    """Append at least ``count`` batches of one empty record to a partition. Raises BenchError."""
    request = _produce_request()
    with Client(address) as client:
        create_named_topic(client, TOPIC.decode(), 1)
        with DiscardingConnection(address) as connection:
            for _ in range(0, count, BATCHES_PER_REQUEST):
                connection.send(request)
                connection.discard_answer()
        _check_end(client, count)


def _produce_request() -> bytes:
    """Many batches for one partition in one request."""
    batch = encode_batch(0, BATCH_TIMESTAMP_MS, BATCH_TIMESTAMP_MS, [frame_record(0, 0, b"", b"")])
    partitions = ({"index": 0, "records": batch},) * BATCHES_PER_REQUEST
    topic = {"name": TOPIC.decode(), "partition_data": partitions}
    return api("produce", 9).request(1, acks=1, timeout=timedelta(seconds=1), topic_data=(topic,))


def _check_end(client: Client, expected: int) -> None:
    newest = {"partition_index": 0, "timestamp": NEWEST}
    topics = ({"name": TOPIC.decode(), "partitions": (newest,)},)
    answer = client.ask(api("list_offsets", 6), replica_id=-1, isolation_level=0, topics=topics)
    end_offset = answer.topics[0].partitions[0].offset
    if end_offset < expected:
        raise BenchError(f"the partition ends at {end_offset}, expected {expected} or more")


def fill_groups(folder: Path) -> None:
    fill(folder, GROUPS)


REQUESTS = (
    HostileRequest("describe-configs", "DescribeConfigs", 100_000, "resources", describe_configs),
    HostileRequest("metadata", "Metadata that creates topics", 10_000, "topics", metadata),
    HostileRequest("offset-fetch", "OffsetFetch", 1_000_000, "partitions", offset_fetch, prepare_group),
    HostileRequest("find-coordinator", "FindCoordinator", 300_000, "keys", find_coordinator),
    HostileRequest("fetch", "Fetch", 50_000, "partitions", fetch, prepare_topic),
    HostileRequest("leave-group", "LeaveGroup", 100_000, "members", leave_group, prepare_group),
    HostileRequest("offset-commit", "OffsetCommit", 60_000, "partitions", offset_commit, prepare_group),
    HostileRequest("list-offsets", "ListOffsets by time", 800_000, "batches", list_offsets, prepare_batches),
    HostileRequest(
        *("list-groups", f"ListGroups, {GROUPS:,} groups", 180, "requests", list_groups),
        fill_folder=fill_groups,
        answer="frame per item",
    ),
    HostileRequest(
        *("metrics", f"GET /metrics, {GROUPS:,} groups", 1, "page", scrape), fill_folder=fill_groups, answer="http"
    ),
)
