"""A second kind of group works everywhere, although nothing but rows was added: see ``toy_kind``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from actor_system.requests import commit, fetch, heartbeat, join, leave, sync
from actor_system.simulation import CoordinatorSimulation
from harness import async_test, running_node
from partition_helpers import TIME_MS, plain
from project_paths import ROOT
from toy_kind.kind import ROWS
from toy_kind.records import QUEUE, EpochRecord, EpochValue, MemberRecord, QueueMember
from toy_kind.requests import (
    DescribeQueue,
    JoinQueue,
    LeaveQueue,
    QueueDescribed,
    QueueHeartbeat,
    QueueJoined,
)
from toy_kind.value import QueueValue

from callboard.actors.coordinator.partitions import GroupPartitions
from callboard.actors.errors import ErrorCode
from callboard.actors.group.offsets import GroupData
from callboard.actors.messages import (
    DeleteGroup,
    DescribeGroup,
    ListedGroup,
    OffsetDelete,
    OffsetsDeleted,
    QuarantinedGroup,
)
from callboard.actors.records import CLASSIC, OffsetRecord, OffsetValue, Record
from callboard.runtime.cli.log.dump import as_json, format_line
from callboard.runtime.cli.log.scan import LoggedRecord, LogPartition
from callboard.runtime.cli.log.stats import describe_key
from callboard.runtime.cli.log.verify import verify
from callboard.runtime.disk.disk import Disk
from callboard.runtime.kafka.services import Origin
from callboard.runtime.log.format.batch import encode_batch, frame_record, read_batches
from callboard.runtime.log.format.records import decode, encode
from callboard.runtime.log.partition import TOPIC
from callboard.runtime.log.reading.newest import load_partition
from callboard.runtime.testing.plugin.recorder import TimelineRecorder
from callboard.runtime.testing.plugin.timeline import Timeline
from callboard.spark.rows import record_row

Q = "q"
DISPATCH = "actors/group/dispatch.py"  # names the functions of requests, not their classes
RECORDS: tuple[Record, ...] = (
    EpochRecord(Q, EpochValue(1)),
    MemberRecord(Q, "a", QueueMember(10_000, ("jobs",))),
    EpochRecord(Q, EpochValue(2)),
    MemberRecord(Q, "b", QueueMember(10_000, ("mail", "jobs"))),
    OffsetRecord(Q, "jobs", 0, OffsetValue(7, -1, "", TIME_MS)),
    EpochRecord(Q, EpochValue(3)),
    MemberRecord(Q, "a", None),
)
"""What a queue writes when two members join and one of them leaves."""


@pytest.fixture(autouse=True)
def _rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adds the toy's rows to the tables of the product."""
    for place, rows in ROWS.items():
        file, name = place.split(":")
        module = import_module("callboard." + file.removesuffix(".py").replace("/", "."))
        for key, row in rows.items():
            assert key not in getattr(module, name)
            monkeypatch.setitem(getattr(module, name), key, row)


@pytest.fixture
def simulation() -> CoordinatorSimulation:
    return CoordinatorSimulation()


def joined(simulation: CoordinatorSimulation, member_id: str = "a", **options: Any) -> QueueJoined:
    reply: QueueJoined = simulation.post(JoinQueue(Q, member_id, **options)).value
    return reply


# Requests ------------------------------------------------------------------------------------------------------------


def test_own_request_creates_group_and_is_answered_when_durable(simulation: CoordinatorSimulation) -> None:
    simulation.holds_appends = True
    reply = simulation.post(JoinQueue(Q, "a"))
    assert reply.is_waiting
    assert simulation.listed() == (ListedGroup(Q, "queue", "Empty", QUEUE),)
    simulation.complete_append()
    assert reply.value == QueueJoined(ErrorCode.NONE, 1, (("jobs", 3),))
    assert simulation.post(QueueHeartbeat(Q, "a", 1)).value is ErrorCode.NONE
    assert simulation.post(QueueHeartbeat(Q, "b", 1)).value is ErrorCode.UNKNOWN_MEMBER_ID
    assert simulation.post(DescribeQueue(Q)).value == QueueDescribed(ErrorCode.NONE, "Active", 1, ("a",))


