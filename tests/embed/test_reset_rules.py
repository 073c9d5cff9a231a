"""The rules of resets: targets, undo, and who is back. Pure."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from callboard import CoordinatorError, ErrorCode, GroupDescription, GroupMember, OffsetsOf, PartitionRange, ShiftBy
from callboard.actors.group.reset_messages import ResetDescribed
from callboard.actors.messages import Fetched, FetchedOffset, OffsetFetch
from callboard.actors.steps import run_steps
from callboard.runtime.embed.reset_progress import Presence, missing_members, progress_of
from callboard.runtime.embed.reset_targets import KINDS, Chosen, Known, describe_topics, resolve_targets
from callboard.runtime.embed.reset_undo import Now, UndoRefused, check_undo, later_resets
from callboard.runtime.embed.resets import RECENT_MS, simple_commit_warnings
from callboard.runtime.embed.results import TopicDescription
from callboard.runtime.node.reset_records import RemovedMember, ResetPartition, ResetRecord, parse_record

TOPIC_ID = UUID(int=7)
MADE_MS = 1_800_000_000_000
RANGE = PartitionRange(10, 100)
NEW = PartitionRange(0, 0)
TIME = datetime(2026, 1, 1, tzinfo=UTC)


# Targets -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "range_", "found", "expected"),
    [
        (None, RANGE, None, Chosen(None)),
        (50, RANGE, None, Chosen(50)),
        (10, RANGE, None, Chosen(10)),
        (100, RANGE, None, Chosen(100)),
        (9, RANGE, None, Chosen(10, "9 is before the first record")),
        (101, RANGE, None, Chosen(100, "101 is after the end")),
        (0, NEW, None, Chosen(0)),
        (101, NEW, None, Chosen(101, "not checked: the partition has no records")),
        (7, PartitionRange(9, 9), None, Chosen(7, "not checked: the partition has no records")),
        ("earliest", RANGE, None, Chosen(10)),
        ("latest", RANGE, None, Chosen(100)),
        (TIME, RANGE, 60, Chosen(60)),
        (TIME, RANGE, None, Chosen(100, "no record so late: the end")),
        (ShiftBy(-5), RANGE, 60, Chosen(55)),
        (ShiftBy(-55), RANGE, 60, Chosen(10, "5 is before the first record")),
        (ShiftBy(55), RANGE, 60, Chosen(100, "115 is after the end")),
        (ShiftBy(-5), NEW, 3, Chosen(0)),
        (ShiftBy(-1), NEW, 3, Chosen(2, "not checked: the partition has no records")),
        (OffsetsOf("other"), RANGE, 60, Chosen(60)),
        (OffsetsOf("other"), RANGE, 600, Chosen(100, "600 is after the end")),
    ],
    ids=str,
)
def test_chosen_offset(target: Any, range_: PartitionRange, found: int | None, expected: Chosen) -> None:
    assert KINDS[type(target)].choose(target, Known("g", ("jobs", 0), range_, found)) == expected


@pytest.mark.parametrize(
    ("target", "error", "says"),
    [
        (-1, ValueError, "offset -1: expected a whole number from 0"),
        ("first", ValueError, "offset 'first': expected a whole number from 0"),
        (datetime(2026, 1, 1), ValueError, "time '2026-01-01T00:00:00': expected a datetime with a zone"),
        (ShiftBy(True), ValueError, r"ShiftBy\(True\): expected a whole number"),
        (ShiftBy(3), CoordinatorError, "group 'g' has no committed offset of jobs-0 to shift"),
        (OffsetsOf("other"), CoordinatorError, "group 'other' has no committed offset of jobs-0: leave the"),
    ],
    ids=str,
)
def test_refused_target(target: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        KINDS[type(target)].choose(target, Known("g", ("jobs", 0), RANGE))


class CountingRequests:
    """Answers about a topic with 500 partitions of 100 records. ``asked``: what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def describe_topic(self, name: str) -> TopicDescription:
        self.asked.append(name)
        return TopicDescription(name, TOPIC_ID, (PartitionRange(0, 100),) * 500, False)

    async def ask(self, message: OffsetFetch) -> Fetched:
        self.asked.append(message.group_id)
        rows = tuple(FetchedOffset(number, 50, -1, "", ErrorCode.NONE) for number in range(500))
        return Fetched(ErrorCode.NONE, (("jobs", rows),))

    async def offsets_since(self, name: str, numbers: Sequence[int], time_ms: int) -> dict[int, int]:
        self.asked.append((name, tuple(numbers), time_ms))
        return dict.fromkeys(numbers, 7)


