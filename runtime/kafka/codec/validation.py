"""Validation of a request before kio decodes it: array counts, nulls and string lengths.

kio 0.6 allocates memory for the item count of an array without comparing it with the size of the request: a frame of 20
bytes with a count of 2**31 kills the process. It also accepts null for arrays that cannot be null, and strings that are
too long for records and responses. Therefore requests with arrays are traversed first, with the rules of Kafka's own
decoders. Fields of fixed width are skipped together, so the traversal is fast enough for commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from itertools import takewhile
from typing import Any

from .tags import read_uvarint, skip_tagged_fields

SkipValue = Callable[[bytes, int], int]
"""Takes a buffer and the position of a value; returns the position after it, which may exceed the buffer."""

Reader = Callable[[Any, int], tuple[Any, int]]

STRING_BYTES_MAX = 32767  # Kafka's limit in every version

WIDTHS = dict.fromkeys(("bool", "int8"), 1)
WIDTHS |= dict.fromkeys(("int16", "uint16", "error_code"), 2)
WIDTHS |= dict.fromkeys(("int32", "uint32", "timedelta_i32"), 4)
WIDTHS |= dict.fromkeys(("int64", "uint64", "float64", "timedelta_i64", "datetime_i64"), 8)
WIDTHS |= {"uuid": 16}


def validating_reader(entity_type: Any, read: Reader) -> Reader:
    """Return a reader that validates a request that has arrays or strings, then calls kio's reader.

    It raises ValueError (or IndexError at the end of the buffer) for requests that Kafka refuses.
    """
    from kio.serial._introspect import classify_field

    if not any(classify_field(field).is_array for field in fields(entity_type)):
        return _short_reader(entity_type, read) if entity_type.__flexible__ else read
    skip = _entity_skipper(entity_type)

    def read_checked(buffer: Any, position: int) -> tuple[Any, int]:
        skip(buffer, position)
        return read(buffer, position)

    tagged = _tagged_strings(entity_type)
    return _tagged_string_reader(read_checked, tagged) if tagged else read_checked


def _tagged_string_reader(read: Reader, names: list[str]) -> Reader:
    """For the few requests with strings in tagged fields, which the traversal does not check."""

    def read_checked(buffer: Any, position: int) -> tuple[Any, int]:
        entity, size = read(buffer, position)
        for name in names:
            _check_length(len((getattr(entity, name) or "").encode()))
        return entity, size

    return read_checked


def _tagged_strings(entity_type: Any) -> list[str]:
    from kio.serial._introspect import get_field_tag

    tagged = (field for field in fields(entity_type) if get_field_tag(field) is not None)
    return [field.name for field in tagged if field.metadata.get("kafka_type") == "string"]


def _check_length(size: int) -> None:
    if size > STRING_BYTES_MAX:
        raise ValueError(f"a string of {size} bytes, expected at most {STRING_BYTES_MAX}")


def _short_reader(entity_type: Any, read: Reader) -> Reader:
    """For requests without arrays: only a string can be too long, and only in a long enough request."""
    skip = _entity_skipper(entity_type)

    def read_checked(buffer: Any, position: int) -> tuple[Any, int]:
        if len(buffer) - position > STRING_BYTES_MAX:
            skip(buffer, position)
        return read(buffer, position)

    return read_checked


def describe_decode_error(error: Exception) -> str:
    """Describe what is wrong with a request: "it is cut off" instead of "index out of range"."""
    if isinstance(error, IndexError) or type(error).__name__ == "BufferUnderflow":
        return "it is cut off"
    return str(error)


def skip_before_field(entity_type: Any, name: str) -> SkipValue:
    """Return a function that skips the fields of a request before the named field, which has no tag."""
    before = takewhile(lambda field: field.name != name, fields(entity_type))
    return fields_skipper(before, entity_type.__flexible__, skips_tags=False)


def _entity_skipper(entity_type: Any) -> SkipValue:
    flexible: bool = entity_type.__flexible__
    return fields_skipper(fields(entity_type), flexible, skips_tags=flexible)


def fields_skipper(some_fields: Iterable[Any], flexible: bool, *, skips_tags: bool) -> SkipValue:
    """Return a function that skips fields that follow each other, and with ``skips_tags`` the tagged ones behind."""
    skippers, fixed_bytes = _field_skippers(some_fields, flexible)

    def skip(buffer: bytes, position: int) -> int:
        for skip_field in skippers:
            position = skip_field(buffer, position)
        position += fixed_bytes
        if skips_tags:
            return skip_tagged_fields(buffer, position) if buffer[position] else position + 1
        return position

    return skip


def _field_skippers(some_fields: Iterable[Any], flexible: bool) -> tuple[list[SkipValue], int]:
    """Return functions that skip the fields without tags, and the number of bytes to skip after them."""
    from kio.serial._introspect import get_field_tag

    skippers: list[SkipValue] = []
    fixed_bytes = 0
    for field in some_fields:
        if get_field_tag(field) is not None:
            continue
        width = _width(field)
        if width:
            fixed_bytes += width
        else:
            skippers.append(_field_skipper(field, flexible, fixed_bytes))
            fixed_bytes = 0
    return skippers, fixed_bytes


def _width(field: Any) -> int:
    """Return the width of a field of fixed width, else 0."""
    from kio.serial._introspect import classify_field

    field_class = classify_field(field)
    return 0 if field_class.is_array or is_dataclass(field_class.type_) else WIDTHS.get(field.metadata["kafka_type"], 0)


def _field_skipper(field: Any, flexible: bool, fixed_bytes: int) -> SkipValue:
    """Return a function that skips ``fixed_bytes`` bytes and then the field."""
    from kio.serial._introspect import classify_field

    field_class = classify_field(field)
    type_ = field_class.type_
    if field_class.is_array:
        skip_item = _entity_skipper(type_) if is_dataclass(type_) else primitive_skipper(field, flexible)
        return _array_skipper(skip_item, field.name, flexible, _is_nullable(field), fixed_bytes)
    assert not is_dataclass(type_), "no request of Kafka has a struct that is neither tagged nor in an array"
    return primitive_skipper(field, flexible, fixed_bytes)


def _array_skipper(skip_item: SkipValue, name: str, flexible: bool, nullable: bool, fixed_bytes: int) -> SkipValue:
    min_count = -1 if nullable else 0

    def skip(buffer: bytes, position: int) -> int:
        position += fixed_bytes
        if not flexible:
            count, position = _int32(buffer, position)
        elif buffer[position] < 0x80:
            count = buffer[position] - 1
            position += 1
        else:
            count, position = read_uvarint(buffer, position)
            count -= 1
        if not min_count <= count <= len(buffer) - position:
            raise ValueError(_bad_count(name, count, min_count, len(buffer) - position))
        for _ in range(count):
            position = skip_item(buffer, position)
        return position

    return skip


def array_counter(field: Any, flexible: bool) -> Callable[[bytes, int], tuple[int, int]]:
    """Return a function that reads the count of an array, -1 for null; and the position behind it."""
    min_count = -1 if _is_nullable(field) else 0

    def read_count(buffer: bytes, position: int) -> tuple[int, int]:
        if flexible:
            count, position = read_uvarint(buffer, position)
            count -= 1
        else:
            count, position = _int32(buffer, position)
        if not min_count <= count <= len(buffer) - position:
            raise ValueError(_bad_count(field.name, count, min_count, len(buffer) - position))
        return count, position

    return read_count


def _is_nullable(field: Any) -> bool:
    return type(None) in getattr(field.type, "__args__", ())


def _bad_count(name: str, count: int, min_count: int, remaining: int) -> str:
    if count < min_count:
        return f"{name} has a count of {count}, expected {min_count} or more"
    if remaining < 0:
        return f"the request ends {-remaining} bytes before the count of {name}"
    return f"{name} has a count of {count}, but the request ends {remaining} bytes later"


def _int32(buffer: bytes, position: int) -> tuple[int, int]:
    return int.from_bytes(buffer[position : position + 4], "big", signed=True), position + 4


def primitive_skipper(field: Any, flexible: bool, fixed_bytes: int = 0) -> SkipValue:
    """Return a function that skips ``fixed_bytes`` bytes, then a value of the type of a field, or of its items."""
    kafka_type = field.metadata["kafka_type"]
    if kafka_type in WIDTHS:
        width = WIDTHS[kafka_type]
        return lambda _buffer, position: position + width
    if flexible:
        return _compact_skipper(fixed_bytes, STRING_BYTES_MAX if kafka_type == "string" else None)
    return _string_skipper(fixed_bytes) if kafka_type == "string" else _bytes_skipper(fixed_bytes)


def _compact_skipper(fixed_bytes: int, max_size: int | None) -> SkipValue:
    def skip(buffer: bytes, position: int) -> int:
        position += fixed_bytes
        first = buffer[position]
        if first < 0x80:
            return position + (first or 1)  # the length plus one; 0 is null
        size, position = read_uvarint(buffer, position)
        if max_size is not None and size - 1 > max_size:
            raise ValueError(f"a string of {size - 1} bytes, expected at most {max_size}")
        return position + size - 1

    return skip


def _string_skipper(fixed_bytes: int) -> SkipValue:
    def skip(buffer: bytes, position: int) -> int:
        position += fixed_bytes
        high = buffer[position]
        if high >= 0x80:  # a negative length: null
            return position + 2
        return position + 2 + (high << 8) + buffer[position + 1]

    return skip


def _bytes_skipper(fixed_bytes: int) -> SkipValue:
    def skip(buffer: bytes, position: int) -> int:
        size, position = _int32(buffer, position + fixed_bytes)
        return position + size if size > 0 else position

    return skip