def test_failed_append_is_reply_and_changes_nothing(simulation: CoordinatorSimulation) -> None:
    simulation.holds_appends = True
    reply = simulation.post(JoinQueue(Q, "a"))
    simulation.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    assert reply.value == QueueJoined(ErrorCode.NOT_COORDINATOR)
    assert simulation.post(DescribeQueue(Q)).value.members == ()


def test_requests_of_classic_members_are_refused(simulation: CoordinatorSimulation) -> None:
    joined(simulation)
    assert simulation.post(join(group_id=Q)).value.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert simulation.post(sync("a", 1, group_id=Q)).value.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert simulation.post(heartbeat("a", 1, group_id=Q)).value is ErrorCode.UNKNOWN_MEMBER_ID
    assert simulation.post(leave("a", group_id=Q)).value.members[0].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert simulation.post(DescribeGroup(Q)).value.message == f"Group {Q} is not a classic group."


def test_classic_group_refuses_requests_of_a_queue(simulation: CoordinatorSimulation) -> None:
    simulation.post(join(group_id=Q))
    assert joined(simulation).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert simulation.post(QueueHeartbeat(Q, "a", 1)).value is ErrorCode.UNKNOWN_MEMBER_ID
    assert simulation.post(DescribeQueue(Q)).value.error is ErrorCode.GROUP_ID_NOT_FOUND


def test_absent_queue_and_empty_group_id_get_errors_of_their_rows(simulation: CoordinatorSimulation) -> None:
    assert simulation.post(QueueHeartbeat(Q, "a", 1)).value is ErrorCode.UNKNOWN_MEMBER_ID
    assert simulation.post(DescribeQueue(Q)).value == QueueDescribed(ErrorCode.GROUP_ID_NOT_FOUND)
    assert simulation.post(JoinQueue("", "a")).value == QueueJoined(ErrorCode.INVALID_GROUP_ID)


def test_heartbeat_tells_a_new_epoch_and_session_ends(simulation: CoordinatorSimulation) -> None:
    joined(simulation, "a")
    joined(simulation, "b", session_timeout_ms=20_000)
    assert simulation.post(QueueHeartbeat(Q, "a", 1)).value is ErrorCode.REBALANCE_IN_PROGRESS
    simulation.advance(10_000)
    assert simulation.post(DescribeQueue(Q)).value == QueueDescribed(ErrorCode.NONE, "Active", 3, ("b",))
    assert simulation.directory.counters.expired_sessions == 1


def test_topics_of_the_view_are_assigned(simulation: CoordinatorSimulation) -> None:
    assert joined(simulation, topics=("jobs", "none")).partitions == (("jobs", 3),)


# Decisions while an entry is in flight -------------------------------------------------------------------------------


def members_of(simulation: CoordinatorSimulation) -> tuple[str, ...]:
    members: tuple[str, ...] = simulation.post(DescribeQueue(Q)).value.members
    return members


def test_joins_in_flight_are_decided_one_after_the_other_and_stored_together() -> None:
    simulation = CoordinatorSimulation(holds_appends=True)
    first, second, third = (simulation.post(JoinQueue(Q, member_id)) for member_id in "abc")
    assert (first.is_waiting, second.is_waiting, len(simulation.log.in_flight)) == (True, True, 1)
    simulation.complete_append()
    assert (first.value.epoch, second.is_waiting) == (1, True)
    simulation.complete_append()
    assert (second.value.epoch, third.value.epoch) == (2, 3)
    assert members_of(simulation) == ("a", "b", "c")


def test_decision_after_a_failed_append_does_not_see_what_has_failed() -> None:
    simulation = CoordinatorSimulation(holds_appends=True)
    first, second = (simulation.post(JoinQueue(Q, member_id)) for member_id in "ab")
    simulation.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    simulation.complete_append()
    assert (first.value.error, second.value.epoch) == (ErrorCode.NOT_COORDINATOR, 1)
    assert members_of(simulation) == ("b",)


