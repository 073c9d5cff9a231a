"""docs/limits.md has every limit of clients, with its default."""

from __future__ import annotations

import re

from doc_pages import DOCS, dead_links

from callboard.runtime.kafka.over_limit import LIMITS
from callboard.runtime.settings.table import BY_NAME, format_value

PAGE = DOCS / "limits.md"
ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?P<default>[^|]+) \|(?P<rest>[^|]+\|[^|]+\|[^|]+)\|$", re.MULTILINE)
ROWS = {match["name"]: match for match in ROW.finditer(PAGE.read_text())}


def test_every_limit_has_a_row() -> None:
    assert set(LIMITS) <= set(ROWS)


def test_rows_have_the_defaults_of_their_settings() -> None:
    shown = {name: row["default"] for name, row in ROWS.items()}
    assert shown == {name: format_value(BY_NAME[name].default) for name in ROWS}


def test_rows_say_what_happens_why_and_what_kafka_does() -> None:
    assert [name for name, row in ROWS.items() if not all(cell.strip() for cell in row["rest"].split("|"))] == []


def test_page_has_a_line_for_each_row() -> None:
    """A row that is written in another way would not be tested."""
    assert PAGE.read_text().count("\n| `") == len(ROWS)


def test_links_on_the_page_have_targets() -> None:
    assert dead_links(PAGE) == []
