"""Requests as bytes, in every API version."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from functools import partial
from random import Random
from typing import Any

from harness import (
    framed,
    random_entity,
    random_item,
)
from kio.serial import _introspect as introspect
from kio.serial import entity_writer
from peers.wire import message_type

from callboard.runtime.kafka.api import APIS, Api

API_VERSIONS = [(api, version) for api in APIS for version in range(api.min_version, api.max_version + 1)]


def encode_body(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def encode_request(key: int, version: int, body: bytes, flexible: bool) -> bytes:
    head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\x07" + b"\0\x04wire"
    return framed(head + (b"\0" if flexible else b"") + body)


def arrays(entity: Any) -> Iterator[tuple[Any, Any, Callable[[Any], Any]]]:
    """Yield all array fields of an entity and its entries: entity, field, and a function that rebuilds the entity."""
    for field in fields(entity):
        kind = introspect.classify_field(field)
        if not kind.is_array:
            continue
        yield entity, field, lambda changed: changed
        if is_dataclass(kind.type_):
            for inner, inner_field, rebuild in arrays(random_entity(kind.type_, Random(4))):
                yield inner, inner_field, partial(put_back, entity, field.name, rebuild)


def put_back(entity: Any, name: str, rebuild: Callable[[Any], Any], changed: Any) -> Any:
    return replace(entity, **{name: (rebuild(changed),)})


def with_long_arrays(entity: Any, size: int) -> Iterator[tuple[str, Any]]:
    """Yield for each array of an entity, and of its items, its name and the entity with ``size`` equal items there."""
    for inner, field, rebuild in arrays(entity):
        item = random_item(field, introspect.classify_field(field).type_, Random(size))
        yield field.name, rebuild(replace(inner, **{field.name: (item,) * size}))


def array_requests(api: Api, version: int) -> Iterator[tuple[str, Any, bytes, int]]:
    """Yield requests with an empty array: field, whether null is allowed, body, position of the count."""
    for entity, field, rebuild in arrays(random_entity(message_type(api.name, version, "request"), Random(3))):
        empty, null = (encode_body(rebuild(replace(entity, **{field.name: value}))) for value in ((), None))
        position = next(
            index for index, (byte, other_byte) in enumerate(zip(empty, null, strict=False)) if byte != other_byte
        )
        yield field.name, type(None) in getattr(field.type, "__args__", ()), empty, position
