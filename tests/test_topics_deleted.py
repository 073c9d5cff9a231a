"""Topics are deleted: their offsets go, in groups that are awake, asleep, or about to be told something else."""

from __future__ import annotations

from pathlib import Path

import pytest
from stage.held import FINE, fetched
from stage.requests import GROUP, commit, join
from stage.transactions import TransactionWorld, offset, opened, txn_commit
from stage.world import World
from topic_api_helpers import FakeServices, delete_topics

from callboard.actors.coordinator import group_scan as walk
from callboard.actors.errors import ErrorCode
from callboard.actors.group.expiry import BATCH
from callboard.actors.group.offsets import GroupData
from callboard.actors.messages import DeleteGroup, ListGroups, OffsetCommit, TopicsDeleted
from callboard.actors.records import OffsetRecord, OffsetValue

GONE = TopicsDeleted(frozenset({"t"}))


def sleeper(*topics: str, partitions: int = 1) -> GroupData:
    """A simple group as the log has it; it sleeps until somebody asks."""
    data = GroupData()
    for topic in topics:
        for partition in range(partitions):
            data.replay(OffsetRecord("any", topic, partition, OffsetValue(7, -1, "", 1, -1)))
    return data


def tombstones(world: World) -> list[tuple[str, str, int]]:
    """Group, topic and partition."""
    records = [record for _, record in world.log.durable if isinstance(record, OffsetRecord)]
    return [(record.group_id, record.topic, record.partition) for record in records if record.value is None]


def test_the_offsets_of_a_topic_go_and_others_stay() -> None:
    world = World()
    for topic in ("t", "tt", "u"):
        world.post(commit(5, topic=topic))
    world.post(commit(6, topic="t", partition=3))
    world.tell_coordinator(GONE)
    assert [fetched(world, topic=topic) for topic in ("t", "tt", "u")] == [-1, 5, 5]
    assert sorted(tombstones(world)) == [(GROUP, "t", 0), (GROUP, "t", 3)]
    assert not world.log.groups()[GROUP].offsets.has("t", 0)


def test_groups_with_members_lose_them_too_and_live() -> None:
    world = World()
    [joined] = world.form({})
    world.post(commit(5, member_id=joined.member_id, generation_id=1))
    world.tell_coordinator(GONE)
    assert fetched(world) == -1
    assert world.post(commit(6, member_id=joined.member_id, generation_id=1)).value == FINE
    assert fetched(world) == 6


def test_groups_that_sleep_are_woken_if_they_have_such_offsets() -> None:
    world = World({"has": sleeper("t", "u"), "has not": sleeper("u", "v")})
    world.tell_coordinator(GONE)
    assert tombstones(world) == [("has", "t", 0)]
    assert "has not" in world.directory.asleep, "nobody wakes it for nothing"


def test_the_group_itself_stays_until_the_next_sweep() -> None:
    world = World({"simple": sleeper("t")})
    world.tell_coordinator(GONE)
    [listed] = world.ask(ListGroups()).value
    assert (listed.group_id, listed.state) == ("simple", "Empty")
    world.advance(world.rules.offsets_retention_check_interval_ms)
    assert world.ask(ListGroups()).value == ()


def test_what_is_on_its_way_to_the_log_goes_too() -> None:
    world = World(holds_back=True)
    first, second = world.post(commit(1)), world.post(commit(2, partition=1))
    world.tell_coordinator(GONE)
    later = world.post(commit(3))
    world.keep_all()
    assert [first.value, second.value, later.value] == [FINE] * 3
    assert [fetched(world), fetched(world, partitions=[1])] == [3, -1], "what comes later is of a new topic"


