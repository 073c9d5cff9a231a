"""LeaveGroup: each identity has its own answer, the group decides once after all."""

from __future__ import annotations

import pytest
from stage.company import Company

from callboard.actors.errors import ErrorCode
from callboard.actors.group.states import State
from callboard.actors.messages import Joined, LeavingMember, Left, LeftMember, Synced


@pytest.fixture
def company() -> Company:
    return Company()


def errors(left: Left) -> list[ErrorCode]:
    assert left.error is ErrorCode.NONE
    return [one.error for one in left.members]


def test_the_others_rebalance(company: Company) -> None:
    leader, follower = company.form({}, {})
    assert company.leave(follower.member_id) == Left(
        ErrorCode.NONE, (LeftMember(follower.member_id, None, ErrorCode.NONE),)
    )
    assert company.state() is State.PREPARING_REBALANCE
    assert company.heartbeat(leader.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert ("session", follower.member_id) not in company.alarms
    assert company.heartbeat(follower.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_turns_off_the_light(company: Company) -> None:
    member = company.form({})[0]
    company.leave(member.member_id)
    assert (company.state(), company.generation) == (State.EMPTY, 2)
    assert company.durable[-1].members == ()
    assert company.alarms == {}


def test_a_batch_is_one_decision(company: Company) -> None:
    """Each identity has its answer, in the order of the request, as it was sent."""
    one, two, three = company.form({"instance": "a"}, {"instance": "b"}, {})
    pending = company.join(version=4).value.member_id
    left = company.leave(
        LeavingMember("", "a"),
        LeavingMember(three.member_id, "b"),
        LeavingMember("", "nobody"),
        LeavingMember("", None),
        LeavingMember("ghost", None),
        LeavingMember(two.member_id, "nobody"),
        LeavingMember(pending, None),
        LeavingMember(two.member_id, None),
        LeavingMember(one.member_id, None),
        LeavingMember(three.member_id, None),
    )
    assert [(who.member_id, who.group_instance_id) for who in left.members[:2]] == [("", "a"), (three.member_id, "b")]
    unknown, fenced, fine = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.NONE
    assert errors(left) == [fine, fenced, unknown, unknown, unknown, unknown, fine, fine, unknown, fine]
    assert (company.state(), company.generation) == (State.EMPTY, 2), "one decision, one generation"


def test_nobody_known_nothing_happens(company: Company) -> None:
    company.form({})
    assert errors(company.leave("ghost", "")) == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert company.leave() == Left(ErrorCode.NONE)
    assert company.state() is State.STABLE


def test_a_static_member_leaves_by_its_instance_id(company: Company) -> None:
    member = company.form({"instance": "a"})[0]
    assert errors(company.leave(LeavingMember(member.member_id, "a"))) == [ErrorCode.NONE]
    assert company.group.members.static == {}
    assert company.join(instance="a").is_waiting, "its next join is a new member's"


def test_a_leaver_that_waits_is_answered(company: Company) -> None:
    leader, follower = company.form({}, {})
    joining = company.join(leader.member_id)
    company.leave(leader.member_id)
    assert joining.value == Joined(ErrorCode.UNKNOWN_MEMBER_ID)
    place = company.join(follower.member_id)
    assert place.value.leader == follower.member_id
    company.holds_back = True
    syncing = company.sync(follower.member_id, 2)
    company.leave(follower.member_id)
    assert syncing.value == Synced(ErrorCode.UNKNOWN_MEMBER_ID)


def test_a_leaver_may_complete_the_join_phase(company: Company) -> None:
    leader, follower = company.form({}, {})
    place = company.join(leader.member_id)
    company.leave(follower.member_id)
    assert place.value.generation_id == 2


def test_a_pending_leaver_may_complete_the_join_phase(company: Company) -> None:
    leader = company.form({})[0]
    pending = company.join(version=4).value.member_id
    place = company.join(leader.member_id)
    assert place.is_waiting
    assert errors(company.leave(pending)) == [ErrorCode.NONE]
    assert place.value.generation_id == 2
    assert ("pending", pending) not in company.alarms


def test_a_pending_id_leaves_an_empty_group(company: Company) -> None:
    pending = company.join(version=4).value.member_id
    assert errors(company.leave(pending, pending)) == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert company.state() is State.EMPTY
    assert not company.durable


def test_the_leader_leaves_while_its_assignment_is_on_its_way(company: Company) -> None:
    leader, follower = company.gather({}, {})
    company.holds_back = True
    company.sync(leader.member_id, 1)
    waiting = company.sync(follower.member_id, 1)
    company.leave(leader.member_id)
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    company.keep()
    assert company.state() is State.PREPARING_REBALANCE
    assert list(company.group.members.by_id) == [follower.member_id], "a record brings nobody back"
