"""JSON texts that are read in steps: ``json.loads`` holds the interpreter's lock until it has read everything."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from ...actors.steps import Steps

STEP_CHARS = 4096
"""What is read in one step, unless a string or a number is longer."""

DEPTH_MAX = 20
"""Of objects and arrays with longer texts."""

CLOSING = {"{": "}", "[": "]"}
_ENDS_OF_ITEMS = ("}},", "]],", "},", "],", ",")
_TOKENS = re.compile(r'"(?:[^"\\]++|\\.)*+"|[][{},"]', re.DOTALL)
_WHITE_SPACE = re.compile(r"[ \t\n\r]*")
_scan = json.JSONDecoder().raw_decode


def read_json(text: str) -> Steps[Any]:
    """The same as ``json.loads``; a comma behind the last item of a long array is not noticed. Raises ValueError.

    >>> from callboard.actors.steps import run_steps
    >>> run_steps(read_json('{"a": [1, 2], "b": null}'))
    {'a': [1, 2], 'b': None}
    """
    if len(text) <= STEP_CHARS:
        return json.loads(text)
    value, end = yield from _value(text, _skip(text, 0), 0)
    if _skip(text, end) != len(text):
        _refuse("Extra data", text, end)
    return value


def _skip(text: str, position: int) -> int:
    """The position after white space."""
    found = _WHITE_SPACE.match(text, position)
    return found.end() if found else position


def _value(text: str, position: int, depth: int) -> Steps[tuple[Any, int]]:
    """The value at a position, and where it ends."""
    if text[position : position + 1] in CLOSING:
        return (yield from _container(text, position, depth))
    return _scan(text, position)


def _container(text: str, position: int, depth: int) -> Steps[tuple[Any, int]]:
    """An object or an array. As many of its items as one step may have are read by one call."""
    if depth > DEPTH_MAX:
        _refuse("Nested too deeply", text, position)
    opening = text[position]
    container: Any = {} if opening == "{" else []
    add = container.update if opening == "{" else container.extend
    position += 1
    is_closed = False
    while not is_closed:
        found = _items(text, position, opening)
        if found is None:
            yield
            position = yield from _add_item(text, position, container, depth)
            is_closed = text[position] == CLOSING[opening]
            position += 1
        else:
            items, position, is_closed = found
            add(items)
        yield
    return container, position


def _items(text: str, position: int, opening: str) -> tuple[Any, int, bool] | None:
    """Items of a container, the position behind them, and whether the container ends there.

    None if the first item is longer than a step. First it is tried where items probably end. A text that ends within a
    string or an inner container cannot be read, so what can be read are whole items.
    """
    window = text[position : position + STEP_CHARS]
    for end_of_item in _ENDS_OF_ITEMS:
        length = window.rfind(end_of_item) + len(end_of_item) - 1
        if length >= len(end_of_item) - 1:
            piece = opening + window[:length] + CLOSING[opening]
            try:
                items, end = _scan(piece, 0)
            except ValueError:
                continue
            if end < len(piece):  # the container's own end
                return items, position + end - 1, True
            return items, position + length + 1, False
    whole = _length_of_items(window)
    if whole is None:
        return None
    is_closed = window[whole] != ","
    items, _ = _scan(opening + window[:whole] + (window[whole] if is_closed else CLOSING[opening]), 0)
    return items, position + whole + 1, is_closed


def _length_of_items(window: str) -> int | None:
    """The position of the container's end, or else of the last comma between its items. None if there is none."""
    depth, comma = 0, None
    for token in _TOKENS.finditer(window):
        match window[token.start()] if token.end() == token.start() + 1 else "":
            case "[" | "{":
                depth += 1
            case "]" | "}":
                if not depth:
                    return token.start()
                depth -= 1
            case "," if not depth:
                comma = token.start()
            case '"':
                break  # a string that does not end here
    return comma


def _add_item(text: str, position: int, container: Any, depth: int) -> Steps[int]:
    """Read one item. Returns the position of the comma or bracket behind it."""
    position = _skip(text, position)
    if isinstance(container, list):
        value, position = yield from _value(text, position, depth + 1)
        container.append(value)
    else:
        if text[position : position + 1] != '"':
            _refuse("Expecting property name enclosed in double quotes", text, position)
        name, position = _scan(text, position)
        position = _skip(text, position)
        if text[position : position + 1] != ":":
            _refuse("Expecting ':' delimiter", text, position)
        container[name], position = yield from _value(text, _skip(text, position + 1), depth + 1)
    position = _skip(text, position)
    if text[position : position + 1] not in (",", "]" if isinstance(container, list) else "}"):
        _refuse("Expecting ',' delimiter", text, position)
    return position


def _refuse(reason: str, text: str, position: int) -> NoReturn:
    raise json.JSONDecodeError(reason, text, position)
