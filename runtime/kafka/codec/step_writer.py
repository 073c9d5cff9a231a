"""Writes a response in steps. Its arrays of entities may be iterators, which make the entities while it is written.

kio writes a whole response at once, which takes a second for 50,000 partitions. Here the fields of each entity are
written by kio, and the arrays of entities item by item. An item of None stands for a pause: an iterator that has to
work for long before its next item yields it. An item may also be the bytes of an entity, which are the same for several
entities and written once.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from functools import cache
from typing import Any, NamedTuple

from ....actors.steps import Steps, pieces
from ...common.shared_bytes import SharedBytes
from ...log.format.varint import encode_unsigned
from .kio import kio

ITEMS_PER_STEP = 8
"""Entities without arrays that are written in one step: each takes kio about 20 us."""

VALUES_PER_STEP = 64
"""Numbers or strings that are written in one step."""

JOINED_BYTES = 256 * 1024
"""A response up to this size is joined. A larger one stays in parts of at least PART_BYTES, to save a copy."""

PART_BYTES = 64 * 1024

PARTS_JOINED = 64
"""Small parts that are joined as soon as their counts are known: each array of entities begins a part."""

WriteValue = Callable[[Any, Any], None]
"""Writes a value to a file."""


class FieldWriter(NamedTuple):
    """``item_type``: the type of entities in the array; None for other fields, and for arrays of other values."""

    name: str
    write: WriteValue
    item_type: Any


class EntityWriter(NamedTuple):
    """How the entities of a type are written. ``write`` writes a whole one."""

    write: WriteValue
    fields: tuple[FieldWriter, ...]
    tagged_fields: tuple[tuple[int, FieldWriter, Any], ...]
    """Tag, field and default value."""

    is_flexible: bool
    has_arrays: bool
    """Whether it has arrays of entities."""


class PartsBuffer:
    """A file for kio's writers. It has room for counts, and does not copy the parts of ``SharedBytes``."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._own = io.BytesIO()  # what was written since the last part
        self._has_shared_parts = False
        self._joined = 0  # parts that are not joined again

    def write(self, data: bytes | SharedBytes) -> None:
        if isinstance(data, SharedBytes):
            self._end_part()
            self._parts.extend(data.parts)
            self._has_shared_parts = True
        elif len(data) >= PART_BYTES:
            self._end_part()
            self._parts.append(data)
        else:
            self._own.write(data)

    def begin_count(self) -> int:
        """Leave room for a count; returns the number of its part."""
        self._end_part()
        self._parts.append(b"")
        return len(self._parts) - 1

    def set_count(self, part: int, count: bytes) -> None:
        self._parts[part] = count

    def join_parts(self, count_part: int) -> None:
        """Join the parts behind that of a count, if they are many. All other counts in them are set."""
        begin = max(self._joined, count_part + 1)
        if len(self._parts) - begin < PARTS_JOINED:
            return
        parts = self._parts[begin:]
        if sum(map(len, parts)) < PART_BYTES:
            self._parts[begin:] = [b"".join(parts)]
        self._joined = len(self._parts)

    def body(self) -> Steps[bytes | SharedBytes]:
        """Everything that was written."""
        self._end_part()
        if self._has_shared_parts:
            return SharedBytes(self._parts)
        if sum(map(len, self._parts)) <= JOINED_BYTES:
            return b"".join(self._parts)
        merged = []
        for part in _merge(self._parts):
            merged.append(part)
            yield
        return SharedBytes(merged)

    def _end_part(self) -> None:
        if self._own.tell():
            self._parts.append(self._own.getvalue())
            self._own = io.BytesIO()

    def limit_part(self) -> None:
        """End a part that has become long, so that no copy of a part takes long."""
        if self._own.tell() >= PART_BYTES:
            self._end_part()


def _merge(parts: list[bytes]) -> Iterator[bytes]:
    """Join small parts. Large ones stay as they are."""
    small: list[bytes] = []
    small_bytes = 0
    for part in parts:
        if len(part) >= PART_BYTES or small_bytes >= PART_BYTES:
            yield b"".join(small)
            small, small_bytes = [], 0
        small.append(part)
        small_bytes += len(part)
    yield b"".join(small)


