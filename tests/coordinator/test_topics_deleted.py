"""Deleted topics lose their offsets, in active groups, passivated groups, and groups with other work in flight."""

from __future__ import annotations

from pathlib import Path

import pytest
from actor_system.instances import instance
from actor_system.manual_log import COMMITTED, fetch_offset
from actor_system.requests import GROUP, commit, join
from actor_system.simulation import EPOCH, CoordinatorSimulation
from actor_system.transactions import TransactionSimulation, offset, open_transaction, txn_commit
from topic_api_helpers import FakeServices, delete_topics

from callboard.actors.coordinator import group_scan as scan
from callboard.actors.errors import ErrorCode
from callboard.actors.group.expiry import BATCH
from callboard.actors.group.offsets import GroupData
from callboard.actors.messages import (
    DeleteGroup,
    GroupsLoaded,
    OffsetCommit,
    PartitionGained,
    PartitionLoaded,
    PartitionLost,
    TopicsDeleted,
)
from callboard.actors.records import OffsetRecord, OffsetValue

TOPIC_DELETED = TopicsDeleted(frozenset({"t"}))


def passivated_group(*topics: str, partitions: int = 1) -> GroupData:
    """A passivated simple group from the log."""
    data = GroupData()
    for topic in topics:
        for partition in range(partitions):
            data.replay(OffsetRecord("any", topic, partition, OffsetValue(7, -1, "", 1, -1)))
    return data


def tombstones(simulation: CoordinatorSimulation) -> list[tuple[str, str, int]]:
    """Group, topic and partition."""
    records = [record for _, record in simulation.log.durable if isinstance(record, OffsetRecord)]
    return [(record.group_id, record.topic, record.partition) for record in records if record.value is None]


def test_deleted_topic_loses_its_offsets_only() -> None:
    simulation = CoordinatorSimulation()
    for topic in ("t", "tt", "u"):
        simulation.post(commit(5, topic=topic))
    simulation.post(commit(6, topic="t", partition=3))
    simulation.tell_coordinator(TOPIC_DELETED)
    assert [fetch_offset(simulation, topic=topic) for topic in ("t", "tt", "u")] == [-1, 5, 5]
    assert sorted(tombstones(simulation)) == [(GROUP, "t", 0), (GROUP, "t", 3)]
    assert not simulation.log.groups()[GROUP].offsets.has("t", 0)


def test_group_with_members_loses_offsets_and_stays() -> None:
    simulation = CoordinatorSimulation()
    [member] = simulation.form_group({})
    simulation.post(commit(5, member_id=member.member_id, generation_id=1))
    simulation.tell_coordinator(TOPIC_DELETED)
    assert fetch_offset(simulation) == -1
    assert simulation.post(commit(6, member_id=member.member_id, generation_id=1)).value == COMMITTED
    assert fetch_offset(simulation) == 6


def test_only_passivated_groups_with_such_offsets_are_activated() -> None:
    simulation = CoordinatorSimulation({"has": passivated_group("t", "u"), "has not": passivated_group("u", "v")})
    simulation.tell_coordinator(TOPIC_DELETED)
    assert tombstones(simulation) == [("has", "t", 0)]
    assert "has not" in simulation.directory.passivated, "it is not activated"


def test_group_without_offsets_stays_until_next_retention_scan() -> None:
    simulation = CoordinatorSimulation({"simple": passivated_group("t")})
    simulation.tell_coordinator(TOPIC_DELETED)
    [group] = simulation.listed()
    assert (group.group_id, group.state) == ("simple", "Empty")
    simulation.advance(simulation.settings.offsets_retention_check_interval_ms)
    assert simulation.listed() == ()


def test_commits_in_flight_for_deleted_topic_are_deleted() -> None:
    simulation = CoordinatorSimulation(holds_appends=True)
    first_reply, second_reply = simulation.post(commit(1)), simulation.post(commit(2, partition=1))
    simulation.tell_coordinator(TOPIC_DELETED)
    later = simulation.post(commit(3))
    simulation.complete_all_appends()
    assert [first_reply.value, second_reply.value, later.value] == [COMMITTED] * 3
    assert [fetch_offset(simulation), fetch_offset(simulation, partitions=[1])] == [3, -1], (
        "later commits belong to a new topic of that name"
    )


