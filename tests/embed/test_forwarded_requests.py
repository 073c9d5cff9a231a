"""How often another node is asked, by what it has answered: a change is sent again only if it was not made."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from callboard.actors.errors import CoordinatorError, ErrorCode
from callboard.actors.messages import DeleteGroup, Described, DescribeGroup
from callboard.runtime.embed.forwarded_requests import ForwardedRequests
from callboard.runtime.kafka.codec.message_json import write_message
from callboard.runtime.kafka.questions import NotReached, OtherNode

MOVED, UNKNOWN_OUTCOME = ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE


class OneOther:
    """``Questions``: another node has all groups. ``answers``: what it answers, one after the other."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)

    def owner(self, _group: str) -> OtherNode:
        return OtherNode("b-1", 2, False)

    async def ask(self, *_arguments: object) -> bytes:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return write_message(answer)


def ask(message: Any, *answers: object) -> tuple[Any, int]:
    """The answer, and how many of ``answers`` were not asked for."""
    questions: Any = OneOther(*answers)
    node: Any = SimpleNamespace(services=SimpleNamespace(cluster=SimpleNamespace(node_id=1)))
    try:
        answer = asyncio.run(ForwardedRequests(node, questions).ask(message))
    except CoordinatorError as error:
        answer = error
    return answer, len(questions.answers)


DELETE, DESCRIBE = DeleteGroup("g"), DescribeGroup("g")
DESCRIPTION = Described(ErrorCode.NONE, "g", "Empty")
REACHED_LATE = NotReached("node 2 cannot be reached", was_sent=True)


@pytest.mark.parametrize(
    ("message", "answers", "expected", "left"),
    [
        (DELETE, (MOVED, ErrorCode.NONE), ErrorCode.NONE, 0),
        (DELETE, (CoordinatorError(MOVED, "moved"), ErrorCode.NONE), ErrorCode.NONE, 0),
        (DELETE, (NotReached("refused", was_sent=False), ErrorCode.NONE), ErrorCode.NONE, 0),
        (DELETE, (UNKNOWN_OUTCOME, ErrorCode.NONE), UNKNOWN_OUTCOME, 1),
        (DELETE, (ErrorCode.NON_EMPTY_GROUP, ErrorCode.NONE), ErrorCode.NON_EMPTY_GROUP, 1),
        (DESCRIBE, (Described(UNKNOWN_OUTCOME, "g"), DESCRIPTION), DESCRIPTION, 0),
        (DESCRIBE, (REACHED_LATE, DESCRIPTION), DESCRIPTION, 0),
    ],
)
def test_change_is_sent_again_only_if_it_was_not_made(
    message: Any, answers: tuple[object, ...], expected: object, left: int
) -> None:
    assert ask(message, *answers) == (expected, left)


@pytest.mark.parametrize(
    ("answers", "text", "left"),
    [
        ((MOVED, MOVED, ErrorCode.NONE), "is between two nodes of the cluster", 1),
        ((REACHED_LATE, ErrorCode.NONE), "the change may have been made: look before you repeat it", 1),
    ],
)
def test_refusal_says_what_to_do(answers: tuple[object, ...], text: str, left: int) -> None:
    error, unasked = ask(DELETE, *answers)
    assert isinstance(error, CoordinatorError)
    assert (error.code, unasked) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, left)
    assert text in str(error)