async def resolved(requests: Any, targets: dict[tuple[str, int] | str, Any]) -> dict[tuple[str, int], Chosen]:
    return await resolve_targets(requests, "g", targets, await describe_topics(requests, targets))


def test_each_question_is_asked_once() -> None:
    requests: Any = CountingRequests()
    targets: dict[tuple[str, int] | str, Any] = {("jobs", number): ShiftBy(-number) for number in range(400)}
    targets |= {("jobs", 400 + number): OffsetsOf("other") for number in range(50)}
    targets |= {("jobs", 450 + number): TIME for number in range(40)}
    chosen = asyncio.run(resolved(requests, targets))
    assert requests.asked == ["jobs", "g", "other", ("jobs", tuple(range(450, 490)), round(TIME.timestamp() * 1000))]
    assert [chosen["jobs", number].offset for number in (0, 49, 51, 400, 450)] == [50, 1, 0, 50, 7]


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "1969-12-31T23:59:59Z"])
def test_times_that_no_record_has(text: str) -> None:
    requests: Any = CountingRequests()
    asyncio.run(resolved(requests, {("jobs", 0): datetime.fromisoformat(text)}))
    [(_, _, time_ms)] = requests.asked[1:]
    assert 0 <= time_ms < 2**63


# Undo ----------------------------------------------------------------------------------------------------------------


def record(change_id: str = "a", *partitions: tuple[int, int | None, int | None], **fields: Any) -> ResetRecord:
    """A reset of partitions of jobs: the number, and the offset before and after."""
    changed = tuple(ResetPartition("jobs", *partition) for partition in partitions or ((0, 50, 20),))
    members = (RemovedMember("a-1", None, "a", "/10.0.0.1"),)
    made = ResetRecord(change_id, "g", MADE_MS, "User:ann", "why", changed, members, {"jobs": TOPIC_ID.hex})
    return made._replace(**fields)


def now(*later: ResetRecord, committed: int | None = 20, topic: TopicDescription | None = None) -> Now:
    known = topic or TopicDescription("jobs", TOPIC_ID, (RANGE, NEW), False)
    return Now(later, {} if committed is None else {("jobs", 0): committed}, {"jobs": known})


@pytest.mark.parametrize("committed", [20, 21, 70])
def test_undo_is_allowed_when_consumers_have_gone_on(committed: int) -> None:
    run_steps(check_undo(record(), now(committed=committed)))


@pytest.mark.parametrize("partition", [(0, None, 20), (0, 50, None), (1, 500, 20)])
def test_undo_of_unlimited_offsets_is_allowed(partition: tuple[int, int | None, int | None]) -> None:
    run_steps(check_undo(record("a", partition), Now((), {("jobs", 0): 20, ("jobs", 1): 20}, now().topics)))


@pytest.mark.parametrize(
    ("made", "known", "says"),
    [
        (record(), now(record("b", (1, 0, 0), undoes="a")), "it was undone by change b already"),
        (record(), now(record("b")), "jobs-0 was reset again by change b: undo that one first"),
        (record(), Now((), {("jobs", 0): 20}, {"jobs": None}), "topic 'jobs' was deleted"),
        (
            record(),
            now(topic=TopicDescription("jobs", UUID(int=8), (RANGE,), False)),
            "topic 'jobs' was deleted and created again",
        ),
        (record("a", (0, 9, 20)), now(), "jobs-0 was at 9 before, but its records are now those from 10 to 100"),
        (record("a", (0, 101, 20)), now(), "jobs-0 was at 101 before"),
        (record(), now(committed=19), "jobs-0 is at 19, before the 20 of the reset: somebody else has set it"),
        (record(), now(committed=None), "jobs-0 has no committed offset any more"),
    ],
)
def test_undo_is_refused(made: ResetRecord, known: Now, says: str) -> None:
    with pytest.raises(UndoRefused, match=f"change a cannot be undone: {says}"):
        run_steps(check_undo(made, known))


def test_reset_of_other_partitions_does_not_matter() -> None:
    run_steps(check_undo(record(), now(record("b", (1, 0, 5)))))


def test_later_resets() -> None:
    first, second, third = record("a"), record("b"), record("c")
    assert later_resets(second, [third, second, first]) == (third,)
    assert later_resets(third, [third, second, first]) == ()


# Progress ------------------------------------------------------------------------------------------------------------


