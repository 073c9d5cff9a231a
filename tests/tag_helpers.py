"""Requests with tagged fields that this version does not know (KIP-482)."""

from __future__ import annotations

import io
from dataclasses import MISSING, fields, is_dataclass
from random import Random
from typing import Any

from kio.serial import _introspect as introspect
from kio.serial._serialize import get_field_writer

UNKNOWN_TAGS = (5, 99, 127, 128, 20_000, 2**31 - 1)


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def section(tags: dict[int, bytes]) -> bytes:
    """Encode tagged fields in the order of their tags, like Kafka."""
    return uvarint(len(tags)) + b"".join(
        uvarint(tag) + uvarint(len(value)) + value for tag, value in sorted(tags.items())
    )


def with_unknown_tags(entity: Any, chance: Random) -> bytes:
    """Encode an entity like a newer client: each section of tagged fields has some unknown ones."""
    body, tags = bytearray(), random_tags(chance)
    for field in fields(entity):
        value, tag = getattr(entity, field.name), introspect.get_field_tag(field)
        encoded = encoded_field(field, value, tag is not None, chance)
        if tag is None:
            body += encoded
        elif value != (None if field.default is MISSING else field.default):
            tags[int(tag)] = encoded
    return bytes(body) + section(tags)


def encoded_field(field: Any, value: Any, is_tagged: bool, chance: Random) -> bytes:
    if is_dataclass(value):
        return with_unknown_tags(value, chance)
    kind = introspect.classify_field(field)
    if value is not None and kind.is_array and is_dataclass(kind.type_):
        return uvarint(len(value) + 1) + b"".join(with_unknown_tags(item, chance) for item in value)
    buffer = io.BytesIO()
    if not (is_tagged and value is None):
        get_field_writer(field, True, False, is_tagged)(buffer, value)
    return buffer.getvalue()


def random_tags(chance: Random) -> dict[int, bytes]:
    count = chance.choice((0, 1, 1, 2, 3))
    return {tag: chance.randbytes(chance.choice((0, 1, 7, 130))) for tag in chance.sample(UNKNOWN_TAGS, count)}
