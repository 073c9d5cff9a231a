"""A long round is encoded in steps, to the same bytes as without them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest

from callboard.actors.ports import Entry
from callboard.actors.records import (
    GroupRecord,
    GroupValue,
    MarkerRecord,
    MemberValue,
    OffsetRecord,
    OffsetValue,
    PendingOffsetRecord,
    TransactionRecord,
    TransactionValue,
)
from callboard.actors.steps import ITEMS_PER_STEP, SHORT_WORK_ITEMS, run_steps
from callboard.runtime.log.rounds import RoundEncoder

PARTITIONS = 3
MESSAGE_BYTES = 100_000
NOW_MS = 1_700_000_000_000


def encoder() -> RoundEncoder:
    return RoundEncoder([5] * PARTITIONS, MESSAGE_BYTES, "fsync")


def offset_entry(partition: int, count: int, metadata: str = "") -> Entry:
    value = OffsetValue(7, -1, metadata, NOW_MS, -1)
    return Entry(partition, tuple(OffsetRecord("g", "topic", index, value) for index in range(count)))


def transaction_entry(partition: int, count: int) -> Entry:
    value = OffsetValue(8, -1, "", NOW_MS, -1)
    return Entry(partition, tuple(PendingOffsetRecord("g", "topic", index, value, 9, 1) for index in range(count)))


def group_entry(partition: int, members: int) -> Entry:
    member = MemberValue("m", None, "client", "/127.0.0.1", 1000, 1000, b"subscription", b"assignment")
    value = GroupValue("consumer", 3, "range", "m", NOW_MS, (member,) * members)
    return Entry(partition, (GroupRecord("g", value),))


def transactional_id_entry(partition: int, partitions: int, topics: int = 1) -> Entry:
    written_to = frozenset((f"topic-{number % topics}", number) for number in range(partitions))
    return Entry(partition, (TransactionRecord("id", TransactionValue(1, 2, 1000, 1, written_to)),))


def random_entries(random: Random) -> list[Entry]:
    entries = [
        offset_entry(random.randrange(PARTITIONS), random.choice((0, 1, 2, 63, 64, 65, 300)))
        for _ in range(random.randrange(1, 200))
    ]
    if random.random() < 0.5:
        entries.insert(0, offset_entry(0, 1, "x" * MESSAGE_BYTES))
    if random.random() < 0.5:
        entries += [transaction_entry(1, 70), Entry(1, (MarkerRecord(9, 1, committed=True),))]
    if random.random() < 0.5:
        entries.insert(random.randrange(len(entries)), group_entry(0, random.choice((1, 64, 2000))))
    if random.random() < 0.5:
        entries.append(transactional_id_entry(2, random.choice((1, 64, 3000)), 7))
    return entries


def test_round_in_steps_equals_round_at_once() -> None:
    random = Random(20)
    for _ in range(25):
        entries = random_entries(random)
        at_once, in_steps = encoder(), encoder()
        expected = at_once.encode(entries, NOW_MS, print)
        assert run_steps(in_steps.encode_in_steps(entries, NOW_MS, print)) == expected
        assert in_steps._end_offsets == at_once._end_offsets


def steps_of(entries: Sequence[Entry]) -> int:
    return sum(1 for _ in encoder().encode_in_steps(entries, NOW_MS, print))


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([offset_entry(0, 1)] * 10 * ITEMS_PER_STEP, 10),
        ([offset_entry(0, 1000)], -(-1000 // ITEMS_PER_STEP)),
        ([offset_entry(0, SHORT_WORK_ITEMS + 1), offset_entry(1, 1)], SHORT_WORK_ITEMS // ITEMS_PER_STEP + 2),
    ],
    ids=["short entries are taken together", "a long entry is divided", "a short entry beside a long one"],
)
def test_steps_of_a_round(entries: Sequence[Entry], expected: int) -> None:
    assert steps_of(entries) == expected


@pytest.mark.parametrize("entry", [group_entry, transactional_id_entry], ids=["members", "partitions"])
def test_steps_of_one_record_grow_with_its_items(entry: Callable[[int, int], Entry]) -> None:
    small, large = steps_of([entry(0, 500)]), steps_of([entry(0, 1500)])
    assert large - small >= 1000 // ITEMS_PER_STEP
