"""Large requests are read in steps: the same entities and errors as at once, and their items are limited."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from harness import random_entity
from peers.wire import message_type
from request_helpers import API_VERSIONS, encode_body, with_long_arrays
from tag_helpers import with_unknown_tags

from callboard.actors.steps import run_steps
from callboard.runtime.kafka.codec.schemas import schema
from callboard.runtime.kafka.codec.stepped_reading import ITEMS_A_STEP, ItemCount, TooManyItems

ITEMS_MAX = 10_000
SEEDS = 3
ERRORS = (KeyError, ValueError, IndexError, OverflowError)

each_request = pytest.mark.parametrize(
    ("name", "version"),
    [(api.name, version) for api, version in API_VERSIONS],
    ids=[f"{api.name}-v{version}" for api, version in API_VERSIONS],
)


def read_in_steps(name: str, version: int, body: bytes, start: int = 0, items_max: int = ITEMS_MAX) -> tuple[Any, int]:
    """The entity at ``start``, and the position behind it."""
    return run_steps(schema(name, version).read_in_steps(body, start, ItemCount(items_max)))


def requests(name: str, version: int) -> list[Any]:
    return [random_entity(message_type(name, version, "request"), Random(seed)) for seed in range(SEEDS)]


@each_request
def test_request_in_steps_is_the_same_as_at_once(name: str, version: int) -> None:
    for entity in requests(name, version):
        body = encode_body(entity)
        assert read_in_steps(name, version, b"before" + body + b"behind", 6) == (entity, 6 + len(body))


@each_request
def test_unknown_tagged_fields_are_skipped(name: str, version: int) -> None:
    if not message_type(name, version, "request").__flexible__:
        return
    for seed, entity in enumerate(requests(name, version)):
        body = with_unknown_tags(entity, Random(seed))
        assert read_in_steps(name, version, body) == (entity, len(body))


@each_request
def test_truncated_request_raises(name: str, version: int) -> None:
    decode_error = schema(name, version).decode_error
    for entity in requests(name, version):
        body = encode_body(entity)
        for end in range(len(body)):
            with pytest.raises((*ERRORS, decode_error)):
                read_in_steps(name, version, body[:end])


@each_request
def test_long_array_is_read_in_small_steps(name: str, version: int) -> None:
    size = 20 * ITEMS_A_STEP
    for field, entity in with_long_arrays(requests(name, version)[0], size):
        steps = schema(name, version).read_in_steps(encode_body(entity), 0, ItemCount(ITEMS_MAX * 100))
        assert sum(1 for _ in steps) >= size // ITEMS_A_STEP, field


@each_request
def test_array_above_the_limit_is_refused_before_its_items_are_read(name: str, version: int) -> None:
    for field, entity in with_long_arrays(requests(name, version)[0], 500):
        count = ItemCount(499)
        with pytest.raises(TooManyItems, match=f"items up to {field}, expected at most 499"):
            run_steps(schema(name, version).read_in_steps(encode_body(entity), 0, count))
        assert count.read < 50, field


def test_items_of_all_arrays_are_limited_together() -> None:
    partition = {"partition_index": 1, "committed_offset": 1, "committed_leader_epoch": 1, "committed_metadata": None}
    types = message_type("offset_commit", 9, "request")
    topic = schema_item(types, "topics")
    row = schema_item(topic, "partitions")(**partition)
    topics = tuple(topic(name=f"t{number}", partitions=(row, row)) for number in range(5))
    body = encode_body(replace(random_entity(types, Random(1)), topics=topics))
    assert len(read_in_steps("offset_commit", 9, body, items_max=15)[0].topics) == 5
    with pytest.raises(TooManyItems, match="15 items up to partitions, expected at most 14"):
        read_in_steps("offset_commit", 9, body, items_max=14)


def schema_item(entity_type: Any, field: str) -> Any:
    """The class of the items of an array."""
    from kio.serial import _introspect as introspect

    return introspect.classify_field(entity_type.__dataclass_fields__[field]).type_
