"""Members of a group: the counts are correct after any sequence of joins and leaves."""

from __future__ import annotations

import pytest
from actor_system.ports import RecordedReply
from actor_system.requests import join, offers
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.group.effects import Deadline, Effects
from callboard.actors.group.members import GroupMember, Members
from callboard.actors.messages import JoinedMember
from callboard.actors.records import MemberValue
from callboard.actors.steps import run_steps


def member(member_id: str, *protocols: str, instance: str | None = None) -> GroupMember:
    return GroupMember.from_request(member_id, join(instance=instance, protocols=offers(*(protocols or ("range",)))))


def test_member_round_trips_through_record() -> None:
    request = join(instance="i", client="c", host="/1.2.3.4", session_ms=7000, rebalance_ms=8000)
    member_value = GroupMember.from_request("id", request).to_record("range", b"part")
    assert member_value == MemberValue("id", "i", "c", "/1.2.3.4", 8000, 7000, b"range v1", b"part")
    restored = GroupMember.from_record(member_value, "range")
    assert restored.to_record("range", restored.assignment) == member_value
    assert not restored.is_new, "the limit of five minutes applies only to first joins"


@pytest.mark.parametrize(("written_ms", "expected_ms"), [(8000, 8000), (0, 0), (-1, 7000)])
def test_from_record_without_rebalance_timeout_uses_session_timeout(written_ms: int, expected_ms: int) -> None:
    member_value = MemberValue("id", None, "c", "/1.2.3.4", written_ms, 7000, b"", b"")
    assert GroupMember.from_record(member_value, "range").rebalance_timeout_ms == expected_ms


def test_metadata_of_unsupported_protocol_is_empty() -> None:
    assert member("m").metadata("sticky") == b""
    assert member("m").metadata(None) == b""


def test_replaced_parked_join_is_counted_once() -> None:
    members, group_member = Members(), member("a")
    members.add(group_member)
    members.park_join(group_member, RecordedReply())
    last_reply = RecordedReply()
    members.park_join(group_member, last_reply)
    members.check()
    assert members.joining == 1
    assert members.pop_join(group_member) is last_reply
    assert members.pop_join(group_member) is None
    assert members.joining == 0
    members.check()


def test_all_joined_is_false_with_pending_members() -> None:
    members, member_a = Members(), member("a")
    assert members.all_joined(), "all_joined is true without members"
    members.add(member_a)
    assert not members.all_joined()
    members.park_join(member_a, RecordedReply())
    assert members.all_joined()
    members.pending["b"] = Deadline(("pending", "b"))
    assert not members.all_joined()
    member_b = member("b")
    member_b.joining = RecordedReply()
    members.add(member_b)
    assert members.pending == {}
    assert members.all_joined()


def test_static_maps_instance_id_to_last_member() -> None:
    members, old_member, new_member = Members(), member("old", instance="i"), member("new", instance="i")
    members.add(old_member)
    members.add(new_member)
    members.remove(old_member)
    assert members.static == {"i": "new"}
    members.check()


def test_joined_lists_members_in_join_order() -> None:
    members = Members()
    for name in "cab":
        members.add(member(name, instance=f"i{name}"))
    assert run_steps(members.joined("range")) == tuple(JoinedMember(name, f"i{name}", b"range v1") for name in "cab")


def test_duplicate_protocol_is_counted_once() -> None:
    members = Members()
    members.add(member("a", "range", "range"))
    members.add(member("b", "range"))
    members.check()
    assert run_steps(members.vote()) == "range"
    members.remove(members.by_id["a"])
    members.check()


def test_max_rebalance_timeout() -> None:
    members = Members()
    assert members.max_rebalance_timeout_ms() == 0
    for number in (5, 9, 7):
        members.add(GroupMember.from_request(str(number), join(rebalance_ms=number)))
    assert members.max_rebalance_timeout_ms() == 9


@pytest.mark.parametrize("wrong_count", ["joining", "supporters", "static", "pending"])
def test_check_finds_wrong_counts(wrong_count: str) -> None:
    members, group_member = Members(), member("a")
    members.add(group_member)
    members.check()
    if wrong_count == "joining":
        group_member.joining = RecordedReply()
    elif wrong_count == "supporters":
        group_member.protocols = offers("sticky")
    elif wrong_count == "static":
        members.static["i"] = "a"
    else:
        members.pending["a"] = Deadline("a")
    with pytest.raises(AssertionError):
        members.check()


