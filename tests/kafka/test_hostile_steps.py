"""Requests with long arrays, generated from the schemas: what runs between two turns of the event loop does not grow.

Each array of each request has 500 and 800 items, equal or different ones. The longest step of the one may have as
many executed lines as that of the other, and one or two for each item: a list comprehension, or a call of C code.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import async_test, running_node
from longest_steps import longest_step
from peers.wire import message_type
from request_helpers import encode_request
from request_shapes import REQUESTS, array_names, shapes
from work_counter import _one_step_a_turn, endless_clock

from callboard.runtime.kafka.api import Api
from callboard.runtime.kafka.connections import connection
from callboard.runtime.node.environment import Environment, WorkClocks

__all__ = ["_one_step_a_turn"]

FEW, MANY = 500, 800
"""500 of the largest items are more than 32 kB: from there on the lengths of strings are checked first."""

LINES_PER_ITEM = 2

BOUNDED = {
    "join_group protocols": "group_max_member_protocols is 1,000",
    "alter_configs configs": "max_request_config_items is 10,000, and the changes of a resource are made together",
    "incremental_alter_configs configs": "the same",
}
"""Arrays whose items are handled in one step, and what bounds it."""


def requests_with_new_arrays() -> Iterator[tuple[Api, int, frozenset[str]]]:
    """Each API in the newest version, and in older ones with arrays that no newer one has, with these arrays."""
    seen: set[str] = set()
    for api, version in REQUESTS:
        names = {f"{api.name} {name.split()[0]}" for name in array_names(message_type(api.name, version, "request"))}
        if names - seen:
            yield api, version, frozenset(names - seen)
        seen |= names


CASES = list(requests_with_new_arrays())


def requests(api: Api, version: int, arrays: frozenset[str], size: int) -> Iterator[tuple[str, bytes]]:
    flexible = message_type(api.name, version, "request").__flexible__
    for shape in shapes(api, version, size):
        if shape.name.rpartition(" ")[0] in arrays - set(BOUNDED):
            yield shape.name, encode_request(api.key, version, shape.body, flexible)


@pytest.mark.usefixtures("_one_step_a_turn")
@pytest.mark.parametrize(
    ("api", "version", "arrays"), CASES, ids=[f"{api.name}-v{version}" for api, version, _ in CASES]
)
@async_test
async def test_longest_step_does_not_grow_with_the_items(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: Api, version: int, arrays: frozenset[str]
) -> None:
    monkeypatch.setattr(connection, "LARGE_REQUEST_BYTES", 0)  # all are decoded in steps
    environment = Environment(work_clocks=WorkClocks(slice_ns=endless_clock(), budget_ns=lambda: 0))
    async with running_node(tmp_path, {"sync": "none"}, environment=environment) as harness:
        few = {name: await longest_step(harness, data) for name, data in requests(api, version, arrays, FEW)}
        many = {
            name: await longest_step(harness, data, is_warm=True) for name, data in requests(api, version, arrays, MANY)
        }
    growth = {name: lines - few[name] for name, lines in many.items()}
    assert {name: lines for name, lines in growth.items() if lines > LINES_PER_ITEM * (MANY - FEW)} == {}


def test_every_array_has_a_case() -> None:
    assert {
        f"{api.name} {name.split()[0]}"
        for api, version in REQUESTS
        for name in array_names(message_type(api.name, version, "request"))
    } == {name for _, _, arrays in CASES for name in arrays}
    assert set(BOUNDED) <= {name for _, _, arrays in CASES for name in arrays}
