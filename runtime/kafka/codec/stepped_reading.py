"""Reads large requests in steps: their items one by one, so that other work can run in between.

The number of items is checked before they are read: the count of each array, and the sum of all counts. An entity that
has arrays is read in two parts. Its other fields are read by kio from a copy of its bytes in which the arrays are
empty; the items of the arrays are read after each other. Entities without arrays are read by kio as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from ....actors.steps import Steps
from .kio import kio
from .tags import is_refused_by_kio_only, without_unknown_tags
from .validation import Reader, SkipValue, array_counter, fields_skipper, primitive_skipper, validating_reader

ITEMS_A_STEP = 32
LARGE_ITEM_BYTES = 16 * 1024
"""An item of this size is a step of its own."""

EntityReader = Callable[[bytes, int, "ItemCount"], Steps[tuple[Any, int]]]
"""Reads an entity at a position of a buffer in steps. The result: the entity and the position behind it."""

ItemsReader = Callable[[bytes, int, int, "ItemCount"], Steps[tuple[tuple[Any, ...], int]]]
"""Reads the items of an array, whose number is the third argument."""


class TooManyItems(Exception):
    """A request has more items than its limit."""


class ItemCount:
    """Counts the items of one request, and those that are read."""

    __slots__ = ("_announced", "_items_max", "read")

    def __init__(self, items_max: int) -> None:
        self._items_max = items_max
        self._announced = 0
        self.read = 0

    def announce(self, name: str, count: int) -> None:
        """Count an array before its items are read. Raises TooManyItems."""
        self._announced += count
        if self._announced > self._items_max:
            raise TooManyItems(f"{self._announced} items up to {name}, expected at most {self._items_max}")


class _Array(NamedTuple):
    """An array field. ``skip_before``: the plain fields between it and the previous array."""

    name: str
    skip_before: SkipValue
    read_count: Callable[[bytes, int], tuple[int, int]]
    read_items: ItemsReader


def stepped_reader(entity_type: Any, read_plain: Reader) -> EntityReader:
    """Return a reader of a class of kio's. ``read_plain``: reads such an entity at once."""
    arrays, skip_rest = _layout(entity_type)
    empty = b"\x01" if entity_type.__flexible__ else bytes(4)

    def read(buffer: bytes, position: int, count: ItemCount) -> Steps[tuple[Any, int]]:
        values: dict[str, tuple[Any, ...]] = {}
        plain: list[bytes] = []
        start = position
        for array in arrays:
            position = array.skip_before(buffer, position)
            size, items_start = array.read_count(buffer, position)
            if size <= 0:
                position = items_start  # an empty array and null stay as they are
                continue
            count.announce(array.name, size)
            plain += (buffer[start:position], empty)
            values[array.name], position = yield from array.read_items(buffer, items_start, size, count)
            start = position
        position = skip_rest(buffer, position)
        if position > len(buffer):
            raise IndexError
        plain.append(buffer[start:position])
        entity, _size = read_tolerantly(entity_type, read_plain, b"".join(plain), 0)
        return (replace(entity, **values) if values else entity), position

    return read


def read_tolerantly(entity_type: Any, read: Reader, buffer: bytes, position: int) -> tuple[Any, int]:
    """Read an entity, also if Kafka accepts it and kio does not. Returns it and its size."""
    try:
        return read(buffer, position)
    except (KeyError, ValueError, kio("serial.errors").SerialError) as error:
        if not is_refused_by_kio_only(error):
            raise
    copy, end = without_unknown_tags(entity_type, buffer, position)
    return read(copy, 0)[0], end - position


def _layout(entity_type: Any) -> tuple[list[_Array], SkipValue]:
    """The arrays of an entity, and a function that skips the fields after the last one."""
    from kio.serial._introspect import classify_field, get_field_tag

    flexible: bool = entity_type.__flexible__
    arrays: list[_Array] = []
    plain: list[Any] = []
    for field in fields(entity_type):
        if get_field_tag(field) is not None:
            continue
        if not classify_field(field).is_array:
            plain.append(field)
            continue
        skip_before = fields_skipper(plain, flexible, skips_tags=False)
        arrays.append(_Array(field.name, skip_before, array_counter(field, flexible), _items_reader(field, flexible)))
        plain = []
    return arrays, fields_skipper(plain, flexible, skips_tags=flexible)


def _items_reader(field: Any, flexible: bool) -> ItemsReader:
    from kio.serial._introspect import classify_field

    item_type = classify_field(field).type_
    if not is_dataclass(item_type):
        return _plain_items_reader(_primitive_reader(field, flexible))
    if any(classify_field(each).is_array for each in fields(item_type)):
        return _nested_items_reader(_nested_reader(item_type))
    read = _plain_reader(item_type)
    return _plain_items_reader(lambda buffer, position: read_tolerantly(item_type, read, buffer, position))


def _plain_items_reader(read: Reader) -> ItemsReader:
    def read_items(buffer: bytes, position: int, size: int, count: ItemCount) -> Steps[tuple[tuple[Any, ...], int]]:
        items = []
        for _ in range(size):
            item, item_bytes = read(buffer, position)
            items.append(item)
            position += item_bytes
            count.read += 1
            if item_bytes >= LARGE_ITEM_BYTES or not count.read % ITEMS_A_STEP:
                yield
        return tuple(items), position

    return read_items


def _nested_items_reader(read: EntityReader) -> ItemsReader:
    def read_items(buffer: bytes, position: int, size: int, count: ItemCount) -> Steps[tuple[tuple[Any, ...], int]]:
        items = []
        for _ in range(size):
            item, position = yield from read(buffer, position, count)
            items.append(item)
            count.read += 1
            if not count.read % ITEMS_A_STEP:
                yield
        return tuple(items), position

    return read_items


@cache
def _plain_reader(entity_type: Any) -> Reader:
    return validating_reader(entity_type, kio("serial").entity_reader(entity_type))


@cache
def _nested_reader(entity_type: Any) -> EntityReader:
    return stepped_reader(entity_type, _plain_reader(entity_type))


def _primitive_reader(field: Any, flexible: bool) -> Reader:
    """A reader of the items of an array of strings or numbers."""
    from kio.serial._introspect import get_schema_field_type
    from kio.serial._parse import get_reader

    read = get_reader(get_schema_field_type(field), flexible, False)
    check = primitive_skipper(field, flexible)

    def read_checked(buffer: bytes, position: int) -> tuple[Any, int]:
        check(buffer, position)
        value_and_size: tuple[Any, int] = read(buffer, position)
        return value_and_size

    return read_checked
