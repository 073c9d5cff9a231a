"""The memory that is counted, and the soft limit of all of it."""

from __future__ import annotations

import pytest

from callboard.actors.group.effects import Deadline
from callboard.actors.group.members import PendingMembers
from callboard.actors.group.offsets import Offsets
from callboard.actors.memory import (
    ACTIVE_GROUP_BYTES,
    OFFSET_BYTES,
    PACKED_GROUP_BYTES,
    TOPIC_OFFSETS_BYTES,
    GroupMemory,
    MemoryLimit,
    PackedGroups,
)
from callboard.actors.records import OffsetRecord, OffsetValue

LIMIT_BYTES = 1000


class Source:
    """A limit with one source, whose bytes the test sets."""

    def __init__(self) -> None:
        self.used_bytes = 0
        self.limit = MemoryLimit(lambda: LIMIT_BYTES)
        self.limit.sources["things"] = lambda: self.used_bytes
        self.limit.sources["others"] = lambda: 100

    def refuses_at(self, used_bytes: int) -> bool:
        self.used_bytes = used_bytes - 100
        return self.limit.refuses_new()


def offset(topic: str, partition: int, metadata: str | None = "") -> OffsetRecord:
    """A committed offset; a tombstone without metadata."""
    value = None if metadata is None else OffsetValue(1, -1, metadata, 0, -1)
    return OffsetRecord("g", topic, partition, value)


def test_limit_refuses_above_and_until_five_percent_are_free(caplog: pytest.LogCaptureFixture) -> None:
    source = Source()
    sizes = [900, 1000, 1001, 1000, 951, 950, 1000, 1001]
    assert [source.refuses_at(size) for size in sizes] == [False, False, True, True, True, False, False, True]
    assert source.limit.sample() == ({"things": 901, "others": 100}, LIMIT_BYTES, 4)
    assert len(caplog.records) == 3, "reached, not reached, reached"
    assert "1001 of 1000 bytes are used: things 901, others 100" in caplog.messages[0]


def test_active_group_is_counted_until_it_is_removed() -> None:
    memory = GroupMemory()
    memory.add_active("abc")
    assert memory.active_bytes == ACTIVE_GROUP_BYTES + 3
    memory.set_content("abc", 500)
    memory.set_content("abc", 200)
    assert memory.active_bytes == ACTIVE_GROUP_BYTES + 203
    memory.remove_active("abc")
    memory.set_content("abc", 200)  # a late message of its actor
    memory.remove_active("abc")
    assert memory.active_bytes == 0


def test_packed_groups_are_counted_until_they_are_taken() -> None:
    memory = GroupMemory()
    groups, others = PackedGroups(memory), PackedGroups(memory)
    groups.put("a", b"xy")
    groups.put_all({"a": b"xyz", "bc": b""})
    others.put("d", b"1")
    assert memory.packed_bytes == 3 * PACKED_GROUP_BYTES + 8
    assert groups.take("a") == b"xyz"
    assert memory.packed_bytes == 2 * PACKED_GROUP_BYTES + 4
    groups.take_all()
    assert (dict(groups), memory.packed_bytes) == ({}, PACKED_GROUP_BYTES + 2)


def test_offsets_are_counted_with_metadata_and_topic() -> None:
    offsets = Offsets()
    for record in (offset("t", 0), offset("t", 1, "12345"), offset("uv", 0), offset("t", 1, "123"), offset("t", 0)):
        offsets.replay(record)
    assert offsets.size_bytes == 3 * OFFSET_BYTES + 2 * TOPIC_OFFSETS_BYTES + 3 + 3
    restored = Offsets()
    for topic, partitions in offsets.topics():
        restored.restore(topic, dict(partitions))
    assert restored.size_bytes == offsets.size_bytes
    for record in (offset("t", 0, None), offset("t", 0, None), offset("t", 1, None), offset("uv", 0, None)):
        offsets.replay(record)
    assert (offsets.size_bytes, len(offsets)) == (0, 0)


def test_pending_members_are_counted_with_their_ids() -> None:
    pending = PendingMembers()
    for member_id in ("a", "bcd", "a"):
        pending[member_id] = Deadline(("pending", member_id))
    assert pending.name_bytes == 4
    assert pending.forget("bcd") is not None
    assert pending.forget("bcd") is None
    del pending["a"]
    assert (dict(pending), pending.name_bytes) == ({}, 0)
