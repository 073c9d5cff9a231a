"""Files of properties are read as Java reads them (the rules are those of ``java.util.Properties.load``)."""

from __future__ import annotations

import pytest

from callboard.runtime.settings.properties import parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a:1\nb : 2\nc 3\nd\t=\t4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("a==1\nb=:2\nc", {"a": "=1", "b": ":2", "c": ""}),
        (r"a\:b\=c\ d=1", {"a:b=c d": "1"}),
        (r"a=\ud83d\ude00\ud83d", {"a": "\U0001f600\ufffd"}),
        (r"a=\u00e4\\u\t\q\"", {"a": 'ä\\u\tq"'}),
        ("a=1,\\\n  2,\\\n\n b=3", {"a": "1,2,", "b": "3"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("# a comment \\\na=1\n  ! another\\\nb=2", {"a": "1", "b": "2"}),
        ("a=1 # no comment", {"a": "1 # no comment"}),
        ("a=x\u2028y\x85z", {"a": "x\u2028y\x85z"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=\\", {"a": ""}),
    ],
)
def test_file_has_these_values(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected
