"""Groups that change between the classic and the consumer protocol while they have members: records, failures, time.

The goldens of the chapter "migration" compare the answers with Kafka's.
"""

from __future__ import annotations

import pytest
from actor_system.requests import commit, heartbeat, join
from consumer_group.actor_world import GROUP, ActorWorld
from consumer_group.migration_world import MigrationWorld, assignment_text, classic_pair, mixed

from callboard.actors.assignors.consumer_protocol import Subscription, write_subscription
from callboard.actors.errors import ErrorCode
from callboard.actors.messages import DescribeEvents, Joined, Protocol
from callboard.actors.timer.messages import Expired

REJOIN = ErrorCode.REBALANCE_IN_PROGRESS

# Upgrade -------------------------------------------------------------------------------------------------------------


def test_upgrade_is_one_entry_of_the_log() -> None:
    world, first, second = classic_pair()
    assert world.told(world.join("C")) == (3, "")
    assert world.key_types() == [-2, 5, 5, 3, 7, 7, 6, 8, 8, 5, 3, 7, 7, 6, 8]
    assert len(world.log.rounds[-1]) == 1
    assert world.kind_and_state == ("consumer", "Reconciling")
    assert world.assigned() == {first: "t0 t1", second: "t2", "C": ""}
    assert [member.is_classic for member in world.described().members if member.member_id == "C"] == [False]


def test_classic_members_are_asked_to_rejoin_and_give_back() -> None:
    world, first, second = classic_pair()
    world.join("C")
    assert (world.classic_beat(first, 2), world.classic_beat(second, 2)) == (REJOIN, REJOIN)
    assert world.joined(first, "t0 t1") == 2
    kept = world.synced(first, 2)
    assert len(kept.split()) == 1
    assert world.classic_beat(first, 2) is REJOIN  # it still has to say that it has given back
    assert world.joined(first, kept) == 3
    assert (world.synced(first, 3), world.classic_beat(first, 3)) == (kept, ErrorCode.NONE)
    assert world.joined(second, "t2") == 3
    world.settle("C")
    assert sorted(str(text) for text in world.assigned().values()) == ["t0", "t1", "t2"]
    assert world.kind_and_state == ("consumer", "Stable")


def test_upgrade_while_the_record_of_the_classic_group_is_in_flight() -> None:
    """What is stored is still the empty consumer group."""
    world = MigrationWorld()
    world.join("C")
    world.beat("C", -1)
    world.holds_appends = True
    classic: Joined = world.classic_join().value
    joining = world.join("D")
    world.complete_all_appends()
    world.holds_appends = False
    assert (classic.error, world.told(joining)) == (ErrorCode.NONE, (2, "t0"))
    assert world.key_types()[0] == -2  # Kafka cannot load a consumer group after the record of a classic one
    assert set(world.assigned()) == set(world.restarted().assigned()) == {classic.member_id, "D"}


def test_parked_requests_are_answered_at_an_upgrade() -> None:
    world, first, _second = classic_pair()
    parked = world.classic_join()
    world.join("C")
    assert parked.value.error is REJOIN
    world, first, _second = classic_pair()
    world.classic_join(first, "t0 t1")
    world.leave(_second)
    assert world.joined(first, "t0 t1") == 3
    assert world.classic_state() == "CompletingRebalance"


def test_failed_upgrade_leaves_the_classic_group() -> None:
    world, first, second = classic_pair()
    world.holds_appends = True
    joining = world.join("C")
    waiting = world.post(heartbeat(first, 2, group_id=GROUP))
    assert joining.is_waiting
    assert waiting.is_waiting
    world.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    world.holds_appends = False
    assert joining.value.error is ErrorCode.NOT_COORDINATOR
    assert waiting.value is ErrorCode.NOT_COORDINATOR or waiting.value is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.kind_and_state == ("classic", "Stable")
    assert (world.classic_beat(first, 2), world.classic_beat(second, 2)) == (ErrorCode.NONE, ErrorCode.NONE)
    assert world.told(world.join("C"))[0] == 3


