"""The members of a group: counts stay right in any order of joins and leaves."""

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


def member(member_id: str, *protocols: str, instance: str | None = None) -> GroupMember:
    return GroupMember.from_request(member_id, join(instance=instance, protocols=offers(*(protocols or ("range",)))))


def test_member_round_trips_through_record() -> None:
    request = join(instance="i", client="c", host="/1.2.3.4", session_ms=7000, rebalance_ms=8000)
    kept = GroupMember.from_request("id", request).to_record("range", b"part")
    assert kept == MemberValue("id", "i", "c", "/1.2.3.4", 8000, 7000, b"range v1", b"part")
    back = GroupMember.from_record(kept, "range")
    assert back.to_record("range", back.assignment) == kept
    assert not back.is_new, "five minutes are for those who join for the first time"


@pytest.mark.parametrize(("written_ms", "expected_ms"), [(8000, 8000), (0, 0), (-1, 7000)])
def test_from_record_without_rebalance_timeout_uses_session_timeout(written_ms: int, expected_ms: int) -> None:
    kept = MemberValue("id", None, "c", "/1.2.3.4", written_ms, 7000, b"", b"")
    assert GroupMember.from_record(kept, "range").rebalance_timeout_ms == expected_ms


def test_metadata_of_unsupported_protocol_is_empty() -> None:
    assert member("m").metadata("sticky") == b""
    assert member("m").metadata(None) == b""


def test_replaced_parked_join_is_counted_once() -> None:
    members, one = Members(), member("a")
    members.add(one)
    members.park_join(one, RecordedReply())
    last = RecordedReply()
    members.park_join(one, last)
    members.check()
    assert members.joining == 1
    assert members.pop_join(one) is last
    assert members.pop_join(one) is None
    assert members.joining == 0
    members.check()


def test_all_joined_is_false_with_pending_members() -> None:
    members, one = Members(), member("a")
    assert members.all_joined(), "true without members"
    members.add(one)
    assert not members.all_joined()
    members.park_join(one, RecordedReply())
    assert members.all_joined()
    members.pending["b"] = Deadline(("pending", "b"))
    assert not members.all_joined()
    two = member("b")
    two.joining = RecordedReply()
    members.add(two)
    assert members.pending == {}
    assert members.all_joined()


def test_static_maps_instance_id_to_last_member() -> None:
    members, old, new = Members(), member("old", instance="i"), member("new", instance="i")
    members.add(old)
    members.add(new)
    members.remove(old)
    assert members.static == {"i": "new"}
    members.check()


def test_joined_lists_members_in_join_order() -> None:
    members = Members()
    for name in "cab":
        members.add(member(name, instance=f"i{name}"))
    assert members.joined("range") == tuple(JoinedMember(name, f"i{name}", b"range v1") for name in "cab")


def test_duplicate_protocol_is_counted_once() -> None:
    members = Members()
    members.add(member("a", "range", "range"))
    members.add(member("b", "range"))
    members.check()
    assert members.vote() == "range"
    members.remove(members.by_id["a"])
    members.check()


def test_max_rebalance_timeout() -> None:
    members = Members()
    assert members.max_rebalance_timeout_ms() == 0
    for number in (5, 9, 7):
        members.add(GroupMember.from_request(str(number), join(rebalance_ms=number)))
    assert members.max_rebalance_timeout_ms() == 9


@pytest.mark.parametrize("spoil", ["joining", "supporters", "static", "pending"])
def test_check_finds_wrong_counts(spoil: str) -> None:
    members, one = Members(), member("a")
    members.add(one)
    members.check()
    if spoil == "joining":
        one.joining = RecordedReply()
    elif spoil == "supporters":
        one.protocols = offers("sticky")
    elif spoil == "static":
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
        known = members.by_id.get(name)
        if known is None:
            if step == "add":
                members.add(member(name, *protocols, instance=f"i{name}" if name in "ab" else None))
        elif step == "remove":
            members.remove(known)
        elif step == "update":
            members.update(known, join(protocols=offers(*protocols)))
        elif step == "park":
            members.park_join(known, RecordedReply())
        elif step == "take":
            members.pop_join(known)
        members.check()
        common = set.intersection(*({offer.name for offer in m.protocols} for m in members)) if len(members) else set()
        for offered in ("range", "sticky", "roundrobin"):
            if len(members):
                assert members.supports(offers(offered)) == (offered in common)
        if common:
            assert members.vote() in common


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
    assert not deadline.handle_alarm(200, effects), "once"


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
    assert not deadline.handle_alarm(100, effects), "the alarm was on its way"
    deadline.set(300, effects)
    assert not deadline.handle_alarm(100, effects)
    assert deadline.handle_alarm(300, effects)


@given(
    st.lists(st.one_of(st.integers(0, 50).map(lambda by: ("set", by)), st.just(("cancel", 0)), st.just(("wait", 7))))
)
def test_deadline_passes_at_last_set_time(steps: list[tuple[str, int]]) -> None:
    """Compared with a model: the last set time, and a timer that delivers every alarm on time."""
    deadline, now_ms = Deadline("d"), 0
    wanted: int | None = None
    scheduled: int | None = None

    def schedule(effects: Effects) -> None:
        nonlocal scheduled
        scheduled = effects.alarms.get("d", scheduled)

    for step, by in [*steps, ("wait", 60)]:
        effects = Effects()
        if step == "set":
            wanted = now_ms + by
            deadline.set(wanted, effects)
        elif step == "cancel":
            wanted = None
            deadline.cancel(effects)
        schedule(effects)
        for _ in range(by if step == "wait" else 0):
            now_ms += 1
            while scheduled is not None and scheduled <= now_ms:
                scheduled, effects = None, Effects()
                has_passed = deadline.handle_alarm(now_ms, effects)
                assert has_passed == (wanted is not None and wanted <= now_ms)
                wanted = None if has_passed else wanted
                schedule(effects)
            assert wanted is None or wanted > now_ms, "it should have rung"
