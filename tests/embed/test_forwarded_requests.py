"""How often another node is asked, by what it has answered: a change is sent again only if it was not made."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from callboard.actors.errors import CoordinatorError, ErrorCode
from callboard.actors.messages import DeleteGroup, Described, DescribeGroup
from callboard.runtime.disk.disk import Disk
from callboard.runtime.disk.file_work import InlineFileWork
from callboard.runtime.embed.cluster_resets import ClusterResets
from callboard.runtime.embed.forwarded_requests import ForwardedRequests
from callboard.runtime.kafka.codec.message_json import read_message, write_message
from callboard.runtime.kafka.node_subjects import ReadResets, ResetsRead
from callboard.runtime.kafka.questions import NotReached, OtherNode
from callboard.runtime.node.reset_records import ResetRecord, ResetRecords

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


def change_id(number: int) -> str:
    return f"{number:08}-0000-4000-8000-000000000000"


def record(number: int) -> ResetRecord:
    return ResetRecord(change_id(number), "g", number, "User:ann", "why", (), (), {})


class ResetNodes:
    """``Questions`` of node 1, with nodes 2 and 3. ``kept``: the records of each; None: it does not answer."""

    def __init__(self, kept: dict[int, list[ResetRecord] | None]) -> None:
        self._kept = kept

    def partitions(self) -> dict[OtherNode, list[int]]:
        return {OtherNode(f"s-{number}", number, number == 1): [number] for number in (1, 2, 3)}

    async def ask(self, node: OtherNode, subject: str, _group: str, content: bytes, _asked_by: bytes) -> bytes:
        assert subject == "ReadResets"
        message: ReadResets = read_message(ReadResets, content)
        records = self._kept[node.node_id]
        if records is None:
            raise NotReached(f"node {node.node_id} cannot be reached", was_sent=True)
        wanted = [each for each in records if message.change_id in ("", each.change_id)]
        return write_message(ResetsRead(tuple(json.dumps(each._asdict()).encode() for each in wanted)))


def resets_of(tmp_path: Path, second: list[ResetRecord] | None, third: list[ResetRecord] | None) -> ClusterResets:
    """Those of a node that has the record 1 itself."""
    disk, files = Disk(), InlineFileWork()
    asyncio.run(ResetRecords(disk, tmp_path, files).keep(record(1)))
    data = SimpleNamespace(folder=SimpleNamespace(path=tmp_path), files=files)
    node: Any = SimpleNamespace(environment=SimpleNamespace(disk=disk), data=data)
    questions: Any = ResetNodes({2: second, 3: third})
    return ClusterResets(node, questions)


def test_records_of_resets_are_those_of_all_nodes(tmp_path: Path) -> None:
    resets = resets_of(tmp_path, [record(0)], [record(5), record(2)])
    assert asyncio.run(resets.of_group("g", needs_all=True)) == [record(5), record(2), record(1), record(0)]
    assert [asyncio.run(resets.find(change_id(number))) for number in (0, 1, 5)] == [record(0), record(1), record(5)]
    assert asyncio.run(resets.find(change_id(7))) is None


def test_node_that_does_not_answer_may_have_the_record(tmp_path: Path) -> None:
    resets = resets_of(tmp_path, None, [record(2)])
    assert asyncio.run(resets.find(change_id(1))) == record(1)
    assert asyncio.run(resets.find(change_id(2))) == record(2)
    assert asyncio.run(resets.of_group("g")) == [record(2), record(1)]
    for ask_all in (resets.find(change_id(7)), resets.of_group("g", needs_all=True)):
        with pytest.raises(CoordinatorError, match="node 2 of the cluster, which may have a record of it") as caught:
            asyncio.run(ask_all)
        assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
