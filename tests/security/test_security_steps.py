"""ACLs, quotas and users: what runs between two turns of the event loop does not grow with their number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from client_quota_helpers import USER, alteration
from harness import NEWEST, MemoryClient, NodeHarness, async_test, frame, running_node
from peers.wire import decode
from work_counter import WorkCounter, _one_step_a_turn, endless_clock

from callboard.actors import steps
from callboard.actors.steps import Steps
from callboard.runtime.disk.file_work import InlineFileWork
from callboard.runtime.disk.group_commit import immediate_outcome, outcome_of
from callboard.runtime.disk.memory import MemoryDisk
from callboard.runtime.node.environment import Environment, WorkClocks
from callboard.runtime.security.acl_store import AclStore, ChangeDone
from callboard.runtime.security.acls import Acl, PatternType, Permission
from callboard.runtime.security.document import USERS
from callboard.runtime.security.resources import Operation, ResourceType
from callboard.runtime.security.store import SecurityStore
from callboard.runtime.settings.authorization import STANDARD_AUTHORIZER

__all__ = ["_one_step_a_turn"]

FEW, MANY, STORED_MANY = 400, 1_000, 5_000
LINES_PER_ITEM = 0.25
"""Executed lines."""

GROUP, LITERAL, READ, ALLOW, ANY = 3, 3, 3, 3, 1
NO_NAMES = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
ALL = {**NO_NAMES, "resource_type_filter": GROUP, "pattern_type_filter": ANY, "operation": ANY, "permission_type": ANY}
ONE = {**ALL, "resource_name_filter": "g0"}

RESULTS = {
    "alter_client_quotas": "entries",
    "create_acls": "results",
    "delete_acls": "filter_results",
    "describe_user_scram_credentials": "results",
}


class Name(str):
    """A name whose comparisons are counted."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return super().__lt__(other)


def creations(numbers: range) -> dict[str, Any]:
    fields = {"resource_type": GROUP, "resource_pattern_type": LITERAL, "principal": "User:alice", "host": "*"}
    fields |= {"operation": READ, "permission_type": ALLOW}
    return {"creations": [{**fields, "resource_name": f"g{number}"} for number in numbers]}


def quotas(numbers: range, percentage: float | None) -> dict[str, Any]:
    """Long names: the lengths of strings are checked in requests of more than 32 kB only, which takes more lines."""
    entries = [alteration({USER: f"user {number:0100}"}, request_percentage=percentage) for number in numbers]
    return {"entries": entries, "validate_only": False}


async def longest_step(harness: NodeHarness, api: str, values: Mapping[str, Any]) -> int:
    """Send a request. Returns the executed lines of its longest step, until it is answered and freed."""
    client, counter, slices = MemoryClient(harness.node), WorkCounter(), harness.node.services.slices
    data = frame(api, **values)
    with counter.counting():
        client.feed(data)
        await counter.count_turns_until(lambda: not slices and bool(client.transport.written))
    [answer] = client.answers()
    decoded: Any = decode(api, NEWEST[api], answer)
    assert {result["error_code"] for result in decoded[RESULTS[api]]} == {"NONE"}
    client.close()
    return counter.longest


async def longest_steps(folder: Path, size: int) -> dict[str, int]:
    """Of requests to a node with so many ACLs, entities with quotas, and users."""
    environment = Environment(work_clocks=WorkClocks(slice_ns=endless_clock(), budget_ns=lambda: 0))
    settings: dict[str, Any] = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:ANONYMOUS"}
    async with running_node(folder, {"sync": "none"}, environment=environment, **settings) as harness:
        users: dict[str, Any] = {Name(f"user {number}"): {} for number in range(size)}
        change = partial(harness.node.services.security.change, USERS, lambda _users: users)
        assert await outcome_of(change) is None
        requests: dict[str, tuple[str, dict[str, Any]]] = {
            "create ACLs": ("create_acls", creations(range(size))),
            "create an ACL": ("create_acls", creations(range(size, size + 1))),
            "delete an ACL": ("delete_acls", {"filters": [ONE]}),
            "delete ACLs": ("delete_acls", {"filters": [ALL]}),
            "set quotas": ("alter_client_quotas", quotas(range(size), 50)),
            "remove quotas": ("alter_client_quotas", quotas(range(size), None)),
            "users": ("describe_user_scram_credentials", {"users": None}),
        }
        for api, values in requests.values():  # load the code
            await longest_step(harness, api, values)
        return {name: await longest_step(harness, *request) for name, request in requests.items()}


@pytest.mark.usefixtures("_one_step_a_turn")
@async_test
async def test_longest_step_does_not_grow_with_what_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "NAMES_PER_STEP", 64)
    few, many = await longest_steps(tmp_path / "few", FEW), await longest_steps(tmp_path / "many", MANY)
    growth = {name: lines - few[name] for name, lines in many.items()}
    assert {name: lines for name, lines in growth.items() if lines > LINES_PER_ITEM * (MANY - FEW)} == {}


class CountedWork(InlineFileWork):
    """Counts the executed lines of each step."""

    def __init__(self) -> None:
        self.counter = WorkCounter()

    def run_in_slices(self, steps: Steps[None]) -> None:
        with self.counter.counting():
            for _ in steps:
                self.counter.end_piece()


def outcome_of_change(change: Callable[[Sequence[Acl], ChangeDone], None], acls: Sequence[Acl]) -> Exception | None:
    def submit(done: Callable[[Exception | None], None]) -> None:
        change(acls, lambda failure, _changed: done(failure))

    return immediate_outcome(submit)


def longest_step_of_one_acl(stored: int) -> int:
    """Of the creation and the deletion of one ACL, with so many stored ones."""
    acls = [
        Acl(ResourceType.GROUP, f"g{n}", PatternType.LITERAL, "User:a", "*", Operation.READ, Permission.ALLOW)
        for n in range(stored + 1)
    ]
    security = SecurityStore(Path("/"), MemoryDisk(), lambda: b"x" * 32)
    store, work = AclStore(security), CountedWork()
    assert outcome_of_change(store.create, acls[1:]) is None
    security.run_on(work)
    assert outcome_of_change(store.create, acls[:1]) is None
    assert list(store.table.acls) == [*acls[1:], acls[0]]
    assert outcome_of_change(store.delete, acls[:1]) is None
    assert list(store.table.acls) == acls[1:]
    return work.counter.longest


def test_no_step_of_one_acl_looks_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SecurityStore, "write", lambda *_: None)  # which another thread does
    assert longest_step_of_one_acl(STORED_MANY) <= longest_step_of_one_acl(FEW) + LINES_PER_ITEM * (STORED_MANY - FEW)