def test_outcome_of_an_earlier_record_does_not_end_an_upgrade() -> None:
    """The record of a classic group that was sent before the upgrade becomes durable after it."""
    world, first, second = classic_pair()
    world.leave(second)
    assert world.joined(first, "t0 t1") == 3
    world.holds_appends = True
    syncing = world.classic_sync(first, 3, {first: "t0 t1 t2"})
    joining = world.join("C")
    assert syncing.value.error is REJOIN
    assert world.post(commit(5, group_id=GROUP)).value.errors == (ErrorCode.UNKNOWN_MEMBER_ID,)
    world.complete_all_appends()
    assert world.told(joining)[0] == 4
    assert world.kind_and_state[0] == "consumer"
    assert world.restarted().assigned() == world.assigned()


def test_empty_instance_id_of_a_classic_member_is_not_that_of_dynamic_members() -> None:
    """JoinGroup allows an empty instance id, unlike ConsumerGroupHeartbeat."""
    world, member = mixed(instance="")
    world.join("D")
    world.joined(member, "t0 t1", instance="")
    kept = world.synced(member, 2)
    assert world.joined(member, kept, instance="") == 3
    world.settle("C", "D")
    assert sorted(str(text) for text in world.assigned().values()) == ["t0", "t1", "t2"]


def test_alarm_of_the_classic_group_comes_after_the_upgrade() -> None:
    world, _first, _second = classic_pair()
    world.join("C")
    world.tell(GROUP, Expired((("join",), ("sync",))))
    assert world.kind_and_state[0] == "consumer"
    assert world.beat("C", 3).value.error is ErrorCode.NONE


def test_classic_members_of_a_group_with_many_topics_are_answered() -> None:
    """A decision that looks at many names is made in steps."""
    world, member = mixed()
    names = [f"x{number}" for number in range(300)]
    world.topics_view.counts |= dict.fromkeys(names, 1)
    world.topics_view.version += 1
    world.join("D", "t", *names)
    assert world.classic_beat(member, 2) is REJOIN
    assert world.joined(member, "t0 t1") >= 2
    assert world.kind_and_state[0] == "consumer"


def test_group_with_many_topics_is_upgraded_and_downgraded() -> None:
    world, member = mixed()
    names = [f"x{number}" for number in range(300)]
    world.topics_view.counts |= dict.fromkeys(names, 1)
    world.topics_view.version += 1
    world.beat("C", -1)
    assert world.told(world.join("C", "t", *names))[0] == 3
    assert world.kind_and_state[0] == "consumer"
    world.beat("C", -1)
    assert world.kind_and_state == ("classic", "PreparingRebalance")
    assert world.classic_beat(member, 2) is ErrorCode.ILLEGAL_GENERATION  # it had not joined in epoch 3


# Time of classic members ---------------------------------------------------------------------------------------------


