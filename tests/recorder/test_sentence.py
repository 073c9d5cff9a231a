"""The sentence about a group: one golden text for each cause, and what is left out when it is long."""

from __future__ import annotations

import pytest
from recorder.samples import BILLING, NOON_MS, PAYMENTS, now, record

from callboard.actors.group.events import Reason
from callboard.actors.recorder.causes import NAMES, OTHER, POLL_TIMEOUT, TEXTS, cause_of
from callboard.actors.recorder.now import OpenNow
from callboard.actors.recorder.record import MemberName
from callboard.actors.recorder.sentence import LENGTH_MAX, PHASE_TEXTS, sentence

WHO = "billing-1 (10.0.0.7)"

GOLDEN = {
    "new_member": f"{WHO} joined",
    "member_left": f"{WHO} left",
    "poll_timeout": f"{WHO} left, because it had not polled for max.poll.interval.ms",
    "evicted": f"an administrator removed {WHO}",
    "reset": "an administrator reset its offsets",
    "session_expired": f"{WHO} sent no heartbeat within its session timeout",
    "static_replaced": f"{WHO} was started again, with its instance id",
    "join_timeout": f"{WHO} did not rejoin in time",
    "revoke_timeout": f"{WHO} did not give back partitions in time",
    "sync_timeout": f"{WHO} did not ask for its assignment in time",
    "group_is_full": f"the group has no room for {WHO}",
    "subscription_changed": f"{WHO} changed its subscription",
    "cooperative_followup": f"{WHO} gave back partitions that others get now",
    "leader_rejoined": f"the leader, {WHO}, asked for a new assignment",
    "assignment_not_stored": "the log could not store the assignment",
    "metadata_changed": "a topic was created, has grown, or was deleted",
    "downgraded": "the last member of the consumer protocol left",
    "too_many_members": "the group was loaded with more members than group_max_size",
    "static_left": f"{WHO} stopped, and may come back",
    "other": "of an event that has no text here",
}


@pytest.mark.parametrize("cause", TEXTS)
def test_each_cause_has_its_sentence(cause: str) -> None:
    assert sentence([record(cause)], now()) == (
        f"Rebalanced at 12:00:00 UTC, because {GOLDEN[cause]}; it is stable with 2 members."
    )


def test_each_reason_that_begins_a_rebalance_has_a_cause_with_a_text() -> None:
    assert {*NAMES.values(), POLL_TIMEOUT, "cooperative_followup", OTHER} == set(TEXTS) == set(GOLDEN)
    assert cause_of(Reason.MEMBER_LEFT, "consumer poll timeout has expired.") == POLL_TIMEOUT
    assert cause_of(Reason.MEMBER_LEFT, "the consumer is being closed") == "member_left"


@pytest.mark.parametrize(
    ("phase", "clause"),
    [
        ("initial_delay", "the wait for more members took 45 s"),
        ("join", "its members took 45 s to rejoin"),
        ("leader_assigns", "its leader took 45 s to assign"),
        ("log", "the log took 45 s to store the assignment"),
        ("followers", "its members took 45 s to ask for their assignment"),
        ("assign", "the assignor took 45 s"),
        ("reconcile", "its members took 45 s to hand over partitions"),
    ],
)
def test_longest_phase_has_a_clause(phase: str, clause: str) -> None:
    assert phase in PHASE_TEXTS
    slow = record(phases_ms=(("log", 44_000), (phase, 45_000)))
    assert sentence([slow], now()).endswith(f"; it is stable with 2 members; {clause}.")


def test_rebalance_in_progress_says_who_is_missing_and_until_when() -> None:
    open_now = OpenNow(NOON_MS, "session_expired", BILLING, "", 0)
    waiting = now(
        state="PreparingRebalance",
        rebalance=open_now,
        waits_for="members to rejoin",
        missing=(PAYMENTS,),
        missing_count=3,
        until_ms=NOON_MS + 300_000,
    )
    assert sentence([record()], waiting) == (
        "Rebalancing since 12:00:00 UTC, because billing-1 (10.0.0.7) sent no heartbeat within its session timeout; "
        "it waits until 12:05:00 for members to rejoin: payments-2 (10.0.0.8) and 2 more."
    )


@pytest.mark.parametrize(("hours", "age"), [(11, ""), (13, ", 13 h ago"), (72, ", 3 days ago")])
def test_age_of_an_old_rebalance(hours: int, age: str) -> None:
    assert sentence([record("member_left")], now(hours * 3600)).startswith(
        f"Rebalanced at 12:00:00 UTC{age}, because billing-1"
    )


def test_state_that_is_not_known_is_left_out() -> None:
    text = "Rebalanced at 12:00:00 UTC, because billing-1 (10.0.0.7) joined."
    assert sentence([record()], now(state="")) == text


def test_other_ends() -> None:
    empty = now(state="Empty", member_count=0)
    assert sentence([record("member_left", outcome="empty")], empty) == (
        "Became empty at 12:00:00 UTC, because billing-1 (10.0.0.7) left; it has no members."
    )
    since = "since the server was started or took over the group"
    assert sentence([], now(member_count=1)) == f"No rebalance is recorded {since}; it is stable with 1 member."
    assert sentence([], None) == "There is no such group, and no rebalance is recorded."
    assert sentence([record(outcome="interrupted")], None) == (
        "A rebalance was interrupted at 12:00:00 UTC, because billing-1 (10.0.0.7) joined."
    )


@pytest.mark.parametrize("cause", TEXTS)
def test_sentence_is_short_and_printable_whatever_clients_are_called(cause: str) -> None:
    evil = MemberName("m" * 255, "\x1b[2J\u202e" * 60, "c" * 255, "/" + "h" * 255)
    waiting = now(
        state="PreparingRebalance",
        rebalance=OpenNow(NOON_MS, cause, evil, "", 0),
        waits_for="members to ask for their assignment",
        missing=(evil, evil),
        missing_count=100_000,
        until_ms=2**62,
    )
    for text in (sentence([record(cause, evil)], now()), sentence([record(cause, evil)], waiting)):
        assert len(text) <= LENGTH_MAX
        assert text.isprintable()
        assert text.endswith(".")
