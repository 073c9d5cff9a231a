"""A member creates the topics of its resources before it joins. Each error of the coordinator causes a reaction."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from member_helpers import ScriptedConnector, in_virtual_time, member_on_loop_time, next_assignment_of

from callboard.actors.errors import ErrorCode
from callboard.runtime.member.errors import MemberError
from callboard.runtime.member.reactions import Reaction, RequestKind, reaction_to

ERRORS = [error for error in ErrorCode if error is not ErrorCode.NONE]
RETRIES = (Reaction.RETRY, Reaction.RECONNECT)


async def error_of_start(connector: ScriptedConnector, **options: Any) -> MemberError | None:
    try:
        async with member_on_loop_time(connector, random=Random(1), resources={"jobs": 2}, **options) as member:
            await next_assignment_of(member, 2)
    except MemberError as error:
        return error
    return None


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.name)
@in_virtual_time
async def test_error_for_the_topics_of_a_member_causes_its_reaction(error: ErrorCode, assignor: str) -> None:
    connector = ScriptedConnector()
    connector.topic_errors = [error, error]
    raised = await error_of_start(connector, assignor=assignor)
    if reaction_to(RequestKind.CREATE_TOPICS, error) in RETRIES:
        assert raised is None
        assert connector.topics == {"jobs": 2}
    else:
        assert raised is not None and raised.code is error
        assert str(raised).startswith("the topics of group 'workers' cannot be created: ")
        assert connector.topics == {}


@in_virtual_time
async def test_member_starts_when_the_full_disk_has_room() -> None:
    connector = ScriptedConnector()
    connector.topic_errors = [ErrorCode.KAFKA_STORAGE_ERROR] * 3
    assert await error_of_start(connector) is None


@in_virtual_time
async def test_refused_name_raises_with_advice() -> None:
    connector = ScriptedConnector()
    connector.topic_errors = [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert str(await error_of_start(connector)).endswith("; choose other names")