NAMES = st.lists(st.sampled_from(["range", "sticky", "roundrobin"]), min_size=1, max_size=4)


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["add", "remove", "update", "park", "take"]), NAMES))
)
def test_counts_are_right_after_random_steps(steps: list[tuple[str, str, list[str]]]) -> None:
    members = Members()
    for name, step, protocols in steps:
        group_member = members.by_id.get(name)
        if group_member is None:
            if step == "add":
                members.add(member(name, *protocols, instance=f"i{name}" if name in "ab" else None))
        elif step == "remove":
            members.remove(group_member)
        elif step == "update":
            members.update(group_member, join(protocols=offers(*protocols)))
        elif step == "park":
            members.park_join(group_member, RecordedReply())
        elif step == "take":
            members.pop_join(group_member)
        members.check()
        common_protocols = (
            set.intersection(*({protocol.name for protocol in joined.protocols} for joined in members))
            if len(members)
            else set()
        )
        for protocol_name in ("range", "sticky", "roundrobin"):
            if len(members):
                assert members.supports(offers(protocol_name)) == (protocol_name in common_protocols)
        if common_protocols:
            assert run_steps(members.vote()) in common_protocols


# Deadlines -----------------------------------------------------------------------------------------------------------


def test_postponed_deadline_schedules_no_alarm() -> None:
    deadline, effects = Deadline("d"), Effects()
    deadline.set(100, effects)
    assert effects.alarms == {"d": 100}
    effects.alarms.clear()
    deadline.set(200, effects)
    assert effects.alarms == {}
    assert not deadline.handle_alarm(100, effects)
    assert effects.alarms == {"d": 200}
    assert deadline.handle_alarm(200, effects)
    assert not deadline.handle_alarm(200, effects), "a deadline passes once"


def test_earlier_deadline_schedules_alarm_again() -> None:
    deadline, effects = Deadline("d"), Effects()
    deadline.set(200, effects)
    deadline.set(100, effects)
    assert effects.alarms == {"d": 100}
    assert deadline.handle_alarm(100, effects)


def test_cancelled_deadline_ignores_alarm() -> None:
    deadline, effects = Deadline("d"), Effects()
    deadline.cancel(effects)
    assert effects.alarms == {}, "no alarm was scheduled"
    deadline.set(100, effects)
    deadline.cancel(effects)
    assert effects.alarms == {"d": None}
    assert not deadline.handle_alarm(100, effects), "the timer had already sent the alarm"
    deadline.set(300, effects)
    assert not deadline.handle_alarm(100, effects)
    assert deadline.handle_alarm(300, effects)


@given(
    st.lists(
        st.one_of(
            st.integers(0, 50).map(lambda delay_ms: ("set", delay_ms)), st.just(("cancel", 0)), st.just(("wait", 7))
        )
    )
)
def test_deadline_passes_at_last_set_time(steps: list[tuple[str, int]]) -> None:
    """Compared with a model: the last set time, and a timer that delivers every alarm on time."""
    deadline, now_ms = Deadline("d"), 0
    expected_ms: int | None = None
    scheduled: int | None = None

    def schedule(effects: Effects) -> None:
        nonlocal scheduled
        scheduled = effects.alarms.get("d", scheduled)

    for step, amount_ms in [*steps, ("wait", 60)]:
        effects = Effects()
        if step == "set":
            expected_ms = now_ms + amount_ms
            deadline.set(expected_ms, effects)
        elif step == "cancel":
            expected_ms = None
            deadline.cancel(effects)
        schedule(effects)
        for _ in range(amount_ms if step == "wait" else 0):
            now_ms += 1
            while scheduled is not None and scheduled <= now_ms:
                scheduled, effects = None, Effects()
                has_passed = deadline.handle_alarm(now_ms, effects)
                assert has_passed == (expected_ms is not None and expected_ms <= now_ms)
                expected_ms = None if has_passed else expected_ms
                schedule(effects)
            assert expected_ms is None or expected_ms > now_ms, "the deadline should have passed"
