"""The frames of ``callboard bench hostile``: requests with very many items, written by hand.

kio's encoder takes seconds for a million items. ``tests/bench`` reads small ones with kio. The arguments of a frame are
the number of items and the number of the turn, which is different for each request of a run.
"""

from __future__ import annotations

import struct

from callboard.runtime.log.format.varint import encode_unsigned

CLIENT_ID = b"hostile"
GROUP = b"hostile"
TOPIC = b"hostile"
BROKER_ID = b"1"
TOPIC_PARTITIONS = 10_000
SMALL_COMMIT_PARTITIONS = 440
CHARACTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
BATCH_TIMESTAMP_MS = 1_700_000_000_000
REQUESTED_TIMESTAMP_MS = BATCH_TIMESTAMP_MS + 1  # later than all batches, so a search without an index reads them all
BROKER_RESOURCE = 4


def _frame(key: int, version: int, body: bytes, is_flexible: bool) -> bytes:
    header = struct.pack(">hhih", key, version, 1, len(CLIENT_ID)) + CLIENT_ID + (b"\0" if is_flexible else b"")
    return struct.pack(">i", len(header) + len(body)) + header + body


def _compact_count(count: int) -> bytes:
    """The length of a compact array or string."""
    return encode_unsigned(count + 1)


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


def small_offset_commits(count: int, turn: int) -> bytes:
    """``count`` requests OffsetCommit in one piece, each of 8 kB: a larger one is decoded in slices."""
    return offset_commit(SMALL_COMMIT_PARTITIONS, turn) * count


def list_offsets(_count: int, _turn: int) -> bytes:
    """ListOffsets v1 of one partition by time. The items are the batches that the partition has."""
    partition = struct.pack(">iq", 0, REQUESTED_TIMESTAMP_MS)
    topics = struct.pack(">i", 1) + _string(TOPIC) + struct.pack(">i", 1) + partition
    return _frame(2, 1, struct.pack(">i", -1) + topics, False)


def list_groups(count: int, _turn: int) -> bytes:
    """``count`` requests ListGroups v0, in one piece."""
    return _frame(16, 0, b"", False) * count


def heartbeats(count: int, _turn: int) -> bytes:
    """``count`` requests Heartbeat v0 of a member that the group does not have, in one piece."""
    return _frame(12, 0, _string(GROUP) + struct.pack(">i", 1) + _string(b"m"), False) * count


def scrape(_count: int, _turn: int) -> bytes:
    """A request for the page of metrics."""
    return b"GET /metrics HTTP/1.1\r\n\r\n"


def describe_groups(count: int, _turn: int) -> bytes:
    """DescribeGroups v5 of ``count`` groups that do not exist."""
    return _frame(15, 5, _compact_names(count) + b"\0\0", True)


def delete_groups(count: int, _turn: int) -> bytes:
    """DeleteGroups v2 of ``count`` groups that do not exist."""
    return _frame(42, 2, _compact_names(count) + b"\0", True)


def describe_transactions(count: int, _turn: int) -> bytes:
    """DescribeTransactions v0 of ``count`` ids that do not exist."""
    return _frame(65, 0, _compact_names(count) + b"\0", True)


def _compact_names(count: int) -> bytes:
    return _compact_count(count) + b"".join(b"\6%05x" % number for number in range(count))


def offset_delete(count: int, _turn: int) -> bytes:
    """OffsetDelete v0 of ``count`` partitions of one topic."""
    topic = _string(TOPIC) + struct.pack(">i", count) + _int32s(count)
    return _frame(47, 0, _string(GROUP) + struct.pack(">i", 1) + topic, False)


def produce(count: int, _turn: int) -> bytes:
    """Produce v8 to ``count`` partitions of one topic, without records."""
    partitions = b"".join(struct.pack(">ii", number % TOPIC_PARTITIONS, -1) for number in range(count))
    topic = _string(TOPIC) + struct.pack(">i", count) + partitions
    head = struct.pack(">hhi", -1, 1, 1000)  # transactional id, acks, timeout
    return _frame(0, 8, head + struct.pack(">i", 1) + topic, False)


def join_group(count: int, _turn: int) -> bytes:
    """JoinGroup v5 of a new member with ``count`` protocols."""
    protocols = b"".join(_string(b"%05x" % number) + b"\0\0\0\0" for number in range(count))
    head = (
        _string(GROUP) + struct.pack(">ii", 10_000, 10_000) + _string(b"") + b"\xff\xff"
    )  # timeouts, member, instance
    return _frame(11, 5, head + _string(b"consumer") + struct.pack(">i", count) + protocols, False)


def sync_group(count: int, _turn: int) -> bytes:
    """SyncGroup v5 of an unknown member with ``count`` assignments."""
    assignments = b"".join(b"\6%05x\1\0" % number for number in range(count))
    head = _compact_string(GROUP) + struct.pack(">i", 1) + _compact_string(b"unknown") + b"\0\0\0"
    return _frame(14, 5, head + _compact_count(count) + assignments + b"\0", True)


def create_topics(count: int, _turn: int) -> bytes:
    """CreateTopics v5 of ``count`` topics, to be validated only."""
    topic = struct.pack(">ih", 1, 1) + b"\1\1\0"  # partitions, replication factor, no assignments, no configs
    topics = b"".join(b"\6%05x" % number + topic for number in range(count))
    return _frame(19, 5, _compact_count(count) + topics + struct.pack(">ib", 1000, 1) + b"\0", True)


def metadata_of_all(_count: int, _turn: int) -> bytes:
    """Metadata v4 of all topics. The items are the topics that the server has."""
    return _frame(3, 4, struct.pack(">i", -1) + b"\0", False)
