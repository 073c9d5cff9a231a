"""A response that is written in steps has the same bytes as kio's, for every API."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from callboard.actors.steps import run_steps
from callboard.runtime.common.shared_bytes import SharedBytes
from callboard.runtime.kafka.api import APIS
from callboard.runtime.kafka.codec.kio import kio
from callboard.runtime.kafka.codec.schemas import Schema, schema
from callboard.runtime.kafka.codec.step_writer import ITEMS_PER_STEP, JOINED_BYTES, PART_BYTES, write_in_steps
from callboard.runtime.kafka.error_response import ZEROS

VERSIONS = [(api.name, version) for api in APIS for version in {api.min_version, api.max_version}]
VALUES = ZEROS | {"records": b"batch"}
ITEMS = 10


def sample(entity_type: Any, *, is_other: bool = False) -> Any:
    """Make an entity with ``ITEMS`` items in each array. ``is_other``: with other numbers, also in tagged fields."""
    return entity_type(**{field.name: sample_value(field, is_other) for field in fields(entity_type)})


def sample_value(field: Any, is_other: bool) -> Any:
    kind = kio("serial._introspect").classify_field(field)
    if kind.is_array:
        items = (ITEMS - is_other) if is_dataclass(kind.type_) else 0
        return tuple(sample(kind.type_, is_other=index % 2 == 1) for index in range(items))
    if is_dataclass(kind.type_):
        return sample(kind.type_, is_other=is_other)
    number = kio("schema.errors").ErrorCode(3) if field.metadata["kafka_type"] == "error_code" else 7 + is_other
    return VALUES.get(field.metadata["kafka_type"], number)


def lazy(entity: Any) -> Any:
    """Replace arrays of entities by iterators with pauses, except in tagged fields, which are short."""
    changes = {
        field.name: lazy_items(value)
        for field in fields(entity)
        if isinstance(value := getattr(entity, field.name), tuple) and value and "tag" not in field.metadata
    }
    return replace(entity, **changes)


def lazy_items(items: tuple[Any, ...]) -> Iterator[Any]:
    for item in items:
        yield None
        yield lazy(item) if is_dataclass(item) else item


@pytest.mark.parametrize(("name", "version"), VERSIONS)
def test_response_in_steps_has_the_bytes_of_kio(name: str, version: int) -> None:
    opened: Schema = schema(name, version)
    response = sample(opened.response_type)
    expected = opened.write(response)
    assert bytes(run_steps(write_in_steps(response))) == expected
    assert bytes(run_steps(write_in_steps(lazy(response)))) == expected


def test_large_response_stays_in_parts() -> None:
    response = sample(schema("find_coordinator", 4).response_type)
    count = JOINED_BYTES // 4
    coordinator = response.coordinators[0]
    steps = write_in_steps(replace(response, coordinators=(coordinator for _ in range(count))))
    pauses = 0
    try:
        while True:
            next(steps)
            pauses += 1
    except StopIteration as end:
        body = end.value
    assert isinstance(body, SharedBytes)
    assert bytes(body) == schema("find_coordinator", 4).write(replace(response, coordinators=(coordinator,) * count))
    assert max(map(len, body.parts)) < 2 * PART_BYTES
    assert pauses >= count // ITEMS_PER_STEP
