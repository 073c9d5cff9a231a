"""docs/admin.md has each dynamic setting, the settings of groups and of topics, and the events of the log."""

from __future__ import annotations

import re

from doc_pages import DOCS, dead_links

from callboard.actors.group.events import Reason
from callboard.actors.recorder.causes import NAMES
from callboard.runtime.settings.group_configs import BY_NAME as GROUP_SETTINGS
from callboard.runtime.settings.listener_limits import find_limit
from callboard.runtime.settings.listener_settings import LISTENER_SETTINGS
from callboard.runtime.settings.rows import DYNAMIC, LISTENER_PREFIX
from callboard.runtime.settings.table import BY_NAME
from callboard.runtime.topics.settings import TOPIC_SETTINGS

PAGE = DOCS / "admin.md"
TEXT = PAGE.read_text()


def names_in(header: str, column: int = 1) -> set[str]:
    """The names in a column of the table with this header."""
    table = TEXT.partition(f"{header}\n")[2].partition("\n\n")[0]
    cells = [line.split("|")[column] for line in table.splitlines()[1:]]
    return {name for cell in cells for name in re.findall(r"`([\w.]+)`", cell)}


def test_dynamic_settings_have_their_worst_effects() -> None:
    of_listeners = {f"{LISTENER_PREFIX}NAME_{setting.name}" for setting in LISTENER_SETTINGS if setting.is_dynamic}
    assert names_in("| setting | too low | too high |") == DYNAMIC | of_listeners
    assert all(find_limit(name) is not None for name in of_listeners)


def test_settings_of_groups_have_their_defaults_and_bounds() -> None:
    header = "| setting of a group | default | bounds |"
    assert names_in(header) == set(GROUP_SETTINGS)
    assert {*names_in(header, 2), *names_in(header, 3)} <= set(BY_NAME)


def test_settings_of_topics_exist() -> None:
    assert names_in("| setting | effect on the records in memory |") <= {each.name for each in TOPIC_SETTINGS}
    [number] = re.findall(r"All (\d+) topic\s+settings of Kafka", TEXT)
    assert int(number) == len(TOPIC_SETTINGS)


def test_causes_of_log_lines_are_those_of_rebalances() -> None:
    table = TEXT.partition("| cause | meaning |\n")[2].partition("\n\n")[0]
    causes = {name for line in table.splitlines()[1:] for name in re.findall(r"`([^`]+)`", line.split("|")[1])}
    assert causes == {str(reason) for reason in NAMES}
    assert causes <= set(Reason)


def test_dangerous_values_have_their_minimums() -> None:
    text = TEXT.partition("**Dangerous values**")[2].partition("\n\n")[0]
    named = set(re.findall(r"`(\w+)`", text)) & set(BY_NAME)
    assert named == {name for name, setting in BY_NAME.items() if setting.safe_minimum is not None}


def test_links_lead_somewhere() -> None:
    assert dead_links(PAGE) == []