@pytest.mark.parametrize("passivated", [False, True])
def test_commit_for_new_topic_of_same_name_is_kept(passivated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The group gets the deletion once, before the commit, even if the scan reaches the group later."""
    monkeypatch.setattr(scan, "GROUPS_PER_TURN", 1)
    other_groups = {f"group-{number}": passivated_group("t") for number in range(5)}
    simulation = CoordinatorSimulation({**other_groups, GROUP: passivated_group("t", partitions=2)})
    if not passivated:
        assert fetch_offset(simulation) == 7
    simulation.coordinator.tell(TOPIC_DELETED)
    reply = simulation.send(commit(8))
    simulation.run()
    assert reply.value == COMMITTED
    assert [fetch_offset(simulation), fetch_offset(simulation, partitions=[1])] == [8, -1]
    assert all(fetch_offset(simulation, group_id=group_id) == -1 for group_id in other_groups)
    assert len(tombstones(simulation)) == len(set(tombstones(simulation))) == 7


def test_two_topic_deletions_in_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "GROUPS_PER_TURN", 1)
    simulation = CoordinatorSimulation({f"group-{number}": passivated_group("t", "u") for number in range(5)})
    simulation.coordinator.tell(TOPIC_DELETED)
    simulation.coordinator.tell(TopicsDeleted(frozenset({"u", "v"})))
    simulation.run()
    assert len(tombstones(simulation)) == 10
    assert not instance(simulation.coordinator)._cleanups


def loading_partition(simulation: CoordinatorSimulation) -> int:
    """The partition of GROUP, which is lost and then gained."""
    number = simulation.directory.partitions.number_of(GROUP)
    simulation.ask(PartitionLost(number, EPOCH))
    simulation.tell_coordinator(PartitionGained(number, EPOCH + 1))
    return number


def test_groups_loaded_after_topic_deletion_lose_offsets_when_partition_is_loaded() -> None:
    simulation = CoordinatorSimulation()
    number = loading_partition(simulation)
    simulation.tell_coordinator(TOPIC_DELETED)
    assert simulation.directory.is_detour, "requests wait for the cleanup"
    packed = passivated_group("t", "u", partitions=2).pack()
    simulation.coordinator.tell(GroupsLoaded(number, EPOCH + 1, {GROUP: packed}, {}))
    simulation.coordinator.tell(PartitionLoaded(number, EPOCH + 1))
    reply = simulation.send(commit(8))
    simulation.run()
    assert reply.value == COMMITTED
    assert fetch_offset(simulation, partitions=[1]) == -1
    assert [fetch_offset(simulation), fetch_offset(simulation, topic="u")] == [8, 7], "a new topic of that name"
    assert not simulation.directory.is_detour


@pytest.mark.parametrize("is_lost", [False, True])
def test_topic_cleanup_ends_if_partition_is_not_loaded(is_lost: bool) -> None:
    simulation = CoordinatorSimulation()
    number = loading_partition(simulation)
    simulation.tell_coordinator(TOPIC_DELETED)
    if is_lost:
        simulation.ask(PartitionLost(number, EPOCH + 1))
    else:
        simulation.tell_coordinator(PartitionLoaded(number, EPOCH + 1, failure="a damaged file"))
    assert not simulation.directory.is_detour


def test_topic_deletion_limits_number_of_activated_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "MAX_PENDING_GROUPS", 10)
    simulation = CoordinatorSimulation(
        {f"group-{number}": passivated_group("t") for number in range(100)}, holds_appends=True
    )
    simulation.tell_coordinator(TOPIC_DELETED)
    assert len(simulation.directory.groups) == 10
    simulation.complete_all_appends()
    assert len(tombstones(simulation)) == 100


def test_topic_deletion_in_batches_delays_commits() -> None:
    simulation = CoordinatorSimulation({GROUP: passivated_group("t", partitions=2 * BATCH + 1)}, holds_appends=True)
    simulation.tell_coordinator(TOPIC_DELETED)
    later = simulation.post(commit(9, partition=2 * BATCH))
    while simulation.log.in_flight:
        assert len(simulation.log.in_flight[0].records) <= BATCH
        simulation.complete_append()
    assert later.value == COMMITTED
    assert fetch_offset(simulation, partitions=[2 * BATCH]) == 9
    assert len(tombstones(simulation)) == 2 * BATCH + 1


def test_topic_deletion_removes_pending_offsets() -> None:
    """A later COMMIT marker applies nothing, as in Kafka."""
    simulation = TransactionSimulation()
    simulation.post(commit(4, partition=1))
    producer = open_transaction(simulation)
    simulation.tell_coordinator(TOPIC_DELETED)
    assert not simulation.group().data.pending
    assert simulation.end(producer).error is ErrorCode.NONE
    assert offset(simulation) == -1
    assert sorted(tombstones(simulation)) == [(GROUP, "t", 0), (GROUP, "t", 1)]


def test_transactional_commit_during_topic_deletion_is_kept() -> None:
    simulation = TransactionSimulation()
    producer = open_transaction(simulation)
    simulation.holds_appends = True
    simulation.tell_coordinator(TOPIC_DELETED)
    reply = simulation.ask_transactions(txn_commit(producer, 9))
    assert reply.is_waiting
    simulation.complete_all_appends()
    assert reply.value.errors == (ErrorCode.NONE,)
    simulation.holds_appends = False
    simulation.end(producer)
    assert offset(simulation) == 9


def test_topic_deletion_skips_group_that_is_being_deleted() -> None:
    simulation = CoordinatorSimulation(holds_appends=True)
    simulation.post(commit(1))
    delete_reply = simulation.post(DeleteGroup(GROUP))
    simulation.tell_coordinator(TOPIC_DELETED)
    later = simulation.post(join(version=4))
    simulation.complete_all_appends()
    assert delete_reply.value is ErrorCode.NONE
    assert later.error is ErrorCode.MEMBER_ID_REQUIRED


def test_topic_deletion_with_failed_append_keeps_offsets() -> None:
    simulation = CoordinatorSimulation(holds_appends=True)
    simulation.post(commit(1))
    simulation.complete_append()
    simulation.tell_coordinator(TOPIC_DELETED)
    commit_reply = simulation.post(commit(2, partition=1))
    simulation.fail(ErrorCode.MESSAGE_TOO_LARGE)
    simulation.complete_all_appends()
    assert commit_reply.value == COMMITTED
    assert [fetch_offset(simulation), fetch_offset(simulation, partitions=[1])] == [1, 2]


def test_topic_deletion_without_offsets_appends_nothing() -> None:
    simulation = CoordinatorSimulation()
    simulation.post(OffsetCommit("empty", "", None, -1, ()))
    simulation.post(commit(5, topic="u"))
    rounds_before = len(simulation.log.rounds)
    simulation.tell_coordinator(TOPIC_DELETED)
    assert len(simulation.log.rounds) == rounds_before


def test_delete_topics_request_deletes_offsets(tmp_path: Path) -> None:
    """Only for topics that existed."""
    node = FakeServices(tmp_path)
    node.topics.create("plays", 1)
    node.topics.create("u", 1)
    delete_topics(node, "plays", "nobody", "u")
    assert node.deleted_topics == [frozenset({"plays", "u"})]
    delete_topics(node, "nobody")
    assert len(node.deleted_topics) == 1
    node.topics.files.close()


def test_requests_go_through_the_coordinator_until_all_groups_have_the_deletion() -> None:
    """With many groups the scan takes many turns; a group that it has not reached gets the deletion with a request."""
    simulation = CoordinatorSimulation(holds_appends=True)
    names = [f"group-{number}" for number in range(scan.MAX_PENDING_GROUPS + 10)]
    for name in names:
        simulation.send(commit(7, group_id=name))
    simulation.run()
    simulation.complete_all_appends()
    simulation.tell_coordinator(TOPIC_DELETED)
    assert simulation.directory.is_detour
    for name in names:
        simulation.send(commit(8, group_id=name))
    simulation.run()
    simulation.complete_all_appends()
    assert not simulation.directory.is_detour
    assert [fetch_offset(simulation, group_id=name) for name in names] == [8] * len(names)
    assert len(tombstones(simulation)) == len(names)


def test_turns_of_a_cleanup_are_shorter_if_many_topics_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[int] = []
    run_part = scan.GroupScan.run_part

    def count_checks(self: scan.GroupScan) -> bool:
        checks.append(self._groups_per_turn)
        return run_part(self)

    monkeypatch.setattr(scan.GroupScan, "run_part", count_checks)
    simulation = CoordinatorSimulation({f"group-{number}": passivated_group("u") for number in range(20)})
    simulation.tell_coordinator(TopicsDeleted(frozenset(f"t{number}" for number in range(scan.GROUPS_PER_TURN // 10))))
    assert set(checks) == {10}
    assert len(checks) >= 20 // 10


# The end of a cleanup ------------------------------------------------------------------------------------------------


def test_cleanup_reports_its_end_when_the_tombstones_are_durable() -> None:
    simulation = CoordinatorSimulation()
    simulation.post(commit(5, topic="t"))
    done: list[int] = []
    simulation.tell_coordinator(TopicsDeleted(frozenset({"t"}), lambda: done.append(len(tombstones(simulation)))))
    assert done == [1]


def test_cleanup_without_groups_reports_its_end() -> None:
    simulation = CoordinatorSimulation()
    done: list[bool] = []
    simulation.tell_coordinator(TopicsDeleted(frozenset({"t"}), lambda: done.append(True)))
    assert done == [True]
