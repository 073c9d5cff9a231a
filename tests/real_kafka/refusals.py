"""Requests that are refused, of each API about groups and in each of its versions: null and empty where both may be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from types import MappingProxyType
from typing import Any

from conformance.scenarios.transactions import add, end, init, txn
from conformance.script import Step
from conformance.steps import (
    ALIEN,
    NOWHERE,
    commit,
    delete,
    delete_offsets,
    describe,
    fetch,
    heartbeat,
    join,
    leave,
    offsets,
    part,
    sync,
)

LINE = "E"
PRODUCER = "$pid1"  # that somebody has been given before
NO_PRODUCER = 987_654_321
KEYS = (("", 0), ("g", 0), ("g", 1), ("", 1), ("g", 2), ("g", 9), ("g", -1), ("a:b:c", 2))
Changes = Mapping[str, Any]
NOTHING: Changes = MappingProxyType({})


def seat(name: str) -> Changes:
    return {"group_instance_id": name}


def joins(version: int, has_members: bool) -> Iterator[Step]:
    wrong: list[Changes] = [{"group_id": ""}, {"session_timeout": 1}, {"session_timeout": 2_000_000}]
    wrong += [{"protocols": []}, {"protocol_type": ""}]
    if has_members:  # otherwise these would make a group
        wrong += [{"protocols": ALIEN}, {"protocol_type": "other"}]
    for changes in wrong:
        yield join(LINE, "", version, **changes)
    for changes in [*wrong, NOTHING, *([seat("x"), seat("a"), seat("")] if version >= 5 else [])]:
        yield join(LINE, "nobody", version, **changes)


def syncs(version: int) -> Iterator[Step]:
    wrong: list[Changes] = [NOTHING, {"group_id": ""}, {"protocol_type": None, "protocol_name": None}]
    for changes in [*wrong, *([seat("a"), seat("")] if version >= 3 else [])]:
        yield sync(LINE, "nobody", 1, v=version, **changes)
        yield sync(LINE, "", -1, v=version, **changes)


def beats(version: int) -> Iterator[Step]:
    for group, name in product(("$group", ""), (None, "a", "") if version >= 3 else (None,)):
        yield heartbeat(LINE, "nobody", 1, name, version, group)


def leaves(version: int) -> Iterator[Step]:
    for group in ("$group", "$group-absent", ""):
        for who in ((), ("nobody",), ("",), (("", "seat"), ("x", "a"), "nobody", ("", ""))):
            yield leave(LINE, *who, v=version, group=group)


def commits(version: int) -> Iterator[Step]:
    wrong: list[Changes] = [NOTHING, {"group_id": "$group-absent"}, *([seat("a"), seat("")] if version >= 7 else [])]
    for who, generation, changes in product(("nobody", ""), (1, -1), wrong):
        yield commit(LINE, who, generation, v=version, **changes)
    yield commit(LINE, "", -1, offsets("t", part(0, 1, None), part(7)), NOWHERE, v=version)
    yield commit(LINE, "", -1, NOWHERE, v=version)


def fetches(version: int) -> Iterator[Step]:
    wanted: list[Mapping[str, list[int]] | None] = [{}, {"t": [0, 1, 7], "never-made": [0]}, {"t": []}]
    wanted += [None] if version >= 2 else []
    for group, asked, is_stable in product(("$group", "$group-absent"), wanted, (False, True)):
        yield fetch(LINE, asked, version, group_id=group, require_stable=is_stable)
    if version >= 9:
        yield fetch(LINE, {"t": [0]}, version, member_id="nobody", member_epoch=4)


def looks(version: int) -> Iterator[Step]:
    for groups, tells in product((["$group"], ["$group-absent"], []), (False, True)):
        values = {"groups": groups, "include_authorized_operations": tells}
        yield [LINE, "describe_groups", version, values]
    yield describe(LINE, "$group", "$group", v=version)


def lists(version: int) -> Iterator[Step]:
    """With filters: other tests' groups are there, too."""
    if version >= 4:
        yield [LINE, "list_groups", version, {"states_filter": ["nonsense"], "types_filter": []}]


def deletes(version: int) -> Iterator[Step]:
    for groups in (["$group-absent"], ["$group-absent", "$group-absent"], []):
        yield [LINE, "delete_groups", version, {"groups_names": groups}]


def deletes_with_members(version: int) -> Iterator[Step]:
    yield delete(LINE, v=version)


def finds(version: int) -> Iterator[Step]:
    for key, kind in KEYS:
        keys = [key, f"{key}2", key]
        yield [LINE, "find_coordinator", version, {"key": key, "key_type": kind, "coordinator_keys": keys}]
    yield [LINE, "find_coordinator", version, {"key": "", "key_type": 0, "coordinator_keys": []}]


def offset_deletes(_version: int) -> Iterator[Step]:
    asked: list[Mapping[str, list[int]]] = [{"t": [9]}, {}, {"never-made": [0, 1]}, {"t": []}]
    for group, topics in product(("$group", "$group-absent"), asked):
        yield delete_offsets(LINE, topics, group)


def inits(version: int) -> Iterator[Step]:
    changes: list[dict[str, Any]] = [{"tx": ""}, {"timeout": 0}, {"timeout": -1}, {"timeout": 10**9}]
    if version >= 3:
        changes += [{"producer": NO_PRODUCER, "epoch": 0}, {"producer": -1, "epoch": 3}]
        changes += [{"producer": PRODUCER, "epoch": -1}, {"tx": None, "producer": NO_PRODUCER, "epoch": 0}]
    for one in changes:
        yield init(LINE, version, **one)


def adds(version: int) -> Iterator[Step]:
    changes: list[dict[str, Any]] = [{"producer": NO_PRODUCER}, {"epoch": 9}, {"tx": ""}, {"tx": "none"}]
    for one in changes:
        yield add(LINE, version, **one)


def ends(version: int) -> Iterator[Step]:
    changes: list[dict[str, Any]] = [{"producer": NO_PRODUCER}, {"epoch": 9}, {"tx": ""}, {"tx": "none"}]
    for one, is_good in product(changes, (True, False)):
        yield end(LINE, is_good, version, **one)


def transactional(version: int) -> Iterator[Step]:
    changes: list[dict[str, Any]] = [{"producer": NO_PRODUCER}, {"epoch": 9}, {"group_id": ""}]
    for one in [*changes, *([seat("a"), seat("")] if version >= 3 else [])]:
        yield txn(LINE, "nobody", 1, v=version, **one)
    yield txn(LINE, "", -1, NOWHERE, v=version)


def refusals(versions: Mapping[str, tuple[int, int]], has_members: bool) -> list[Step]:
    """All of them, for the oldest to the newest version of each API."""
    makers: dict[str, Any] = {
        "join_group": lambda version: joins(version, has_members),
        "sync_group": syncs,
        "heartbeat": beats,
        "leave_group": leaves,
        "offset_fetch": fetches,
        "describe_groups": looks,
        "list_groups": lists,
        "find_coordinator": finds,
        "delete_groups": deletes_with_members if has_members else deletes,
        "offset_delete": offset_deletes,
        "init_producer_id": inits,
        "add_offsets_to_txn": adds,
        "end_txn": ends,
        "txn_offset_commit": transactional,
        "offset_commit": commits,
    }
    return [
        step
        for name, make in makers.items()
        for version in range(versions[name][0], versions[name][1] + 1)
        for step in make(version)
    ]
