"""JSON texts in parts: ``json.dumps`` holds the interpreter's lock until it has encoded everything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ...actors.steps import pieces, run_steps, sorted_in_steps

ITEMS_PER_PART = 64
"""Items of a large array or object that are encoded by one call."""


def json_parts(value: Any, encoder: json.JSONEncoder) -> Iterator[str]:
    """The parts of the text that ``encoder`` makes of a value. Names are strings.

    >>> "".join(json_parts({"b": list(range(100)), "a": {}}, json.JSONEncoder(sort_keys=True))) == json.dumps(
    ...     {"a": {}, "b": list(range(100))}
    ... )
    True
    """
    if isinstance(value, dict):
        yield from _object_parts(value, encoder)
    elif isinstance(value, list):
        yield from _array_parts(value, encoder)
    else:
        yield encoder.encode(value)


def _object_parts(value: dict[str, Any], encoder: json.JSONEncoder) -> Iterator[str]:
    names = run_steps(sorted_in_steps(value)) if encoder.sort_keys else value
    separator = ""
    yield "{"
    if len(value) > ITEMS_PER_PART:
        for piece in pieces(names, ITEMS_PER_PART):
            yield separator + encoder.encode({name: value[name] for name in piece})[1:-1]
            separator = encoder.item_separator
    else:
        for name in names:
            yield separator + encoder.encode(name) + encoder.key_separator
            yield from json_parts(value[name], encoder)
            separator = encoder.item_separator
    yield "}"


def _array_parts(value: list[Any], encoder: json.JSONEncoder) -> Iterator[str]:
    separator = ""
    yield "["
    if len(value) > ITEMS_PER_PART:
        for piece in pieces(value, ITEMS_PER_PART):
            yield separator + encoder.encode(piece)[1:-1]
            separator = encoder.item_separator
    else:
        for each in value:
            yield separator
            yield from json_parts(each, encoder)
            separator = encoder.item_separator
    yield "]"
