"""Invalid requests to all group APIs in all their versions, with null and empty values."""

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
PRODUCER = "$pid1"  # the producer id of an earlier response
NO_PRODUCER = 987_654_321
KEYS = (("", 0), ("g", 0), ("g", 1), ("", 1), ("g", 2), ("g", 9), ("g", -1), ("a:b:c", 2))
Changes = Mapping[str, Any]
NOTHING: Changes = MappingProxyType({})


def instance_id(name: str) -> Changes:
    return {"group_instance_id": name}


def joins(version: int, has_members: bool) -> Iterator[Step]:
    invalid: list[Changes] = [{"group_id": ""}, {"session_timeout": 1}, {"session_timeout": 2_000_000}]
    invalid += [{"protocols": []}, {"protocol_type": ""}]
    if has_members:  # otherwise these would create a group
        invalid += [{"protocols": ALIEN}, {"protocol_type": "other"}]
    for changes in invalid:
        yield join(LINE, "", version, **changes)
    for changes in [
        *invalid,
        NOTHING,
        *([instance_id("x"), instance_id("a"), instance_id("")] if version >= 5 else []),
    ]:
        yield join(LINE, "nobody", version, **changes)


def syncs(version: int) -> Iterator[Step]:
    invalid: list[Changes] = [NOTHING, {"group_id": ""}, {"protocol_type": None, "protocol_name": None}]
    for changes in [*invalid, *([instance_id("a"), instance_id("")] if version >= 3 else [])]:
        yield sync(LINE, "nobody", 1, v=version, **changes)
        yield sync(LINE, "", -1, v=version, **changes)


def beats(version: int) -> Iterator[Step]:
    for group, name in product(("$group", ""), (None, "a", "") if version >= 3 else (None,)):
        yield heartbeat(LINE, "nobody", 1, name, version, group)


def leaves(version: int) -> Iterator[Step]:
    for group in ("$group", "$group-absent", ""):
        for members in ((), ("nobody",), ("",), (("", "seat"), ("x", "a"), "nobody", ("", ""))):
            yield leave(LINE, *members, v=version, group=group)


def commits(version: int) -> Iterator[Step]:
    invalid: list[Changes] = [
        NOTHING,
        {"group_id": "$group-absent"},
        *([instance_id("a"), instance_id("")] if version >= 7 else []),
    ]
    for member_id, generation, changes in product(("nobody", ""), (1, -1), invalid):
        yield commit(LINE, member_id, generation, v=version, **changes)
    yield commit(LINE, "", -1, offsets("t", part(0, 1, None), part(7)), NOWHERE, v=version)
    yield commit(LINE, "", -1, NOWHERE, v=version)


def fetches(version: int) -> Iterator[Step]:
    topic_maps: list[Mapping[str, list[int]] | None] = [{}, {"t": [0, 1, 7], "never-made": [0]}, {"t": []}]
    topic_maps += [None] if version >= 2 else []
    for group, topics, is_stable in product(("$group", "$group-absent"), topic_maps, (False, True)):
        yield fetch(LINE, topics, version, group_id=group, require_stable=is_stable)
    if version >= 9:
        yield fetch(LINE, {"t": [0]}, version, member_id="nobody", member_epoch=4)


def looks(version: int) -> Iterator[Step]:
    for groups, with_operations in product((["$group"], ["$group-absent"], []), (False, True)):
        values = {"groups": groups, "include_authorized_operations": with_operations}
        yield [LINE, "describe_groups", version, values]
    yield describe(LINE, "$group", "$group", v=version)


def lists(version: int) -> Iterator[Step]:
    """With a filter, because groups of other tests exist, too."""
    if version >= 4:
        yield [LINE, "list_groups", version, {"states_filter": ["nonsense"], "types_filter": []}]


def deletes(version: int) -> Iterator[Step]:
    for groups in (["$group-absent"], ["$group-absent", "$group-absent"], []):
        yield [LINE, "delete_groups", version, {"groups_names": groups}]


def deletes_with_members(version: int) -> Iterator[Step]:
    yield delete(LINE, v=version)


def finds(version: int) -> Iterator[Step]:
    for key, key_type in KEYS:
        keys = [key, f"{key}2", key]
        yield [LINE, "find_coordinator", version, {"key": key, "key_type": key_type, "coordinator_keys": keys}]
    yield [LINE, "find_coordinator", version, {"key": "", "key_type": 0, "coordinator_keys": []}]


def offset_deletes(_version: int) -> Iterator[Step]:
    topic_maps: list[Mapping[str, list[int]]] = [{"t": [9]}, {}, {"never-made": [0, 1]}, {"t": []}]
    for group, topics in product(("$group", "$group-absent"), topic_maps):
        yield delete_offsets(LINE, topics, group)


def inits(version: int) -> Iterator[Step]:
    changes: list[dict[str, Any]] = [{"tx": ""}, {"timeout": 0}, {"timeout": -1}, {"timeout": 10**9}]
    if version >= 3:
        changes += [{"producer": NO_PRODUCER, "epoch": 0}, {"producer": -1, "epoch": 3}]
        changes += [{"producer": PRODUCER, "epoch": -1}, {"tx": None, "producer": NO_PRODUCER, "epoch": 0}]
    for fields in changes:
        yield init(LINE, version, **fields)


def adds(version: int) -> Iterator[Step]:
    changes: list[dict[str, Any]] = [{"producer": NO_PRODUCER}, {"epoch": 9}, {"tx": ""}, {"tx": "none"}]
    for fields in changes:
        yield add(LINE, version, **fields)


def ends(version: int) -> Iterator[Step]:
    changes: list[dict[str, Any]] = [{"producer": NO_PRODUCER}, {"epoch": 9}, {"tx": ""}, {"tx": "none"}]
    for fields, is_good in product(changes, (True, False)):
        yield end(LINE, is_good, version, **fields)


def transactional(version: int) -> Iterator[Step]:
    changes: list[dict[str, Any]] = [{"producer": NO_PRODUCER}, {"epoch": 9}, {"group_id": ""}]
    for fields in [*changes, *([instance_id("a"), instance_id("")] if version >= 3 else [])]:
        yield txn(LINE, "nobody", 1, v=version, **fields)
    yield txn(LINE, "", -1, NOWHERE, v=version)


def refusals(versions: Mapping[str, tuple[int, int]], has_members: bool) -> list[Step]:
    """Return all invalid requests, for every version of each API."""
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