@pytest.mark.parametrize("asleep", [False, True])
def test_a_commit_to_a_topic_of_the_same_name_stays(asleep: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It overtakes the walk: the group is told before it hears of the commit, and only once."""
    monkeypatch.setattr(walk, "LOOKS", 1)
    others = {f"group-{number}": sleeper("t") for number in range(5)}
    world = World({**others, GROUP: sleeper("t", partitions=2)})
    if not asleep:
        assert fetched(world) == 7
    world.coordinator.tell(GONE)
    place = world.send(commit(8))
    world.run()
    assert place.value == FINE
    assert [fetched(world), fetched(world, partitions=[1])] == [8, -1]
    assert all(fetched(world, group_id=group_id) == -1 for group_id in others)
    assert len(tombstones(world)) == len(set(tombstones(world))) == 7


def test_a_deletion_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "LOOKS", 1)
    world = World({f"group-{number}": sleeper("t", "u") for number in range(5)})
    world.coordinator.tell(GONE)
    world.coordinator.tell(TopicsDeleted(frozenset({"u", "v"})))
    world.run()
    assert len(tombstones(world)) == 10
    assert not world.coordinator.actor_inbox.actor._purges[0].walk._unanswered


def test_a_thousand_groups_do_not_come_into_memory_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "ASKED", 10)
    world = World({f"group-{number}": sleeper("t") for number in range(100)}, holds_back=True)
    world.tell_coordinator(GONE)
    assert len(world.directory.groups) == 10
    world.keep_all()
    assert len(tombstones(world)) == 100


def test_many_partitions_are_deleted_in_several_batches_and_nobody_commits_in_between() -> None:
    world = World({GROUP: sleeper("t", partitions=2 * BATCH + 1)}, holds_back=True)
    world.tell_coordinator(GONE)
    later = world.post(commit(9, partition=2 * BATCH))
    while world.log.in_flight:
        assert len(world.log.in_flight[0].records) <= BATCH
        world.keep()
    assert later.value == FINE
    assert fetched(world, partitions=[2 * BATCH]) == 9
    assert len(tombstones(world)) == 2 * BATCH + 1


def test_offsets_of_an_open_transaction_go_with_it() -> None:
    """A COMMIT has nothing to apply afterwards, as in Kafka."""
    world = TransactionWorld()
    world.post(commit(4, partition=1))
    producer = opened(world)
    world.tell_coordinator(GONE)
    assert not world.group().data.pending
    assert world.end(producer).error is ErrorCode.NONE
    assert offset(world) == -1
    assert sorted(tombstones(world)) == [(GROUP, "t", 0), (GROUP, "t", 1)]


def test_offsets_in_a_transaction_that_wait_for_it_count_afterwards() -> None:
    world = TransactionWorld()
    producer = opened(world)
    world.holds_back = True
    world.tell_coordinator(GONE)
    place = world.ask_about(txn_commit(producer, 9))
    assert place.is_waiting
    world.keep_all()
    assert place.value.errors == (ErrorCode.NONE,)
    world.holds_back = False
    world.end(producer)
    assert offset(world) == 9


def test_a_group_that_is_being_deleted_needs_not_be_told() -> None:
    world = World(holds_back=True)
    world.post(commit(1))
    deleting = world.post(DeleteGroup(GROUP))
    world.tell_coordinator(GONE)
    later = world.post(join(version=4))
    world.keep_all()
    assert deleting.value is ErrorCode.NONE
    assert later.error is ErrorCode.MEMBER_ID_REQUIRED


def test_a_failed_append_leaves_the_offsets_and_the_group_goes_on() -> None:
    world = World(holds_back=True)
    world.post(commit(1))
    world.keep()
    world.tell_coordinator(GONE)
    waiting = world.post(commit(2, partition=1))
    world.fail(ErrorCode.MESSAGE_TOO_LARGE)
    world.keep_all()
    assert waiting.value == FINE
    assert [fetched(world), fetched(world, partitions=[1])] == [1, 2]


def test_nothing_is_written_where_nothing_is() -> None:
    world = World()
    world.post(OffsetCommit("empty", "", None, -1, ()))
    world.post(commit(5, topic="u"))
    before = len(world.log.rounds)
    world.tell_coordinator(GONE)
    assert len(world.log.rounds) == before


def test_groups_hear_of_the_topics_that_are_deleted(tmp_path: Path) -> None:
    """Of those only that were there."""
    node = FakeServices(tmp_path)
    node.topics.create("plays", 1)
    node.topics.create("u", 1)
    delete_topics(node, "plays", "nobody", "u")
    assert node.told == [TopicsDeleted(frozenset({"plays", "u"}))]
    delete_topics(node, "nobody")
    assert len(node.told) == 1
    node.topics.close()