def test_entry_that_is_too_large_is_divided() -> None:
    simulation = CoordinatorSimulation(holds_appends=True)
    replies = [simulation.post(JoinQueue(Q, member_id)) for member_id in "abcde"]
    simulation.complete_append()
    for _ in range(2):  # four joins, then two, are too many
        simulation.fail(ErrorCode.MESSAGE_TOO_LARGE)
    simulation.complete_append()
    assert [reply.is_waiting for reply in replies] == [False, False, True, True, True]
    simulation.complete_append()
    assert [reply.value.epoch for reply in replies] == [1, 2, 3, 4, 5]


def test_one_decision_that_is_too_large_is_refused() -> None:
    simulation = CoordinatorSimulation(holds_appends=True)
    reply = simulation.post(JoinQueue(Q, "a"))
    simulation.fail(ErrorCode.MESSAGE_TOO_LARGE)
    assert reply.value.error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_expired_session_waits_for_the_entry_in_flight(simulation: CoordinatorSimulation) -> None:
    joined(simulation, "a")
    simulation.holds_appends = True
    reply = simulation.post(JoinQueue(Q, "b", session_timeout_ms=100_000))
    simulation.advance(10_000)
    simulation.complete_all_appends()
    assert (reply.value.epoch, members_of(simulation)) == (2, ("b",))


