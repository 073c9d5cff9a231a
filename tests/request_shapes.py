"""Requests with one long array, generated from the schemas: of each API, each version that has other arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from harness import random_entity, random_item
from kio.serial import _introspect as introspect
from peers.wire import message_type
from request_helpers import arrays, encode_body
from tag_helpers import uvarint

from callboard.runtime.kafka.api import APIS, Api

DIFFERENT_MAX = 1_000


class Shape(NamedTuple):
    """A request with one long array."""

    name: str
    size: int
    body: bytes


def array_names(entity_type: Any) -> Iterator[str]:
    """The arrays of a request or of an entity in it, with their types."""
    for field in fields(entity_type):
        kind = introspect.classify_field(field)
        if kind.is_array:
            yield f"{field.name} {kind.type_.__name__}"
        if is_dataclass(kind.type_):
            yield from array_names(kind.type_)


def versions(api: Api) -> Iterator[int]:
    """The newest version, and each one whose arrays differ from those of the next one."""
    arrays_of_next: list[str] = []
    for version in range(api.max_version, api.min_version - 1, -1):
        names = [*array_names(message_type(api.name, version, "request"))]
        if names != arrays_of_next or version == api.max_version:
            yield version
        arrays_of_next = names


REQUESTS = [(api, version) for api in APIS for version in versions(api)]
each_request = pytest.mark.parametrize(
    ("api", "version"), REQUESTS, ids=[f"{api.name}-v{version}" for api, version in REQUESTS]
)


def shapes(api: Api, version: int, size: int) -> Iterator[Shape]:
    """For each array of a version: the same item ``size`` times, and up to a thousand different items."""
    request = random_entity(message_type(api.name, version, "request"), Random(3))
    for inner, field, rebuild in arrays(request):
        item = random_item(field, introspect.classify_field(field).type_, Random(5))
        empty, null, one = (encode_body(rebuild(replace(inner, **{field.name: v}))) for v in ((), None, (item,)))
        yield Shape(f"{api.name} {field.name} equal", size, repeated(empty, null, one, size, type(inner).__flexible__))
        if size <= DIFFERENT_MAX:
            items = tuple(numbered(item, number) for number in range(size))
            body = encode_body(rebuild(replace(inner, **{field.name: items})))
            yield Shape(f"{api.name} {field.name} different", size, body)


def repeated(empty: bytes, null: bytes, one: bytes, size: int, flexible: bool) -> bytes:
    """The request ``one`` with its item ``size`` times. ``empty`` and ``null`` show where the count is."""
    start = next(index for index, (byte, other) in enumerate(zip(empty, null, strict=False)) if byte != other)
    end = start + (1 if flexible else 4)
    item = one[end : len(one) - len(empty) + end]
    count = uvarint(size + 1) if flexible else size.to_bytes(4, "big")
    return empty[:start] + count + item * size + empty[end:]


def numbered(item: Any, number: int) -> Any:
    """The item with a number in its first field that is not an array: another one for each number."""
    if isinstance(item, str):
        return f"n{number}"
    if isinstance(item, bool) or not (isinstance(item, int | UUID) or is_dataclass(item)):
        return item
    if not is_dataclass(item):
        return UUID(int=number + 1) if isinstance(item, UUID) else number % 100
    names = [field.name for field in fields(item) if isinstance(getattr(item, field.name), str | UUID)]
    return replace(item, **{name: numbered(getattr(item, name), number) for name in names[:1]})  # type: ignore[type-var]
