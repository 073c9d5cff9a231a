"""Each detector finds its pattern, and not what only looks like it."""

from __future__ import annotations

from typing import Any

from recorder.samples import BILLING, NOON_MS, PAYMENTS, now, record

from callboard.actors.recorder.detectors import find
from callboard.actors.recorder.expiries import ExpiredOffsets
from callboard.actors.recorder.now import GroupNow, OffsetsNow, Refused, RefusedJoin, Subscriptions, TopicsNow, Votes
from callboard.actors.recorder.record import (
    FurtherCause,
    LateMember,
    MemberChanges,
    MemberCount,
    MemberName,
    Moves,
    RebalanceRecord,
)


def found(records: list[RebalanceRecord], at: GroupNow | None = None) -> dict[str, str]:
    """The texts by detector. ``records``: oldest first."""
    return {finding.detector: finding.text for finding in find(records[::-1], at or now(600))}


def test_storm_is_more_than_six_generations_in_ten_minutes() -> None:
    records = [record("leader_rejoined", at_s=60 * number) for number in range(1, 8)]
    assert found(records) == {"storm": "7 rebalances in 10 minutes, 7 of them with the cause leader_rejoined"}
    assert found(records[1:]) == {}
    assert found(records, now(661)) == {}  # the first one is older than ten minutes


def again(member: MemberName) -> MemberName:
    return member._replace(member_id=f"{member.member_id}-again")


def test_loop_is_a_member_that_joins_and_leaves_and_joins() -> None:
    joins, leaves = record("new_member", at_s=1), record("poll_timeout", at_s=2)
    returns = record("new_member", again(BILLING), at_s=3)
    assert found([joins, leaves, returns]) == {
        "loop": "billing-1 (10.0.0.7) joins, leaves and joins again: look for restarts, or a poll loop that is too slow"
    }
    within = record("session_expired", at_s=2, also=(FurtherCause(NOON_MS, "new_member", again(BILLING)),))
    assert set(found([joins, within])) == {"loop"}


def test_rolling_restart_of_members_with_the_same_name_is_no_loop() -> None:
    first, second = BILLING, again(BILLING)
    restarts = [
        record("member_left", first, at_s=1),
        record("new_member", BILLING._replace(member_id="a"), at_s=2),
        record("member_left", second, at_s=3),
        record("new_member", BILLING._replace(member_id="b"), at_s=4),
    ]
    assert found(restarts) == {}
    elsewhere = again(BILLING)._replace(client_host="/10.0.0.9")
    assert found([record(at_s=1), record("member_left", at_s=2), record(at_s=3, by=elsewhere)]) == {}


def moving(at_s: int, *partitions: tuple[str, int]) -> RebalanceRecord:
    return record("leader_rejoined", at_s=at_s, moves=Moves((), 3, len(partitions), 0, partitions))


def test_flapping_partition_changes_its_owner_more_than_three_times() -> None:
    records = [moving(number, ("orders", 2), ("orders", number)) for number in (10, 11, 12, 13)]
    assert found(records) == {
        "flapping": "partition orders-2 changed its owner 4 times in 10 minutes: "
        "an assignor that is sticky keeps them in place"
    }
    assert found(records[1:]) == {}


def late(at_s: int, last: MemberName, after_ms: int, before_ms: int = 100) -> RebalanceRecord:
    members = MemberChanges(late=(LateMember(last, after_ms), LateMember(PAYMENTS, before_ms)))
    return record("leader_rejoined", at_s=at_s, members=members)


def test_slow_member_comes_last_in_three_of_five() -> None:
    records = [
        late(1, BILLING, 9000),
        late(2, PAYMENTS, 150),
        late(3, again(BILLING), 9000),
        late(4, PAYMENTS, 150),
        late(5, BILLING, 9000),
    ]
    assert found(records) == {
        "slow_member": "billing-1 (10.0.0.7) came last in 3 of the last 5 rebalances: "
        "its poll loop takes long, or its process has too little CPU"
    }
    assert found([*records, late(6, PAYMENTS, 150)]) == {}
    assert found([late(number, BILLING, 900) for number in range(5)]) == {}  # somebody is always last


