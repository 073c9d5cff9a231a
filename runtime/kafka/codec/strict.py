"""What must be true of a request before kio may read it: array counts, nulls and string lengths.

kio 0.6 reserves memory for as many items as an array says it has, without a look at what is left of the request: a
frame of 20 bytes that announces 2**31 items ends the whole process. It also reads null for arrays that cannot be null,
and strings that no record and no answer can hold. So requests with arrays are walked first, the way Kafka's own
readers do it, without making anything of them. Commits are, too: values of a fixed width cost no step of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

from .tags import read_uvarint, skip_tagged_fields

Walk = Callable[[bytes, int], int]
"""Takes a buffer and the position of a value; returns the position behind it, which may be behind the buffer's end."""

Reader = Callable[[Any, int], tuple[Any, int]]

STRING_BYTES_MAX = 32767  # Kafka's, in every version: older ones have two bytes for the length

WIDTHS = dict.fromkeys(("bool", "int8"), 1)
WIDTHS |= dict.fromkeys(("int16", "uint16", "error_code"), 2)
WIDTHS |= dict.fromkeys(("int32", "uint32", "timedelta_i32"), 4)
WIDTHS |= dict.fromkeys(("int64", "uint64", "float64", "timedelta_i64", "datetime_i64"), 8)
WIDTHS |= {"uuid": 16}


def strict_reader(entity_type: Any, read: Reader) -> Reader:
    """kio's reader of a request, behind a walk over the request if it has arrays, or strings that could be too long.

    The reader raises ValueError (or IndexError at the buffer's end) for what Kafka would refuse.
    """
    from kio.serial._introspect import classify_field

    if not any(classify_field(field).is_array for field in fields(entity_type)):
        return _short_reader(entity_type, read) if entity_type.__flexible__ else read
    walk = _entity(entity_type)

    def read_checked(buffer: Any, position: int) -> tuple[Any, int]:
        walk(buffer, position)
        return read(buffer, position)

    tagged = _tagged_strings(entity_type)
    return _reader_of_tagged(read_checked, tagged) if tagged else read_checked


def _reader_of_tagged(read: Reader, names: list[str]) -> Reader:
    """For the few requests with strings in tagged fields, which the walk passes over."""

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
    """For requests without arrays: of them only a string can be too long, and only where there are enough bytes."""
    walk = _entity(entity_type)

    def read_checked(buffer: Any, position: int) -> tuple[Any, int]:
        if len(buffer) - position > STRING_BYTES_MAX:
            walk(buffer, position)
        return read(buffer, position)

    return read_checked


def why(error: Exception) -> str:
    """What is wrong with a request, by what its reader raised: "index out of range" tells nobody anything."""
    if isinstance(error, IndexError) or type(error).__name__ == "BufferUnderflow":
        return "it is cut off"
    return str(error)


def walk_before(entity_type: Any, name: str) -> Walk:
    """A walk over the fields of a request before the one of this name, which has no tag."""
    steps, before = _steps(entity_type, name)

    def walk(buffer: bytes, position: int) -> int:
        for step in steps:
            position = step(buffer, position)
        return position + before

    return walk


def _entity(entity_type: Any) -> Walk:
    flexible: bool = entity_type.__flexible__
    steps, before = _steps(entity_type)

    def walk(buffer: bytes, position: int) -> int:
        for step in steps:
            position = step(buffer, position)
        position += before
        if flexible:
            return skip_tagged_fields(buffer, position) if buffer[position] else position + 1
        return position

    return walk


def _steps(entity_type: Any, end: str = "") -> tuple[list[Walk], int]:
    """The steps over an entity's fields up to the one called ``end``, and how many bytes come behind them."""
    from kio.serial._introspect import get_field_tag

    flexible: bool = entity_type.__flexible__
    steps: list[Walk] = []
    before = 0
    for field in fields(entity_type):
        if field.name == end:
            break
        if get_field_tag(field) is not None:
            continue
        width = _width(field)
        if width:
            before += width
        else:
            steps.append(_step(field, flexible, before))
            before = 0
    return steps, before


def _width(field: Any) -> int:
    """The width of a value that has always the same, else 0."""
    from kio.serial._introspect import classify_field

    kind = classify_field(field)
    return 0 if kind.is_array or is_dataclass(kind.type_) else WIDTHS.get(field.metadata["kafka_type"], 0)


def _step(field: Any, flexible: bool, before: int) -> Walk:
    """A walk over ``before`` bytes and then the field."""
    from kio.serial._introspect import classify_field

    kind = classify_field(field)
    if kind.is_array:
        nullable = type(None) in getattr(field.type, "__args__", ())
        item = _entity(kind.type_) if is_dataclass(kind.type_) else _primitive(field, flexible, 0)
        return _array(item, field.name, flexible, nullable, before)
    assert not is_dataclass(kind.type_), "no request of Kafka's has a struct that is neither tagged nor in an array"
    return _primitive(field, flexible, before)


def _array(item: Walk, name: str, flexible: bool, nullable: bool, before: int) -> Walk:
    least = -1 if nullable else 0

    def walk(buffer: bytes, position: int) -> int:
        position += before
        if not flexible:
            count, position = _int32(buffer, position)
        elif buffer[position] < 0x80:
            count = buffer[position] - 1
            position += 1
        else:
            count, position = read_uvarint(buffer, position)
            count -= 1
        if not least <= count <= len(buffer) - position:
            raise ValueError(_bad_count(name, count, least, len(buffer) - position))
        for _ in range(count):
            position = item(buffer, position)
        return position

    return walk


def _bad_count(name: str, count: int, least: int, left: int) -> str:
    if count < least:
        return f"{name} has a count of {count}, expected {least} or more"
    if left < 0:
        return f"the request ends {-left} bytes before the count of {name}"
    return f"{name} has a count of {count}, but the request ends {left} bytes later"


def _int32(buffer: bytes, position: int) -> tuple[int, int]:
    return int.from_bytes(buffer[position : position + 4], "big", signed=True), position + 4


def _primitive(field: Any, flexible: bool, before: int) -> Walk:
    kafka_type = field.metadata["kafka_type"]
    if kafka_type in WIDTHS:
        width = WIDTHS[kafka_type]
        return lambda _buffer, position: position + width
    if flexible:
        return _compact(before, STRING_BYTES_MAX if kafka_type == "string" else None)
    return _string(before) if kafka_type == "string" else _bytes(before)


def _compact(before: int, most: int | None) -> Walk:
    def walk(buffer: bytes, position: int) -> int:
        position += before
        first = buffer[position]
        if first < 0x80:
            return position + (first or 1)  # the length and one more, and 0 for null
        size, position = read_uvarint(buffer, position)
        if most is not None and size - 1 > most:
            raise ValueError(f"a string of {size - 1} bytes, expected at most {most}")
        return position + size - 1

    return walk


def _string(before: int) -> Walk:
    def walk(buffer: bytes, position: int) -> int:
        position += before
        high = buffer[position]
        if high >= 0x80:  # a negative length: null
            return position + 2
        return position + 2 + (high << 8) + buffer[position + 1]

    return walk


def _bytes(before: int) -> Walk:
    def walk(buffer: bytes, position: int) -> int:
        size, position = _int32(buffer, position + before)
        return position + size if size > 0 else position

    return walk
