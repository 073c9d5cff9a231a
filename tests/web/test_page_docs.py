"""docs/page.md has each page, each tab and each action of the web page, and no others."""

from __future__ import annotations

import re

from doc_pages import DOCS, dead_links

from callboard.runtime.web.page.actions import ACTIONS
from callboard.runtime.web.page.group import TABS
from callboard.runtime.web.page.table import PAGES

PAGE = DOCS / "page.md"
TEXT = PAGE.read_text()


def test_addresses_are_those_of_the_pages() -> None:
    addresses = re.findall(r"^\| `(/[^`]*)` \|", TEXT, re.MULTILINE)
    tabs = [f"/groups/{{group}}?tab={tab}" for tab in TABS if tab]
    assert sorted(addresses) == sorted([*(page.path for page in PAGES), *tabs])


def test_actions_are_those_of_groups() -> None:
    table = TEXT.partition("| action | what it does |\n")[2].partition("\n\n")[0]
    assert [line.split("|")[1].strip() for line in table.splitlines()[1:]] == [action.title for action in ACTIONS]


def test_links_lead_somewhere() -> None:
    assert dead_links(PAGE) == []
