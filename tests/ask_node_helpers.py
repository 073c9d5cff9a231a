"""Requests of AskNode: random messages of each subject, with long arrays, from clients and from nodes."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from random import Random
from typing import Any

from harness import WORDS, framed
from peers.wire import encode

from callboard.runtime.kafka.codec.message_json import write_message
from callboard.runtime.kafka.codec.own_api import ASK_NODE
from callboard.runtime.kafka.node_subjects import SUBJECTS
from callboard.runtime.kafka.peer_gate import Purpose, Sender

NODE = f"{Purpose.QUESTIONS}/a-1/1/1/proof"
CLIENT = "callboard-test"

OF_CLIENTS = [name for name, subject in SUBJECTS.items() if subject.checks]

Rebuild = Callable[[Any], Any]


class OpenGate:
    """Takes all who say so for nodes."""

    def admit(self, *_arguments: object) -> Sender | None:
        return Sender("a-1", 1, 1)

    def accepts(self, *_arguments: object) -> bool:
        return False


def question(message: Any, client_id: str = NODE, **values: Any) -> bytes:
    """The frame of a request."""
    subject, content = type(message).__name__, write_message(message)
    given = {"subject": subject, "group_id": message.group_id, "content": content, "asked_by": b"", **values}
    return framed(encode(ASK_NODE, 0, given, client_id=client_id))


def random_message(hint: Any, random: Random) -> Any:
    """A value of a type, as messages have them."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return random_message(random.choice(arguments), random)
    if origin is typing.Literal:
        return random.choice(arguments)
    if origin is tuple and arguments[-1] is Ellipsis:
        return tuple(random_message(arguments[0], random) for _ in range(random.choice((0, 1, 2))))
    if origin is tuple:
        return tuple(random_message(argument, random) for argument in arguments)
    if hasattr(hint, "_fields"):
        hints = typing.get_type_hints(hint)
        return hint(*(random_message(hints[name], random) for name in hint._fields))
    return random_scalar(getattr(hint, "__supertype__", hint), random)


def random_scalar(kind: Any, random: Random) -> Any:
    if issubclass(kind, Enum):
        return random.choice(list(kind))
    values: dict[Any, Callable[[], Any]] = {
        str: lambda: random.choice(WORDS),
        bool: lambda: random.random() < 0.5,
        int: lambda: random.choice((0, 1, 2, -1, 2**31 - 1)),
        float: random.random,
        bytes: lambda: random.randbytes(random.choice((0, 2, 70))),
        types.NoneType: lambda: None,
    }
    return values[kind]()


def arrays(hint: Any, value: Any, name: str = "") -> Iterator[tuple[str, Any, Rebuild]]:
    """The arrays of a message and of one item in each: name, type of an item, and what puts another array there."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        for argument in arguments:
            yield from arrays(argument, random_message(argument, Random(4)), name)
    elif origin is tuple and arguments[-1] is Ellipsis:
        yield name, arguments[0], lambda items: items
        for inner, item_hint, rebuild in arrays(arguments[0], random_message(arguments[0], Random(4)), f"{name} item"):
            yield inner, item_hint, partial(_in_array, rebuild)
    elif origin is tuple or hasattr(hint, "_fields"):
        hints = arguments if origin is tuple else [typing.get_type_hints(hint)[field] for field in hint._fields]
        names = map(str, range(len(hints))) if origin is tuple else hint._fields
        for position, (own, field) in enumerate(zip(hints, names, strict=True)):
            for inner, item_hint, rebuild in arrays(own, value[position], f"{name} {field}".strip()):
                yield inner, item_hint, partial(_in_tuple, value, position, rebuild)


def _in_array(rebuild: Rebuild, items: Any) -> Any:
    return (rebuild(items),)


def _in_tuple(value: Any, position: int, rebuild: Rebuild, items: Any) -> Any:
    changed = (*value[:position], rebuild(items), *value[position + 1 :])
    return type(value)(*changed) if hasattr(value, "_fields") else changed


def numbered(item: Any, number: int) -> Any:
    """The item with a number in its first text or number."""
    if isinstance(item, tuple) and item:
        changed = (numbered(item[0], number), *item[1:])
        return type(item)(*changed) if hasattr(item, "_fields") else changed
    if isinstance(item, str):
        return f"n{number}"
    return number if type(item) is int else item


def with_long_arrays(subject: str, size: int) -> Iterator[tuple[str, Any]]:
    """For each array of a message: the same item so many times, and different ones."""
    cls = SUBJECTS[subject].message
    message = random_message(cls, Random(3))._replace(group_id="g")
    for name, hint, rebuild in arrays(cls, message):
        item = random_message(hint, Random(5))
        yield f"{name} equal", rebuild((item,) * size)
        yield f"{name} different", rebuild(tuple(numbered(item, number) for number in range(size)))
