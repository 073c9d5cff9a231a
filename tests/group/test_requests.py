"""The table of requests is complete, and every actor of a group follows it."""

from __future__ import annotations

from typing import Any

import pytest
from actor_system.requests import GROUP, commit, fetch, heartbeat, join, leave, sync
from actor_system.simulation import CoordinatorSimulation

from callboard.actors import messages
from callboard.actors.consumer_group import messages as consumer_messages
from callboard.actors.consumer_group.messages import ConsumerHeartbeat, DescribeConsumerGroup, RegexesResolved
from callboard.actors.error_reply import error_reply
from callboard.actors.errors import ErrorCode
from callboard.actors.group import reset_messages
from callboard.actors.group.handlers import HANDLERS
from callboard.actors.group.requests import REQUESTS, refuse
from callboard.actors.group.reset_messages import DescribeReset, ResetOffsets
from callboard.actors.messages import (
    DeleteGroup,
    DescribeCommits,
    Described,
    DescribeEvents,
    DescribeGroup,
    ExplainGroup,
    GroupRequest,
    Joined,
    OffsetDelete,
    TxnOffsetCommit,
)

EVERY_REQUEST: tuple[GroupRequest, ...] = (
    join("m"),
    sync("m", 1),
    heartbeat("m", 1),
    leave("m"),
    commit(),
    TxnOffsetCommit(GROUP, "tx", 1, 0, "", None, -1, commit().commits),
    fetch(),
    OffsetDelete(GROUP, ()),
    ResetOffsets(GROUP, ()),
    DescribeReset(GROUP),
    DescribeCommits(GROUP),
    DescribeEvents(GROUP),
    ExplainGroup(GROUP),
    DescribeGroup(GROUP),
    DeleteGroup(GROUP),
    ConsumerHeartbeat(GROUP, "m", 1),
    DescribeConsumerGroup(GROUP),
    RegexesResolved(GROUP, {}),
)


def test_every_class_of_requests_has_a_row() -> None:
    """A row without a handler, or a request without a row, would be a bug reply to a client."""
    assert {type(request) for request in EVERY_REQUEST} == set(REQUESTS)
    modules = (messages, consumer_messages, reset_messages)
    assert all(any(hasattr(module, request.__name__) for module in modules) for request in REQUESTS)
    assert {row.handler for row in REQUESTS.values()} == set(HANDLERS)


@pytest.mark.parametrize("request_", EVERY_REQUEST, ids=lambda request: type(request).__name__)
def test_active_and_absent_groups_reply_to_every_request(request_: GroupRequest) -> None:
    simulation = CoordinatorSimulation()
    assert len(simulation.post(request_).answers) == 1
    simulation.form_group({})
    assert len(simulation.post(request_).answers) == 1


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (join("m"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (sync("m", 1), ErrorCode.UNKNOWN_MEMBER_ID),
        (heartbeat("m", 1), ErrorCode.UNKNOWN_MEMBER_ID),
    ],
    ids=lambda item: type(item).__name__,
)
def test_group_of_another_kind_refuses_members(request_: Any, error: ErrorCode) -> None:
    """Source: GroupMetadataManager, for a consumer group."""
    reply = refuse(request_)
    assert (reply if isinstance(reply, ErrorCode) else reply.error) is error


def test_join_that_is_wrong_gets_its_member_id_back() -> None:
    """Source: GroupCoordinatorService.joinGroup, whose answers to other failures have no member id."""
    simulation = CoordinatorSimulation()
    simulation.form_group({})
    wrong = (
        *(join("m", group_id=""), join("m", group_id="absent"), join("m", session_ms=0)),
        *(join("m"), join("m", protocol_type="another")),
    )
    for request in wrong:
        (answer,) = simulation.post(request).answers
        assert answer.error
        assert answer.member_id == "m"
    assert error_reply(join("m"), ErrorCode.NOT_COORDINATOR) == Joined(ErrorCode.NOT_COORDINATOR)


def test_group_of_another_kind_is_described_as_dead() -> None:
    """KIP-1043: from version 6 on DescribeGroups turns this into GROUP_ID_NOT_FOUND."""
    expected = Described(ErrorCode.NONE, GROUP, "Dead", message=f"Group {GROUP} is not a classic group.")
    assert refuse(DescribeGroup(GROUP)) == expected
    assert [member.error for member in refuse(leave("m")).members] == [ErrorCode.UNKNOWN_MEMBER_ID]
