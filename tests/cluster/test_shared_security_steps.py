"""Users and ACLs of a cluster: what runs between two turns of the event loop does not grow with their number."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any
from uuid import UUID

import pytest
from acl_helpers import change_acls
from work_counter import WorkCounter, _one_step_a_turn

from callboard.actors.steps import Steps, run_steps
from callboard.runtime.cluster import documents
from callboard.runtime.cluster.documents import CHARS_PER_STEP
from callboard.runtime.cluster.topics_document import SharedTopic, TopicsDocument, decode_topics
from callboard.runtime.disk.file_work import FileThread
from callboard.runtime.disk.json_parts import json_parts
from callboard.runtime.security.acl_store import ROWS, AclStore, row_of
from callboard.runtime.security.acls import Acl, PatternType, Permission
from callboard.runtime.security.document import ACLS, SecurityDocument
from callboard.runtime.security.resources import Operation, ResourceType

from .memory_store import Memory
from .shared_topics_helpers import TopicsNode

__all__ = ["_one_step_a_turn"]

FEW, MANY = 1_000, 5_000
LINES_PER_ITEM = 0.25
"""Executed lines."""


def acls_of(numbers: range) -> list[Acl]:
    return [
        Acl(ResourceType.GROUP, f"g{n}", PatternType.LITERAL, "User:a", "*", Operation.READ, Permission.ALLOW)
        for n in numbers
    ]


async def longest_turn(work: Coroutine[Any, Any, None]) -> int:
    """The executed lines of the longest turn of the event loop during some work."""
    counter = WorkCounter()
    with counter.counting():
        task = asyncio.create_task(work)
        await counter.count_turns_until(task.done)
    await task
    return counter.longest


async def longest_turns(stored: int) -> dict[str, int]:
    """Of the node that adds an ACL to so many, of another one that reads it, and of one that removes it."""
    memory = Memory()
    nodes = [TopicsNode(memory, name) for name in "ab"]
    here, there = [AclStore(node.security) for node in nodes]
    await change_acls(here.create, acls_of(range(stored)))
    threads = [FileThread(asyncio.get_running_loop()) for _ in nodes]
    for node, thread in zip(nodes, threads, strict=True):
        await node.follow()
        node.security.run_on(thread)
    one = acls_of(range(stored, stored + 1))
    longest = {
        "add": await longest_turn(change_acls(here.create, one)),
        "read": await longest_turn(nodes[1].follow()),
        "remove": await longest_turn(change_acls(there.delete, one)),
    }
    assert list(there.table.acls) == acls_of(range(stored))
    for node, thread in zip(nodes, threads, strict=True):
        node.shared.halt()
        thread.halt()
    return longest


@pytest.mark.usefixtures("_one_step_a_turn")
def test_longest_turn_of_a_node_does_not_grow_with_the_acls() -> None:
    asyncio.run(longest_turns(10))  # loads the code
    few, many = asyncio.run(longest_turns(FEW)), asyncio.run(longest_turns(MANY))
    growth = {name: lines - few[name] for name, lines in many.items()}
    assert {name: lines for name, lines in growth.items() if lines > LINES_PER_ITEM * (MANY - FEW)} == {}


def document_of(acls: int, topics: int) -> TopicsDocument:
    rows = [list(row_of(acl)) for acl in acls_of(range(acls))]
    shared = {f"topic {n}": SharedTopic(UUID(int=1), 1, 0, {}) for n in range(topics)}
    return TopicsDocument(1, "t", shared, security=SecurityDocument(b"s", 7, {ACLS: {ROWS: rows}}))


def count_steps(steps: Steps[Any]) -> int:
    return sum(1 for _ in steps)


@pytest.mark.parametrize(("acls", "topics"), [(MANY, 0), (0, MANY)])
def test_document_is_written_and_read_in_small_parts(acls: int, topics: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own JSON code is one call for each part."""
    longest = 0

    def measured(value: Any, encoder: Any) -> Iterator[str]:
        nonlocal longest
        for part in json_parts(value, encoder):
            longest = max(longest, len(part))
            yield part

    monkeypatch.setattr(documents, "json_parts", measured)
    document = document_of(acls, topics)
    data = run_steps(document.encode())
    assert run_steps(decode_topics(data)) == document
    assert longest <= CHARS_PER_STEP
    for steps in (document.encode(), decode_topics(data)):
        assert count_steps(steps) > len(data) / (2 * CHARS_PER_STEP)