def test_zombie_expires_while_its_host_has_a_living_member() -> None:
    neighbour = MemberName("n", None, "neighbour", BILLING.client_host)
    expired = record("session_expired", at_s=5)
    assert found([expired], now(members=(neighbour,))) == {
        "zombie": "billing-1 (10.0.0.7) expired, but neighbour (10.0.0.7) on the same host is alive: "
        "the process hangs, or was killed without closing its consumer"
    }
    assert found([expired], now(members=(PAYMENTS,))) == {}
    joined_later = record("new_member", neighbour, at_s=6, members=MemberChanges(joined=MemberCount(1, (neighbour,))))
    assert found([expired, joined_later], now(members=(neighbour,))) == {}


def test_instance_id_that_two_processes_have_is_fenced_twice() -> None:
    assert found([], now(refused=Refused(instance_ids=("seat", "other", "seat")))) == {
        "instance_id_conflict": "seat was fenced 2 times in 10 minutes: two processes have the same group.instance.id"
    }
    assert found([], now(refused=Refused(instance_ids=("seat", "other")))) == {}


def test_texts_are_bounded_and_printable() -> None:
    evil = MemberName("m", "\x1b" * 255, "c" * 255, "/" + "\n" * 255)
    [finding] = find([record("session_expired", evil)], now(members=(evil._replace(member_id="n"),)))
    assert len(finding.text) <= 200
    assert finding.text.isprintable()


def test_client_without_a_common_assignor_is_named_with_both_lists() -> None:
    refused = (RefusedJoin(PAYMENTS, ("roundrobin", "sticky")),)
    assert found([], now(refused=Refused(refused, assignors=("range",)))) == {
        "no_common_assignor": "payments-2 (10.0.0.8) was refused: it offers the assignors roundrobin, sticky, but all "
        "members offer range: set the same ones everywhere"
    }
    assert found([], now(refused=Refused(assignors=("range",)))) == {}


def test_missing_topic() -> None:
    assert found([], now(subscriptions=Subscriptions(TopicsNow((), ("ordres", "b", "c"))))) == {
        "missing_topic": "members subscribe to the topic ordres, which does not exist (and to 2 more): create it, or "
        "correct the subscription"
    }


def test_refused_commits_name_the_member_with_the_most() -> None:
    text = "2 commits of old refused in 10 minutes: it had lost its partitions, so another member does that work"
    assert found([], now(refused=Refused(commits=("older", "old", "old")))) == {"refused_commits": f"{text} again"}


def test_lag_matters_without_members_only() -> None:
    behind = OffsetsNow(4, None, 1)
    assert found([], now(state="Empty", offsets=behind)) == {
        "lag_without_members": "1 record behind, and no member: start consumers"
    }
    assert found([], now(offsets=behind)) == {}
    for lag in (None, 0):
        assert found([], now(state="Empty", offsets=behind._replace(lag=lag))) == {}


def test_offsets_expire_within_two_days() -> None:
    two_days_ms = 2 * 24 * 3_600_000

    def at(left_ms: int, state: str = "Empty") -> dict[str, str]:
        moment = now(state=state)
        return found([], moment._replace(offsets=OffsetsNow(4, moment.now_ms + left_ms)))

    assert at(two_days_ms) == {
        "offsets_expire": "the first of 4 offsets expires in 2 days: then consumers start at auto.offset.reset"
    }
    assert at(two_days_ms + 1) == at(1000, "Stable") == {}


def test_members_without_partitions() -> None:
    idle = record(moves=Moves((), 3, 0, 3, (), idle=2))
    assert found([idle], now(member_count=5)) == {
        "idle_members": "2 of 5 members without a partition: the topics have 3 partitions, so more members do not help"
    }
    assert found([idle], now(state="PreparingRebalance")) == found([record(moves=Moves((), 3, 0, 3, ()))]) == {}


