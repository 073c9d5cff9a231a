"""Messages to groups and their replies as JSON, for other nodes of a cluster. Pure.

A named tuple is an array of its fields in their order. A reader ignores fields that it does not know at the end, and
takes the defaults for those that are missing there, so nodes of two versions understand each other as long as fields
are only added at the end.
"""

from __future__ import annotations

import json
import types
import typing
from base64 import b64decode, b64encode
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any, Final

from ....actors.steps import Steps, pieces, run_steps
from ...common.json_steps import read_json

Read = Callable[[Any], Any]

PLAIN: Final = (str, int, bool, float, types.NoneType)


class BadMessage(ValueError):
    """The bytes are not a message of this class."""


def write_message(value: Any) -> bytes:
    return run_steps(write_in_steps(value))


def write_in_steps(value: Any) -> Steps[bytes]:
    """The same for a message that may be long."""
    return (yield from _write(value)).encode()


def _write(value: Any) -> Steps[str]:
    if not isinstance(value, tuple):
        return json.dumps(_plain(value))
    texts: list[str] = []
    for piece in pieces(value):
        for item in piece:
            is_nested = isinstance(item, tuple) and any(isinstance(part, tuple) for part in item)
            texts.append((yield from _write(item)) if is_nested else json.dumps(_plain(item)))
        yield
    return f"[{','.join(texts)}]"


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, Enum):
        return value.value
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def read_message(cls: Any, data: bytes) -> Any:
    """Raises BadMessage."""
    try:
        return _reader(cls)(json.loads(data))
    except (ValueError, TypeError, RecursionError) as error:
        raise _bad(cls, data, error) from error


def read_in_steps(cls: Any, data: bytes) -> Steps[Any]:
    """The same for a message with long arrays, such as ``write_in_steps`` makes. Raises BadMessage."""
    try:
        value = yield from read_json(data.decode())
        return (yield from _read(cls, value))
    except (ValueError, TypeError, RecursionError) as error:
        raise _bad(cls, data, error) from error


def _read(hint: Any, value: Any) -> Steps[Any]:
    """A value of this type from JSON."""
    if not _has_arrays(hint):
        return _reader(hint)(value)
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        [some] = [argument for argument in arguments if argument is not types.NoneType]
        return None if value is None else (yield from _read(some, value))
    if arguments[-1:] == (Ellipsis,):
        return (yield from _read_items(arguments[0], value))
    is_named = hasattr(hint, "_fields")
    fields: list[Any] = []
    for own, each in zip(_field_hints(hint) if is_named else arguments, _array(value), strict=not is_named):
        fields.append((yield from _read(own, each)))
    return hint(*fields) if is_named else tuple(fields)


def _read_items(hint: Any, values: Any) -> Steps[tuple[Any, ...]]:
    items: list[Any] = []
    read = None if _has_arrays(hint) else _reader(hint)
    for piece in pieces(_array(values)):
        if read is not None:
            items += map(read, piece)
        else:
            for each in piece:
                items.append((yield from _read(hint, each)))
        yield
    return tuple(items)


@cache
def _has_arrays(hint: Any) -> bool:
    """Whether a value of this type may be long."""
    arguments = typing.get_args(hint)
    return arguments[-1:] == (Ellipsis,) or any(
        map(_has_arrays, _field_hints(hint) if hasattr(hint, "_fields") else arguments)
    )


@cache
def _field_hints(cls: Any) -> tuple[Any, ...]:
    """The types of the fields of a named tuple."""
    hints = typing.get_type_hints(cls)
    return tuple(hints[name] for name in cls._fields)


def _bad(cls: Any, data: bytes, error: Exception) -> BadMessage:
    return BadMessage(f"expected {cls.__name__} as JSON, not {data[:100]!r}: {error}")


@cache
def _reader(hint: Any) -> Read:
    """The function that makes a value of this type from JSON. It raises ValueError or TypeError."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        [some] = [_reader(argument) for argument in arguments if argument is not types.NoneType]
        return lambda value: None if value is None else some(value)
    if origin is typing.Literal:
        return _one_of(arguments)
    if origin is tuple and arguments[-1] is Ellipsis:
        return _items(_reader(arguments[0]))
    if origin is tuple:
        return _fixed(tuple(map(_reader, arguments)))
    if hint is bytes:
        return lambda value: b64decode(value, validate=True)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint
    if hasattr(hint, "_fields"):
        return _named_tuple(hint)
    return _typed(hint)


def _typed(hint: Any) -> Read:
    """Of a plain value. ``NewType`` and the like stand for what they are made of."""
    expected = getattr(hint, "__supertype__", hint)
    if expected not in PLAIN:
        raise TypeError(f"values of the type {hint} are not exchanged")

    def read(value: Any) -> Any:
        if type(value) is not expected:
            raise TypeError(f"expected {expected.__name__}, not {value!r:.100}")
        return value

    return read


def _one_of(allowed: tuple[Any, ...]) -> Read:
    def read(value: Any) -> Any:
        if value not in allowed:
            raise ValueError(f"expected one of {allowed}, not {value!r:.100}")
        return value

    return read


def _items(read: Read) -> Read:
    return lambda values: tuple(map(read, _array(values)))


def _fixed(reads: tuple[Read, ...]) -> Read:
    return lambda values: tuple(read(value) for read, value in zip(reads, _array(values), strict=True))


def _named_tuple(cls: Any) -> Read:
    reads = list(map(_reader, _field_hints(cls)))
    return lambda values: cls(*(read(value) for read, value in zip(reads, _array(values), strict=False)))


def _array(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"expected an array, not {value!r:.100}")
    return value