def write_in_steps(entity: Any) -> Steps[bytes | SharedBytes]:
    """The bytes of an entity."""
    buffer = PartsBuffer()
    yield from _write_entity(buffer, entity)
    return (yield from buffer.body())


def _write_entity(buffer: PartsBuffer, entity: Any) -> Steps[None]:
    entity_type: Any = type(entity)
    writer = _entity_writer(entity_type)
    for field in writer.fields:
        value = getattr(entity, field.name)
        if field.item_type is None and type(value) is tuple and len(value) > VALUES_PER_STEP:
            yield from _write_values(buffer, field, value, writer.is_flexible)
        elif field.item_type is None or not value:
            field.write(buffer, value)
        else:
            yield from _write_items(buffer, _entity_writer(field.item_type), value)
    if writer.is_flexible:
        _write_tagged_fields(buffer, writer, entity)


def _write_items(buffer: PartsBuffer, writer: EntityWriter, items: Iterable[Any]) -> Steps[None]:
    count_part = buffer.begin_count()
    count = 0
    for item in items:
        if item is None:
            yield
            continue
        if isinstance(item, bytes | SharedBytes):
            buffer.write(item)
        elif writer.has_arrays:
            yield from _write_entity(buffer, item)
            buffer.join_parts(count_part)
        else:
            writer.write(buffer, item)
        count += 1
        if count % ITEMS_PER_STEP == 0:
            buffer.limit_part()
            yield
    buffer.set_count(count_part, _count(count, writer.is_flexible))


def _write_values(buffer: PartsBuffer, field: FieldWriter, values: tuple[Any, ...], is_flexible: bool) -> Steps[None]:
    """An array of numbers or strings. kio writes pieces of it, whose counts are left out."""
    buffer.write(_count(len(values), is_flexible))
    for piece in pieces(values, VALUES_PER_STEP):
        written = io.BytesIO()
        field.write(written, piece)
        buffer.write(written.getvalue()[len(_count(len(piece), is_flexible)) :])
        buffer.limit_part()
        yield


def _count(count: int, is_flexible: bool) -> bytes:
    return encode_unsigned(count + 1) if is_flexible else count.to_bytes(4, "big")


def _write_tagged_fields(buffer: PartsBuffer, writer: EntityWriter, entity: Any) -> None:
    """Write the fields whose values differ from their defaults, as kio does."""
    values = [(tag, field, getattr(entity, field.name), default) for tag, field, default in writer.tagged_fields]
    written = [(tag, field, value) for tag, field, value, default in values if value != default]
    buffer.write(encode_unsigned(len(written)))
    for tag, field, value in written:
        kio("serial.writers").write_tagged_field(buffer, tag, field.write, value)


@cache
def _entity_writer(entity_type: Any) -> EntityWriter:
    introspect, serialize = kio("serial._introspect"), kio("serial._serialize")
    flexible: bool = entity_type.__flexible__
    plain: list[FieldWriter] = []
    tagged: list[tuple[int, FieldWriter, Any]] = []
    for field in fields(entity_type):
        tag = introspect.get_field_tag(field)
        write = serialize.get_field_writer(field, flexible=flexible, is_request_header=False, is_tag=tag is not None)
        kind = introspect.classify_field(field)
        item_type = kind.type_ if isinstance(kind, introspect.EntityTupleField) else None
        if tag is None:
            plain.append(FieldWriter(field.name, write, item_type))
        else:
            default = kio("serial._implicit_defaults").get_tagged_field_default(field)
            tagged.append((tag, FieldWriter(field.name, write, None), default))
    has_arrays = any(field.item_type is not None for field in plain)
    tagged.sort(key=lambda each: each[0])
    write_whole = kio("serial").entity_writer(entity_type)
    return EntityWriter(write_whole, tuple(plain), tuple(tagged), flexible, has_arrays)
