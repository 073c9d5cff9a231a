"""JSON texts that are read in steps: the values are those of ``json.loads``, and no step reads much."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.steps import run_steps
from callboard.runtime.common import json_steps
from callboard.runtime.common.json_steps import read_json

TEXTS = st.text(st.sampled_from('ab,:[]{}"\\\n é'), max_size=12)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=6) | st.dictionaries(TEXTS, inner, max_size=6), max_leaves=40
)
ROW = ["ALLOW", "READ", "GROUP", "LITERAL", "g],{}", "User:a", "*"]


def read(text: str, step_chars: int) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_steps, "STEP_CHARS", step_chars)
        return run_steps(read_json(text))


@given(VALUES, st.integers(1, 40), st.sampled_from([None, 1]))
def test_value_is_that_of_json(value: Any, step_chars: int, indent: int | None) -> None:
    assert read(json.dumps(value, indent=indent), step_chars) == value


@given(VALUES.map(json.dumps), st.data())
def test_damaged_text_is_refused_or_has_the_value_of_json(text: str, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:position] + data.draw(st.sampled_from(["", "]", "}", '"', "1"])) + text[position + 1 :]
    try:
        expected = json.loads(damaged)
    except ValueError as error:
        if str(error).startswith(("Expecting value", "Expecting property name", "Illegal trailing comma")):
            return  # perhaps a comma behind the last item
        with pytest.raises(ValueError):
            read(damaged, 8)
    else:
        assert read(damaged, 8) == expected


@pytest.mark.parametrize(
    "text", ["[1, 2", '{"name" 1}', "{1: 2}", '{"name": }', "[1 2]", "[1] 2", "nothing", '["unterminated', '{"a": 1]']
)
def test_damaged_text_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="line 1 column"):
        read(text, 4)


def test_containers_that_are_nested_too_deeply_are_an_error() -> None:
    for depth in (30, 100_000):
        with pytest.raises((ValueError, RecursionError)):
            read("[" * depth + "1" * 50, 8)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param([ROW] * 5000, id="rows"),
        pytest.param({"security": {"sections": {"acls": {"acls": [ROW] * 5000}, "users": {}}}}, id="a row far inside"),
        pytest.param({f"topic {n}": ["id", n, 0, {"a": "b"}] for n in range(5000)}, id="topics"),
        pytest.param(
            [{"a": {"x": 1}, "b": {"x": 1}, "c": [1], "d": "}}],["}] * 2000, id="items whose ends are hard to see"
        ),
        pytest.param([1, -2.5, None, "[", True] * 5000, id="scalars"),
        pytest.param({f"user {n}": {"A": {"s": "x" * 40}, "B": {"s": "x" * 40}} for n in range(2000)}, id="users"),
    ],
)
def test_no_step_reads_much(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    chars_read = [0]  # in each step
    scan = json_steps._scan

    def count(text: str, position: int) -> Any:
        found = scan(text, position)
        chars_read[-1] += found[1] - position
        return found

    monkeypatch.setattr(json_steps, "_scan", count)
    text = json.dumps(value, separators=(",", ":"))
    steps = read_json(text)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            assert end.value == value
            break
        chars_read.append(0)
    assert max(chars_read) < 1.1 * json_steps.STEP_CHARS
    assert len(chars_read) < 4 * len(text) / json_steps.STEP_CHARS, "each step reads as much as it may"
