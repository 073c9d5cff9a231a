"""Counts in texts."""

from __future__ import annotations

import pytest

from callboard.actors.text import format_count


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 members"), (1, "1 member"), (2, "2 members"), (2000, "2,000 members")]
)
def test_count_has_its_unit(number: int, text: str) -> None:
    assert format_count(number, "member") == text