def test_bug_in_a_decision_leaves_no_request_without_reply(
    simulation: CoordinatorSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation.holds_appends = True
    replies = [simulation.post(JoinQueue(Q, member_id)) for member_id in "abc"]
    group = simulation.directory.groups[Q].actor_inbox.actor.group  # type: ignore[union-attr]
    monkeypatch.setattr(group._queue, "_decide", lambda *_: 1 / 0)
    simulation.complete_append()
    assert [reply.value.error for reply in replies] == [
        ErrorCode.NONE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ]


# Change of kind ------------------------------------------------------------------------------------------------------


def kinds(simulation: CoordinatorSimulation) -> list[tuple[str, str]]:
    return [(group.group_type, group.state) for group in simulation.listed()]


def key_types(simulation: CoordinatorSimulation) -> list[int]:
    """Of the records of the last entry; negative for tombstones."""
    [(_partition, records)] = simulation.log.rounds[-1]
    written: Any = records
    return [record.key_type if record.value is not None else -record.key_type for record in written]


def test_empty_classic_group_becomes_a_queue(simulation: CoordinatorSimulation) -> None:
    simulation.post(commit(5, group_id=Q))
    assert kinds(simulation) == [("classic", "Empty")]
    assert joined(simulation).epoch == 1
    assert key_types(simulation) == [-2, 1001, 1002]
    assert kinds(simulation) == [("queue", "Active")]
    assert simulation.post(fetch(group_id=Q)).value.topics[0][1][0].offset == 5
    restarted = CoordinatorSimulation(simulation.log.groups())
    assert kinds(restarted) == [("queue", "Active")]


def test_empty_queue_becomes_a_classic_group(simulation: CoordinatorSimulation) -> None:
    joined(simulation)
    simulation.post(LeaveQueue(Q, "a"))
    assert simulation.post(join(group_id=Q)).is_waiting
    assert key_types(simulation) == [-1001, 2]
    simulation.advance(3000)
    assert kinds(simulation) == [("classic", "CompletingRebalance")]
    assert kinds(CoordinatorSimulation(simulation.log.groups())) == [("classic", "Empty")]


def test_refused_request_does_not_change_the_kind(simulation: CoordinatorSimulation) -> None:
    joined(simulation)
    simulation.post(LeaveQueue(Q, "a"))
    assert simulation.post(join("m", group_id=Q)).value.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert kinds(simulation) == [("queue", "Empty")]
    assert joined(simulation).epoch == 3


def test_failed_change_of_kind_leaves_the_old_kind(simulation: CoordinatorSimulation) -> None:
    simulation.post(commit(5, group_id=Q))
    simulation.holds_appends = True
    first, second = simulation.post(JoinQueue(Q, "a")), simulation.post(JoinQueue(Q, "b"))
    simulation.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    assert [reply.value.error for reply in (first, second)] == [ErrorCode.NOT_COORDINATOR] * 2
    assert kinds(simulation) == [("classic", "Empty")]
    simulation.holds_appends = False
    assert joined(simulation).epoch == 1


def test_joins_during_a_change_of_kind(simulation: CoordinatorSimulation) -> None:
    simulation.post(commit(5, group_id=Q))
    simulation.holds_appends = True
    replies = [simulation.post(JoinQueue(Q, member_id)) for member_id in "ab"]
    classic = simulation.post(join(group_id=Q))
    simulation.complete_all_appends()
    assert [reply.value.epoch for reply in replies] == [1, 2]
    assert classic.value.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_record_of_the_old_kind_in_flight_does_not_confuse_the_new_one(simulation: CoordinatorSimulation) -> None:
    """The classic group has a member id that has not joined yet, and its first record is in flight."""
    simulation.holds_appends = True
    simulation.post(join(group_id=Q, version=4))
    reply = simulation.post(JoinQueue(Q, "a"))
    simulation.complete_all_appends()
    assert reply.value.epoch == 1
    assert kinds(simulation) == [("queue", "Active")]
    assert members_of(simulation) == ("a",)
    simulation.advance(9_000)
    assert simulation.post(QueueHeartbeat(Q, "a", 1)).value is ErrorCode.NONE
    assert simulation.deadlines == 2, "those of the idle group and of the session; that of the member id is cancelled"


# Offsets, deletion, expiry -------------------------------------------------------------------------------------------


def test_offsets_of_a_queue_are_committed_fetched_and_deleted(simulation: CoordinatorSimulation) -> None:
    joined(simulation, topics=("t",))
    simulation.post(commit(5, group_id=Q))
    assert simulation.post(fetch(group_id=Q)).value.topics[0][1][0].offset == 5
    subscribed = OffsetsDeleted(ErrorCode.NONE, (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,))
    assert simulation.post(OffsetDelete(Q, (("t", (0,)),))).value == subscribed
    assert simulation.post(DeleteGroup(Q)).value is ErrorCode.NON_EMPTY_GROUP
    assert simulation.post(LeaveQueue(Q, "a")).value is ErrorCode.NONE
    assert simulation.post(DeleteGroup(Q)).value is ErrorCode.NONE
    assert simulation.log.groups().get(Q, GroupData()).is_empty()
    assert simulation.listed() == ()


def test_offsets_expire_and_the_empty_queue_is_deleted(simulation: CoordinatorSimulation) -> None:
    simulation.settings.offsets_retention_minutes = 60
    joined(simulation, topics=("t",), session_timeout_ms=10_000_000)
    simulation.post(commit(5, group_id=Q))
    simulation.advance(2 * 60 * 60_000)
    assert simulation.post(fetch(group_id=Q)).value.topics[0][1][0].offset == 5, "a member is subscribed"
    simulation.post(LeaveQueue(Q, "a"))
    simulation.advance(2 * simulation.settings.offsets_retention_check_interval_ms)
    assert simulation.listed() == ()


@async_test
async def test_timeline_notes_the_deletion_of_a_queue(tmp_path: Path) -> None:
    timeline, origin = Timeline(lambda: 0), Origin("client", "/127.0.0.1", 1)
    recorder = TimelineRecorder(timeline)
    async with running_node(tmp_path) as harness:
        recorder.attach(harness.node)
        for request in (JoinQueue(Q, "a"), LeaveQueue(Q, "a"), DeleteGroup(Q)):
            await harness.node.local.ask(request, origin)
        recorder.end()
    assert [(event.group, event.what) for event in timeline.events] == [(Q, "the group is deleted")]


# Restart, passivation, listing ---------------------------------------------------------------------------------------


def test_queue_with_members_survives_a_restart(simulation: CoordinatorSimulation) -> None:
    joined(simulation, "a")
    restarted = CoordinatorSimulation(simulation.log.groups())
    assert restarted.listed() == (ListedGroup(Q, "queue", "Active", QUEUE),)
    assert restarted.post(QueueHeartbeat(Q, "a", 1)).value is ErrorCode.NONE
    assert joined(restarted, "b").epoch == 2


def test_queue_without_members_is_passivated_and_listed_with_its_type(simulation: CoordinatorSimulation) -> None:
    joined(simulation)
    simulation.post(LeaveQueue(Q, "a"))
    simulation.advance(180_000)
    assert list(simulation.directory.passivated) == [Q]
    simulation.post(commit(group_id="simple"))
    listed = ListedGroup(Q, "queue", "Empty", QUEUE)
    assert simulation.listed(types=frozenset({"queue"})) == (listed,)
    assert simulation.listed(types=frozenset({"classic"}))[0].group_type == CLASSIC
    assert simulation.post(DescribeQueue(Q)).value == QueueDescribed(ErrorCode.NONE, "Empty", 2, ())


@async_test
async def test_server_loads_a_queue_from_its_log(tmp_path: Path) -> None:
    origin = Origin("client", "/127.0.0.1", 1)
    async with running_node(tmp_path) as harness:
        assert (await harness.node.local.ask(JoinQueue(Q, "a", ("t",), 100_000), origin)).partitions == (("t", 3),)
        await harness.node.local.ask(JoinQueue("left", "a"), origin)
        await harness.node.local.ask(LeaveQueue("left", "a"), origin)
        await harness.restart()
        described = QueueDescribed(ErrorCode.NONE, "Active", 1, ("a",))
        assert await harness.node.local.ask(DescribeQueue(Q), origin) == described
        client = await harness.connect()
        groups = (await client.ask("list_groups", states_filter=[], types_filter=[]))["groups"]
        assert {(group["group_id"], group["group_state"], group["group_type"]) for group in groups} == {
            (Q, "Active", "queue"),
            ("left", "Empty", "queue"),
        }


# The log -------------------------------------------------------------------------------------------------------------


def write_partition(root: Path) -> Path:
    folder = root / "__consumer_offsets-0"
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(b"".join(plain(base, record) for base, record in enumerate(RECORDS)))
    return folder


def test_newest_first_loading_equals_replay(tmp_path: Path) -> None:
    data = load_partition(write_partition(tmp_path)).unpacked_groups[Q]
    assert (data.type, data.value) == (QUEUE, QueueValue(3, {"b": QueueMember(10_000, ("mail", "jobs"))}))
    replayed = GroupData()
    for record in RECORDS:
        replayed.replay(record)
    assert (replayed.type, replayed.value, list(replayed.offsets)) == (data.type, data.value, list(data.offsets))


def test_records_are_decoded_as_they_were_encoded() -> None:
    for record in (
        EpochRecord(Q, EpochValue(1)),
        MemberRecord(Q, "a", QueueMember(1, ("t",))),
        MemberRecord(Q, "a", None),
    ):
        assert decode(*encode(record)) == record


def test_dump_shows_the_records(tmp_path: Path) -> None:
    partition = LogPartition(TOPIC, 0, tmp_path)
    items = [LoggedRecord(partition, index, TIME_MS, record) for index, record in enumerate(RECORDS)]
    assert [as_json(item)["kind"] for item in items[:2]] == ["queue epoch", "queue member"]
    member = as_json(items[1])
    assert (member["group"], member["topics"], member["tombstone"]) == (Q, ("jobs",), False)
    assert "queue epoch" in format_line(items[0])
    assert "deleted" in format_line(items[-1])
    assert describe_key(TOPIC, encode(MemberRecord(Q, "a", None))[0]) == ("queue member", Q)


EPOCH = EpochRecord(Q, EpochValue(1))
OFFSET = OffsetRecord(Q, "jobs", 0, OffsetValue(7))
INVALID_VALUE = b"\0"


@pytest.mark.parametrize("records", [(), RECORDS[:1]])
@pytest.mark.parametrize("unreadable", [EPOCH, OFFSET])
def test_quarantined_queue_has_the_type_that_its_records_tell(
    tmp_path: Path, records: tuple[Record, ...], unreadable: EpochRecord | OffsetRecord
) -> None:
    """An offset alone does not tell it: such a group counts as classic."""
    folder = tmp_path / "__consumer_offsets-0"
    folder.mkdir()
    frame = frame_record(0, 0, encode(unreadable)[0], INVALID_VALUE)
    invalid = encode_batch(len(records), TIME_MS, TIME_MS, [frame])
    batches = [plain(base, record) for base, record in enumerate(records)]
    (folder / f"{0:020d}.log").write_bytes(b"".join((*batches, invalid)))
    expected = CLASSIC if unreadable is OFFSET and not records else QUEUE
    assert load_partition(folder).quarantined[Q].group_type == expected


def test_quarantined_queue_is_listed_with_its_type() -> None:
    partitions = GroupPartitions(1)
    partitions[0].quarantined[Q] = QuarantinedGroup("a record is invalid", QUEUE)
    assert partitions[0].list_quarantined(Q) == ListedGroup(Q, "", "Dead", QUEUE)


def test_verify_compares_the_readers(tmp_path: Path) -> None:
    folder, scratch = write_partition(tmp_path), tmp_path / "scratch"
    scratch.mkdir()
    checked = verify(LogPartition(TOPIC, 0, folder), scratch, Disk())
    assert (checked.is_valid, checked.records, checked.keys) == (True, len(RECORDS), 1)


def test_spark_shows_the_records() -> None:
    rows = list(spark_rows())
    assert [(row["kind"], row["group"]) for row in rows[:2]] == [("unknown", Q), ("unknown", Q)]
    assert (rows[1]["key_type"], rows[1]["tombstone"], rows[-1]["tombstone"]) == (1002, False, True)


def spark_rows() -> Iterator[dict[str, Any]]:
    for base, record in enumerate(RECORDS):
        [batch] = read_batches(plain(base, record))
        for offset, time_ms, key, value in batch.records():
            yield record_row(0, batch, offset, time_ms, (key, value), decode(key, value))


# The recipe ----------------------------------------------------------------------------------------------------------


def recipe(title: str) -> str:
    page = (ROOT / "docs" / "contributing.md").read_text()
    return page.split(f"### {title}\n")[1].split("\n##")[0]


def test_recipe_names_all_tables_in_which_the_toy_has_rows() -> None:
    """The files of the recipe are those with a table of ``ROWS``, and each of them has one."""
    files = set(re.findall(r"`((?:actors|runtime)/[\w/]+\.py)`", recipe("A kind of group")))
    assert files == {place.split(":")[0] for place in ROWS}


def test_recipe_of_a_request_names_all_files_of_an_example() -> None:
    """SyncGroup is a request that its group handles by itself; no file but those of the recipe names its class."""
    text = recipe("A request to a group")
    files = set(re.findall(r"`((?:actors|runtime)/[\w/]+\.py)`", text))
    own_modules = {"actors/group/syncing.py", "actors/group/identity.py", "runtime/kafka/api/sync_group.py"}
    own_modules |= {"actors/consumer_group/group.py", "actors/consumer_group/classic_members.py"}  # of another kind
    bursts = {"runtime/kafka/call.py"}  # requests that all members of a group send at once are queued
    folders = ("actors", "runtime/kafka", "runtime/node", "runtime/loading")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    names = re.compile(r"^(?:from .*|class |    )SyncGroup(?:,|\(|:|$)|^from .*\bSyncGroup\b", re.MULTILINE)
    users = {str(path.relative_to(ROOT)) for path in paths if names.search(path.read_text())}
    assert users - own_modules - bursts == {file for file in files if file.startswith("actors/")} - {DISPATCH}