def member(
    member_id: str, client: str, instance: str | None = None, assigned: tuple[int, ...] | None = ()
) -> GroupMember:
    partitions = None if assigned is None else tuple(("jobs", number) for number in assigned)
    return GroupMember(member_id, instance, client, "/10.0.0.1", ("jobs",), partitions, b"", b"")


def removed(member_id: str, client: str, instance: str | None = None) -> RemovedMember:
    return RemovedMember(member_id, instance, client, "/10.0.0.1")


@pytest.mark.parametrize(
    ("gone", "present", "missing"),
    [
        ([removed("a-1", "a")], [], ["a-1"]),
        ([removed("a-1", "a")], [member("a-2", "a")], []),
        ([removed("a-1", "a")], [member("b-2", "b")], ["a-1"]),
        ([removed("a-1", "a"), removed("a-2", "a")], [member("a-3", "a")], ["a-2"]),
        ([removed("a-1", "a"), removed("a-2", "a")], [member("a-2", "a")], ["a-1"]),
        ([removed("a-1", "a", "i")], [member("a-2", "other", "i")], []),
        ([removed("a-1", "a", "i")], [member("a-2", "a", "j")], ["a-1"]),
        ([removed("a-1", "a", "i")], [member("a-2", "a")], ["a-1"]),
    ],
)
def test_members_that_are_not_back(gone: list[RemovedMember], present: list[GroupMember], missing: list[str]) -> None:
    assert [each.member_id for each in missing_members(gone, present)] == missing


def presence(
    *members: GroupMember, state: str = "Stable", unfetched: tuple[int, ...] = (), change_id: str = "a"
) -> Presence:
    described = GroupDescription("g", state, "consumer", "range", members)
    fetched = ResetDescribed(ErrorCode.NONE, change_id, tuple(("jobs", each) for each in unfetched), MADE_MS + 3400)
    return Presence(described, fetched, MADE_MS + 9000)


@pytest.mark.parametrize(
    ("found", "is_complete", "sentence"),
    [
        (presence(member("a-2", "a")), True, "1 of 1 member is back after 3.4 s, all positions fetched"),
        (
            presence(member("a-2", "a"), change_id="later"),
            True,
            "1 of 1 member is back after 3.4 s, whether they fetched is not known",
        ),
        (
            presence(),
            False,
            "0 of 1 member is back after 9.0 s; missing since 08:00:00 UTC: a (10.0.0.1)",
        ),
        (
            presence(member("a-2", "a", assigned=(0,)), unfetched=(0, 1)),
            False,
            "1 of 1 member is back after 9.0 s; not fetched: jobs-0",
        ),
        (presence(member("a-2", "a", assigned=(0,)), unfetched=(1,)), True, None),
        (presence(member("a-2", "a", assigned=None), unfetched=(1,)), False, None),
        (
            presence(member("a-2", "a"), state="PreparingRebalance"),
            False,
            "1 of 1 member is back after 9.0 s; the group still rebalances",
        ),
        (Presence(None, ResetDescribed(ErrorCode.GROUP_ID_NOT_FOUND), MADE_MS + 9000), False, None),
    ],
)
def test_progress(found: Presence, is_complete: bool, sentence: str | None) -> None:
    progress = progress_of(record(), found)
    assert progress.is_complete is is_complete
    assert sentence is None or progress.sentence == sentence


def test_sentence_names_ten_members_and_escapes_them() -> None:
    members = tuple(removed(f"m{number}", f"c{number}\n") for number in range(12))
    sentence = progress_of(record(members=members), presence()).sentence
    assert sentence.startswith("0 of 12 members are back after 9.0 s; ")
    assert sentence.endswith(" and 2 more") and "\n" not in sentence


# Others --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ago_ms", [0, RECENT_MS])
def test_recent_commit_of_a_client_that_is_no_member_is_a_warning(ago_ms: int) -> None:
    [warning] = simple_commit_warnings(MADE_MS, MADE_MS + ago_ms)
    assert warning.startswith("a client that is no member committed at 08:00:00 UTC: ")


@pytest.mark.parametrize(("committed_ms", "now_ms"), [(-1, 0), (MADE_MS, MADE_MS + RECENT_MS + 1)])
def test_no_warning(committed_ms: int, now_ms: int) -> None:
    assert simple_commit_warnings(committed_ms, now_ms) == ()


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"partitions": 1, "members": []}', b"[" * 100_000])
def test_damaged_record_is_none(data: bytes) -> None:
    assert parse_record(data) is None