def test_member_that_does_not_rejoin_is_removed() -> None:
    world, first, second = classic_pair(rebalance_ms=4_000, session_ms=20_000)
    world.join("C")
    assert world.classic_beat(first, 2) is REJOIN
    world.advance(3_000)
    assert world.classic_beat(first, 2) is REJOIN  # which gives no more time
    world.advance(1_001)
    assert world.classic_beat(first, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.assigned().keys() == {second, "C"}


def test_member_that_does_not_sync_is_removed() -> None:
    world, member = mixed(rebalance_ms=4_000, session_ms=20_000)
    world.joined(member, "t0 t1", rebalance_ms=4_000, session_ms=20_000)
    world.advance(4_001)
    assert world.classic_beat(member, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_classic_member_has_its_own_session_timeout() -> None:
    world, member = mixed(session_ms=10_000)
    for _ in range(3):
        world.advance(9_000)
        world.beat("C", 2)
        assert world.classic_beat(member, 2) is ErrorCode.NONE
    world.advance(10_001)
    assert world.classic_beat(member, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.beat("C", 2).value.error is ErrorCode.NONE


def test_own_session_timeout_survives_a_restart() -> None:
    world, member = mixed(session_ms=10_000)
    world = world.restarted()
    world.advance(10_001)
    assert world.assigned().keys() == {"C"}
    assert member


# Downgrade -----------------------------------------------------------------------------------------------------------


def test_downgrade_is_one_entry_of_the_log() -> None:
    world, member = mixed()
    kept = world.assigned()[member]
    assert world.beat("C", -1).value.member_epoch == -1
    assert world.key_types() == [-8, -8, -7, -7, -6, -5, -5, -3, 2]
    assert world.kind_and_state == ("classic", "PreparingRebalance")
    assert world.classic_beat(member, 2) is REJOIN
    assert world.joined(member, str(kept)) == 3
    assert world.synced(member, 3, {member: "t0 t1 t2"}) == "t0 t1 t2"


def test_session_of_the_last_consumer_ends() -> None:
    world, member = mixed(session_ms=60_000)
    world.advance(45_001)
    assert world.kind_and_state == ("classic", "PreparingRebalance")
    assert world.classic_beat(member, 2) is REJOIN
    *_, event = [
        event for event in world.post(DescribeEvents(GROUP)).value.events if event.state == "PreparingRebalance"
    ]
    assert event.reason.value == "the last member of the consumer protocol left"


def test_requests_that_wait_for_a_downgrade_are_handled_by_the_classic_group() -> None:
    world, member = mixed()
    world.holds_appends = True
    leaving = world.beat("C", -1)
    waiting = world.post(heartbeat(member, 2, group_id=GROUP))
    joining = world.join("D")
    assert world.kind_and_state[0] == "consumer"
    world.complete_all_appends()
    assert leaving.value.member_epoch == -1
    assert waiting.value is REJOIN
    assert world.told(joining)[0] == 3  # which upgrades the group again
    assert world.kind_and_state[0] == "consumer"


def test_decisions_after_a_downgrade_in_one_batch() -> None:
    """The leave and what follows it wait together for an earlier entry."""
    world, member = mixed()
    world.holds_appends = True
    first = world.join("C", "t", rebalance_timeout_ms=50_000)
    leaving, beating = world.beat("C", -1), world.post(heartbeat(member, 2, group_id=GROUP))
    world.complete_all_appends()
    assert (first.value.error, leaving.value.error, beating.value) == (ErrorCode.NONE, ErrorCode.NONE, REJOIN)
    assert world.kind_and_state == ("classic", "PreparingRebalance")


@pytest.mark.parametrize("waits_for_an_earlier_entry", [False, True])
def test_classic_member_joins_while_the_only_consumer_leaves(waits_for_an_earlier_entry: bool) -> None:
    """An empty group takes the protocol of its next member, whatever the policy."""
    world = MigrationWorld()
    world.settings.group_consumer_migration_policy = "disabled"
    world.join("C")
    world.holds_appends = True
    if waits_for_an_earlier_entry:
        world.join("C", "t", rebalance_timeout_ms=50_000)
    leaving, joining = world.beat("C", -1), world.classic_join()
    world.complete_all_appends()
    world.holds_appends = False
    world.advance(0)
    assert (leaving.value.error, joining.value.error) == (ErrorCode.NONE, ErrorCode.NONE)
    assert world.kind_and_state == ("classic", "CompletingRebalance")


@pytest.mark.parametrize("protocols", [(), (Protocol("range", b""),)])
def test_join_with_an_unknown_member_id_leaves_the_empty_consumer_group(protocols: tuple[Protocol, ...]) -> None:
    """Kafka looks for the member before it compares the protocols."""
    world = MigrationWorld()
    world.join("C")
    world.beat("C", -1)
    answer = world.post(join("C", group_id=GROUP, protocols=protocols)).value
    assert (answer.error, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "C")
    assert world.kind_and_state == ("consumer", "Empty")


def test_failed_downgrade_leaves_the_consumer_group() -> None:
    world, member = mixed()
    before = world.assigned()
    world.holds_appends = True
    leaving = world.beat("C", -1)
    world.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    world.holds_appends = False
    assert leaving.value.error is ErrorCode.NOT_COORDINATOR
    assert (world.kind_and_state, world.assigned()) == (("consumer", "Stable"), before)
    assert (world.beat("C", 2).value.error, world.classic_beat(member, 2)) == (ErrorCode.NONE, ErrorCode.NONE)
    world.beat("C", -1)
    assert world.kind_and_state == ("classic", "PreparingRebalance")


def test_classic_group_keeps_all_protocols_of_its_members() -> None:
    world, _member = mixed(protocols=("range", "sticky"))
    world.beat("C", -1)
    parked = world.classic_join(protocols=("sticky",))
    assert parked.is_waiting


def test_downgrade_with_a_subscription_that_cannot_be_read() -> None:
    """The members have in common only a protocol for which none of them was asked before."""
    world = MigrationWorld()
    valid = write_subscription(Subscription(("t",), None), version=1)
    for name in ("range", "sticky"):
        offers = [Protocol(name, valid), Protocol("other", b"")]
        joined = world.post(join(group_id=GROUP, protocols=offers))
        world.advance(0)
        assert joined.value.error is ErrorCode.NONE
        world.classic_sync(joined.value.member_id, joined.value.generation_id)
        world.join("C")
    assert world.beat("C", -1).value.error is ErrorCode.NONE
    assert world.kind_and_state == ("classic", "PreparingRebalance")


def test_static_replacement_downgrades_without_a_rebalance() -> None:
    world = MigrationWorld()
    world.join("C", instance_id="seat")
    joined = world.classic_join(instance="seat").value
    assert (joined.error, joined.generation_id, joined.leader, joined.members) == (ErrorCode.NONE, 2, "", ())
    assert world.kind_and_state == ("classic", "Stable")
    assert world.synced(joined.member_id, 2) == "t0 t1 t2"
    assert world.restarted().classic_state() == "Stable"


def test_downgraded_group_upgrades_again_with_the_partitions_of_its_members() -> None:
    world, member = mixed()
    kept = world.assigned()[member]
    world.beat("C", -1)
    assert world.told(world.join("C"))[0] == 3
    assert world.assigned()[member] == kept


def test_what_a_member_has_not_given_back_is_not_given_to_others_after_a_downgrade_and_an_upgrade() -> None:
    world, member = mixed()
    kept = world.assigned()[member]
    world.classic_join()  # its target has a partition of the other classic member, which does not know yet
    world.beat("C", -1)
    world.join("D")
    assert world.assigned()[member] == kept == "t0 t1"


# Policy --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "upgrades", "downgrades"),
    [
        ("bidirectional", True, True),
        ("upgrade", True, False),
        ("downgrade", False, True),
        ("disabled", False, False),
    ],
)
def test_policy(policy: str, upgrades: bool, downgrades: bool) -> None:
    world, _first, _second = classic_pair()
    world.settings.group_consumer_migration_policy = policy
    assert (world.join("C").value.error is ErrorCode.NONE) is upgrades
    assert world.kind_and_state[0] == ("consumer" if upgrades else "classic")
    world, _member = mixed()
    world.settings.group_consumer_migration_policy = policy
    world.beat("C", -1)
    assert world.kind_and_state[0] == ("classic" if downgrades else "consumer")


def test_group_above_the_classic_size_stays_a_consumer_group() -> None:
    world, _member = mixed()
    world.settings.group_max_size = 0
    world.beat("C", -1)
    assert world.kind_and_state[0] == "consumer"


# Restarts ------------------------------------------------------------------------------------------------------------


def test_log_restores_the_group_at_each_point() -> None:
    """A coordinator that loads any prefix of the log has the kind and the members that were durable then."""
    world, member = mixed()
    points = [(len(world.log.durable), world.kind_and_state[0], world.assigned())]
    world.beat("C", -1)
    points.append((len(world.log.durable), "classic", {}))
    world.join("C")
    points.append((len(world.log.durable), "consumer", world.assigned()))
    world.leave(member)
    world.beat("C", -1)
    points.append((len(world.log.durable), "consumer", {}))
    records = list(world.log.durable)
    for count, kind, assigned in points:
        world.log.durable = records[:count]
        loaded = world.restarted()
        assert loaded.kind_and_state[0] == kind
        if kind == "consumer":
            assert loaded.assigned() == assigned


def test_restarted_coordinator_goes_on_with_the_rebalance_of_a_downgrade() -> None:
    """Nobody else would join or leave, and the partitions of the last consumer would have no owner."""
    world, member = mixed()
    world.beat("C", -1)
    world = world.restarted()
    assert world.kind_and_state == ("classic", "PreparingRebalance")
    assert world.classic_beat(member, 2) is REJOIN
    assert world.joined(member) == 3
    assert world.synced(member, 3, {member: "t0 t1 t2"}) == "t0 t1 t2"
    assert world.restarted().kind_and_state == ("classic", "Stable")


def test_restarted_mixed_group_serves_its_classic_members() -> None:
    world, member = mixed()
    kept = world.assigned()[member]
    world = world.restarted()
    assert world.classic_beat(member, 2) is ErrorCode.NONE
    assert world.synced(member, 2) == kept
    assert isinstance(world, ActorWorld)
    assert assignment_text(world.classic_sync(member, 2).value.assignment) == kept