def voting(votes: Votes, **fields: Any) -> GroupNow:
    return now(subscriptions=Subscriptions(votes=votes), **fields)


def test_assignor_that_most_members_do_not_name_first() -> None:
    votes = Votes("range", "sticky", (("sticky", 2), ("range", 1)), (("range", 3),), (), (BILLING,), 1)
    text = "range is in use, though 2 of 3 members prefer sticky: not offered by billing-1 (10.0.0.7)"
    assert found([], voting(votes, member_count=3)) == {"assignor_choice": text}
    several = votes._replace(lacking=(BILLING, PAYMENTS), lacking_count=2)
    assert found([], voting(several, member_count=3)) == {"assignor_choice": f"{text} and 1 more"}
    assert found([], voting(votes, state="PreparingRebalance", member_count=3)) == {}
    assert found([], voting(votes._replace(preferred="range"))) == {}


def test_assignor_that_has_as_many_votes_as_another() -> None:
    votes = Votes("range", "sticky", (("sticky", 1), ("range", 1)), (("sticky", 1), ("range", 1)))
    assert found([], voting(votes)) == {
        "assignor_choice": "range is in use, though 1 of 2 members prefers sticky: as many voted for range, so give "
        "all members the same order"
    }


def test_assignor_that_gets_votes_of_members_whose_first_choice_is_not_common() -> None:
    firsts = (("sticky", 2), ("range", 1), ("a", 1), ("b", 1))
    votes = Votes("range", "sticky", firsts, (("range", 3), ("sticky", 2)))
    assert found([], voting(votes, member_count=5)) == {
        "assignor_choice": "range is in use, though 2 of 5 members prefer sticky: others voted for range, since not "
        "all offer what they prefer"
    }


EXPIRED = ExpiredOffsets(NOON_MS, 3, ("orders",), with_members=False, ended_group=False)
DAY_S = 24 * 3600


def expired(at_s: int = 2 * DAY_S, of: ExpiredOffsets = EXPIRED, **fields: object) -> dict[str, str]:
    empty = {"state": "Empty", "members": (), "member_count": 0}
    return found([], now(at_s, **{**empty, "offsets": OffsetsNow(0, expired=of), **fields}))


def test_offsets_that_expired_with_their_group() -> None:
    ended = EXPIRED._replace(ended_group=True)
    text = "3 offsets of orders expired 2 days ago, and the group with them: consumers that start begin at"
    assert expired(of=ended, state="Dead") == {"offsets_expired": f"{text} auto.offset.reset"}


def test_offsets_that_expired_while_nobody_consumes() -> None:
    text = "3 offsets of orders expired 2 days ago: consumers that start begin at auto.offset.reset"
    assert expired() == {"offsets_expired": text}
    one = EXPIRED._replace(offset_count=1, topics=("a", "b", "c"))
    text = "1 offset of a and 2 more topics expired 300 ms ago: consumers that start begin at auto.offset.reset"
    assert expired(0, one._replace(at_ms=NOON_MS - 300)) == {"offsets_expired": text}
    assert set(expired(7 * DAY_S - 1)) == {"offsets_expired"}
    assert expired(7 * DAY_S) == {}


def test_offsets_that_expired_before_members_came() -> None:
    text = (
        "3 offsets of orders expired 2 days ago, before its members came: they began at auto.offset.reset, and skipped"
    )
    assert expired(state="Stable", member_count=2) == {"offsets_expired": f"{text} records or read some again"}


def test_offsets_of_a_topic_that_no_member_read() -> None:
    text = "3 offsets of orders expired 2 days ago, as no member read them: whoever subscribes again begins at"
    unread = EXPIRED._replace(with_members=True)
    assert expired(of=unread, state="Stable", member_count=2) == {"offsets_expired": f"{text} auto.offset.reset"}
