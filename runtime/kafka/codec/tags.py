"""Requests that Kafka accepts and kio 0.6 refuses: unknown tagged fields, and booleans other than 0 and 1.

A newer client may send tagged fields that this version does not have. They must be skipped (KIP-482); kio raises a bare
KeyError. A boolean is true unless its byte is 0 (Kafka's protocol guide). A request that kio refuses for one of these
reasons is copied without it and read again. This is rare, so the code here is not optimized.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from ...log.format.varint import MAX_BYTES_32, decode_unsigned, encode_unsigned

Skip = Callable[[bytes, int], int]
"""From a buffer and the position of a value to the position behind it."""


TAGS_MAX = 1000
"""Tagged fields of one struct. Kafka's schemas have up to five, and Kafka has no limit."""


def read_uvarint(buffer: bytes, position: int) -> tuple[int, int]:
    """An unsigned 32-bit varint and the position behind it. Raises ValueError."""
    return decode_unsigned(buffer, position, MAX_BYTES_32)


def skip_tagged_fields(buffer: bytes, position: int) -> int:
    """The position behind a section of tagged fields."""
    count, position = read_uvarint(buffer, position)
    _check_tag_count(count)
    for _ in range(count):
        _tag, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        position += size
    if position > len(buffer):
        raise ValueError("cut off inside of tagged fields")
    return position


def _check_tag_count(count: int) -> None:
    if count > TAGS_MAX:
        raise ValueError(f"{count} tagged fields, expected at most {TAGS_MAX}")


def is_refused_by_kio_only(error: Exception) -> bool:
    """Whether kio refused something that Kafka accepts."""
    return isinstance(error, KeyError) or str(error).startswith("Invalid boolean")


def without_unknown_tags(entity_type: Any, buffer: bytes, position: int) -> tuple[bytes, int]:
    """The entity at ``position``, copied without the tagged fields that its class lacks, its booleans as 0 and 1.

    Returns the copy and the position behind the original. Raises ValueError (or kio's errors) where the bytes are not
    such an entity.
    """
    copier = _Copier(buffer, position)
    copier.entity(entity_type)
    return bytes(copier.copied), copier.position


class _Copier:
    """Copies an entity field by field."""

    def __init__(self, buffer: bytes, position: int) -> None:
        self.buffer = buffer
        self.position = position
        self.copied = bytearray()

    def keep_to(self, position: int) -> None:
        if position > len(self.buffer):
            raise ValueError(f"cut off at byte {len(self.buffer)}, expected at least {position}")
        self.copied += self.buffer[self.position : position]
        self.position = position

    def boolean(self) -> None:
        self.keep_to(self.position + 1)
        self.copied[-1] = min(self.copied[-1], 1)

    def entity(self, entity_type: Any) -> None:
        plain, known_tags = _layout(entity_type)
        for copy_field in plain:
            copy_field(self)
        if entity_type.__flexible__:
            self.tagged_section(known_tags)

    def array(self, flexible: bool, copy_item: Callable[[_Copier], None]) -> None:
        if flexible:
            count, behind = read_uvarint(self.buffer, self.position)
            count -= 1
        else:
            count = int.from_bytes(self.buffer[self.position : self.position + 4], "big", signed=True)
            behind = self.position + 4
        if count > len(self.buffer) - self.position:
            raise ValueError(f"an array of {count} items in {len(self.buffer) - self.position} bytes")
        self.keep_to(behind)
        for _ in range(count):
            copy_item(self)

    def tagged_section(self, known_tags: Mapping[int, Any]) -> None:
        count, self.position = read_uvarint(self.buffer, self.position)
        _check_tag_count(count)
        known: list[bytes] = []
        for _ in range(count):
            start = self.position
            tag, position = read_uvarint(self.buffer, start)
            size, position = read_uvarint(self.buffer, position)
            self.position = position + size
            if self.position > len(self.buffer):
                raise ValueError(f"tagged field {tag} of {size} bytes is cut off")
            if tag in known_tags:
                known.append(self.known_tag(start, position, known_tags[tag]))
        self.copied += encode_unsigned(len(known)) + b"".join(known)

    def known_tag(self, start: int, position: int, entity_type: Any) -> bytes:
        """The tagged field from ``start`` to here. A struct in it, at ``position``, may have unknown tags."""
        if entity_type is None:
            return self.buffer[start : self.position]
        tag, _ = read_uvarint(self.buffer, start)
        value, _end = without_unknown_tags(entity_type, self.buffer[: self.position], position)
        return encode_unsigned(tag) + encode_unsigned(len(value)) + value


@cache
def _layout(entity_type: Any) -> tuple[tuple[Callable[[_Copier], None], ...], Mapping[int, Any]]:
    """Functions that copy the plain fields of an entity, in order; and its known tags, with the struct type of each."""
    from kio.serial import _introspect as introspect

    plain, structs = [], {}
    for field in fields(entity_type):
        tag = introspect.get_field_tag(field)
        if tag is None:
            plain.append(_copy_of(field, entity_type.__flexible__))
        else:
            kind = introspect.classify_field(field)
            structs[int(tag)] = kind.type_ if isinstance(kind, introspect.EntityField) else None
    return tuple(plain), structs


def _copy_of(field: Any, flexible: bool) -> Callable[[_Copier], None]:
    from kio.serial import _introspect as introspect

    kind = introspect.classify_field(field)
    if isinstance(kind, introspect.EntityTupleField):
        return lambda copier: copier.array(flexible, lambda inner: inner.entity(kind.type_))
    if isinstance(kind, introspect.EntityField):
        return _copy_entity(kind.type_, introspect.is_optional(field))
    kafka_type = introspect.get_schema_field_type(field)
    if isinstance(kind, introspect.PrimitiveTupleField):
        copy_item = _copy_primitive(kafka_type, flexible, optional=False)
        return lambda copier: copier.array(flexible, copy_item)
    return _copy_primitive(kafka_type, flexible, introspect.is_optional(field))


def _copy_entity(entity_type: Any, optional: bool) -> Callable[[_Copier], None]:
    def copy(copier: _Copier) -> None:
        if optional:
            is_null = copier.buffer[copier.position : copier.position + 1] == b"\xff"
            copier.keep_to(copier.position + 1)
            if is_null:
                return
        copier.entity(entity_type)

    return copy


def _copy_primitive(kafka_type: str, flexible: bool, optional: bool) -> Callable[[_Copier], None]:
    from kio.serial._parse import get_reader

    if kafka_type == "bool":
        return _Copier.boolean
    read = get_reader(kafka_type, flexible, optional)

    def copy(copier: _Copier) -> None:
        _value, size = read(copier.buffer, copier.position)
        copier.keep_to(copier.position + size)

    return copy
