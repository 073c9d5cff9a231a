"""One group's offsets: replay, fetch, records of commits and deletions."""

from __future__ import annotations

import pytest
from actor_system.requests import commit, fetch
from hypothesis import given
from hypothesis import strategies as st
from work_counter import WorkCounter

from callboard.actors.errors import ErrorCode
from callboard.actors.group.offsets import GroupData, Offsets, commit_records
from callboard.actors.messages import Commit, Fetched, FetchedOffset, OffsetFetch
from callboard.actors.records import GroupRecord, GroupValue, OffsetRecord, OffsetValue, UnknownRecord

NO_OFFSET = FetchedOffset(0, -1, -1, "", ErrorCode.NONE)
VALUE = GroupValue("consumer", 1, "range", None, 0, ())


def record(offset: int | None, topic: str = "t", partition: int = 0) -> OffsetRecord:
    return OffsetRecord("g", topic, partition, None if offset is None else OffsetValue(offset, 3, "note", 5))


def committed_offsets(offsets: Offsets) -> dict[tuple[str, int], int]:
    return {(topic, partition): value.offset for topic, partition, value in offsets}


def test_fetch_of_uncommitted_partition_returns_minus_1() -> None:
    assert Offsets().fetch(fetch(topic="t")) == Fetched(ErrorCode.NONE, (("t", (NO_OFFSET,)),))


def test_fetch_keeps_order_of_request() -> None:
    offsets = Offsets()
    for partition in range(3):
        offsets.replay(record(10 + partition, "t", partition))
    offsets.replay(record(7, "s"))
    requested = (("s", (0, 5)), ("t", (2, 0)), ("t", (2,)), ("u", ()))
    topics = offsets.fetch(OffsetFetch("g", requested)).topics
    assert [
        (topic, [(fetched.partition, fetched.offset) for fetched in partitions]) for topic, partitions in topics
    ] == [
        ("s", [(0, 7), (5, -1)]),
        ("t", [(2, 12), (0, 10)]),
        ("t", [(2, 12)]),
        ("u", []),
    ]
    assert topics[0][1][0] == FetchedOffset(0, 7, 3, "note", ErrorCode.NONE)


def test_fetch_without_topics_returns_all_offsets() -> None:
    offsets = Offsets()
    assert offsets.fetch(OffsetFetch("g", None)) == Fetched(ErrorCode.NONE, ())
    offsets.replay(record(1, "t", 0))
    offsets.replay(record(2, "t", 9))
    offsets.replay(record(None, "t", 0))
    assert [
        (topic, [partition.partition for partition in partitions])
        for topic, partitions in offsets.fetch(OffsetFetch("g", None)).topics
    ] == [("t", [9])]


def test_tombstone_of_last_partition_removes_topic() -> None:
    offsets = Offsets()
    offsets.replay(record(1))
    offsets.replay(record(None))
    offsets.replay(record(None, "never"))
    assert len(offsets) == 0
    assert offsets.fetch(OffsetFetch("g", None)).topics == ()
    assert tuple(offsets.tombstones("g")) == ()


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.none() | st.integers(0, 9))))
def test_last_record_of_key_wins(steps: list[tuple[str, int, int | None]]) -> None:
    offsets, model = Offsets(), dict[tuple[str, int], int]()
    for topic, partition, offset in steps:
        offsets.replay(record(offset, topic, partition))
        if offset is None:
            model.pop((topic, partition), None)
        else:
            model[topic, partition] = offset
    assert committed_offsets(offsets) == model
    assert len(offsets) == len(model)
    for tombstone in tuple(offsets.tombstones("g")):
        offsets.replay(tombstone)
    assert len(offsets) == 0


def test_number_of_offsets_is_known_without_counting_them() -> None:
    """Each commit compares it with the limit of the group."""
    lines = []
    for topics in (1, 1000):
        offsets, work = Offsets(), WorkCounter()
        for number in range(topics):
            offsets.replay(record(1, f"t{number}"))
        with work.counting():
            assert len(offsets) == topics
        work.end_piece()
        lines.append(work.longest)
    assert lines[0] == lines[1]


# Group data ----------------------------------------------------------------------------------------------------------


def test_group_is_empty_without_record_and_offsets() -> None:
    data = GroupData()
    assert data.is_empty()
    data.replay(record(1))
    assert not data.is_empty()
    data.replay(GroupRecord("g", VALUE))
    data.replay(record(None))
    assert not data.is_empty()
    assert data.value == VALUE
    data.replay(GroupRecord("g", None))
    assert data.is_empty()


def test_tombstones_delete_group_and_offsets() -> None:
    data = GroupData()
    for replayed in (record(1, "t", 0), record(2, "t", 1), GroupRecord("g", VALUE)):
        data.replay(replayed)
    tombstones = tuple(data.tombstones("g"))
    assert tombstones == (record(None, "t", 0), record(None, "t", 1), GroupRecord("g", None))
    for tombstone in tombstones:
        data.replay(tombstone)
    assert data.is_empty()


def test_tombstones_of_simple_group_include_group_record() -> None:
    data = GroupData()
    data.replay(record(1))
    assert tuple(data.tombstones("g"))[-1] == GroupRecord("g", None)


def test_replay_ignores_records_of_unknown_type() -> None:
    data = GroupData()
    data.replay(UnknownRecord(99, b"k", b"v"))
    assert data.is_empty()


# Commits -------------------------------------------------------------------------------------------------------------


def test_commit_records_of_each_partition() -> None:
    errors, records = commit_records(commit(42, topic="t", partition=3, metadata="x"), 1000, 4096)
    assert errors == (ErrorCode.NONE,)
    assert records == (OffsetRecord("company", "t", 3, OffsetValue(42, -1, "x", 1000, -1)),)


@pytest.mark.parametrize(("retention_ms", "expire_ms"), [(-1, -1), (0, 1000), (500, 1500)])
def test_commit_with_retention_sets_expiry_time(retention_ms: int, expire_ms: int) -> None:
    _, records = commit_records(commit()._replace(retention_ms=retention_ms), 1000, 4096)
    assert records[0].value is not None
    assert records[0].value.expire_timestamp_ms == expire_ms


@pytest.mark.parametrize(
    ("metadata", "is_accepted"),
    [
        ("x" * 10, True),
        ("x" * 11, False),
        ("\N{LATIN SMALL LETTER E WITH ACUTE}" * 10, True),  # 20 bytes, 10 characters
        ("\N{GRINNING FACE}" * 5, True),  # 10 UTF-16 units
        ("\N{GRINNING FACE}" * 5 + "x", False),
        ("\N{GRINNING FACE}" * 6, False),
        ("", True),
    ],
)
def test_too_long_metadata_is_refused_for_its_partition(metadata: str, is_accepted: bool) -> None:
    """The limit counts UTF-16 code units, despite the name of the setting."""
    request = commit()._replace(
        commits=(Commit("t", 0, 1, -1, "fine"), Commit("t", 1, 2, -1, metadata), Commit("t", 2, 3, -1, ""))
    )
    errors, records = commit_records(request, 0, 10)
    assert errors == (
        ErrorCode.NONE,
        ErrorCode.NONE if is_accepted else ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.NONE,
    )
    assert [offset_record.partition for offset_record in records] == ([0, 1, 2] if is_accepted else [0, 2])


def test_negative_offset_is_stored_unchanged() -> None:
    """As in Kafka."""
    assert commit_records(commit(-5), 0, 10)[1][0].value == OffsetValue(-5, -1, "", 0, -1)
