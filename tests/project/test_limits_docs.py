"""docs/limits.md has every limit of clients: settings with their defaults, and constants with their values."""

from __future__ import annotations

import re

from doc_pages import DOCS, dead_links

from callboard.actors.group.members import SIZE_MAX
from callboard.runtime.kafka.api.delete_acls import MATCHES_MAX
from callboard.runtime.kafka.api.fetch import MAX_BYTES
from callboard.runtime.kafka.batch_gate import ITEMS_WAITING_MAX
from callboard.runtime.kafka.connections.connection_places import WAITING_CONNECTIONS_MAX
from callboard.runtime.kafka.connections.connection_pool import THROTTLED_CONNECTIONS_MAX
from callboard.runtime.kafka.connections.over_limit import CLIENTS_MAX, CONNECTIONS, LIMITS
from callboard.runtime.kafka.connections.pending_requests import (
    MAX_BYTES_OPEN,
    MAX_BYTES_WAITING,
    MAX_CALLS_OPEN,
    MAX_FRAMES_WAITING,
)
from callboard.runtime.kafka.connections.time_budget import BUDGET_NS, TINY_BYTES
from callboard.runtime.kafka.quotas.client_quotas import COUNTERS_MAX
from callboard.runtime.node.connection_limit import HTTP_CONNECTIONS_MAX, RESERVE
from callboard.runtime.security.credentials import SALTED_BYTES_MAX
from callboard.runtime.security.quotas import ENTITIES_MAX, OPERATIONS_MAX
from callboard.runtime.settings.table import BY_NAME, PARTITIONS_MAX, format_value
from callboard.runtime.topics.producers import PRODUCERS_MAX

PAGE = DOCS / "limits.md"
ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?P<value>[^|]+) \|(?P<rest>[^|]+\|[^|]+\|[^|]+)\|$", re.MULTILINE)
ROWS = {match["name"]: match for match in ROW.finditer(PAGE.read_text())}

CONSTANTS = {
    "HTTP_CONNECTIONS_MAX": HTTP_CONNECTIONS_MAX,
    "WAITING_CONNECTIONS_MAX": WAITING_CONNECTIONS_MAX,
    "MAX_FRAMES_WAITING": MAX_FRAMES_WAITING,
    "MAX_BYTES_WAITING": MAX_BYTES_WAITING,
    "MAX_CALLS_OPEN": MAX_CALLS_OPEN,
    "MAX_BYTES_OPEN": MAX_BYTES_OPEN,
    "ITEMS_WAITING_MAX": ITEMS_WAITING_MAX,
    "BUDGET_NS": BUDGET_NS,
    "TINY_BYTES": TINY_BYTES,
    "MAX_BYTES": MAX_BYTES,
    "SIZE_MAX": SIZE_MAX,
    "PARTITIONS_MAX": PARTITIONS_MAX,
    "PRODUCERS_MAX": PRODUCERS_MAX,
    "CLIENTS_MAX": CLIENTS_MAX,
    "ENTITIES_MAX": ENTITIES_MAX,
    "OPERATIONS_MAX": OPERATIONS_MAX,
    "SALTED_BYTES_MAX": SALTED_BYTES_MAX,
    "MATCHES_MAX": MATCHES_MAX,
    "COUNTERS_MAX": COUNTERS_MAX,
    "THROTTLED_CONNECTIONS_MAX": THROTTLED_CONNECTIONS_MAX,
}

REFUSING_NOBODY = {
    "socket_receive_buffer_bytes",
    "topic_retention_bytes",
    "total_retention_bytes",
    "max_sliced_requests",
    "max_connections",
    "max_connection_creation_rate",
    "offset_commit_rate_per_group",
}


def test_each_row_is_a_setting_or_a_constant_and_each_limit_has_a_row() -> None:
    assert set(ROWS) == {*LIMITS, *REFUSING_NOBODY, *CONSTANTS}


def test_rows_have_the_defaults_of_their_settings() -> None:
    shown = {name: row["value"] for name, row in ROWS.items() if name in BY_NAME}
    assert shown == {
        name: format_value(BY_NAME[name].default) for name in (*LIMITS, *REFUSING_NOBODY) if name in BY_NAME
    }
    assert set(LIMITS) - set(BY_NAME) == {CONNECTIONS}


def test_rows_have_the_values_of_their_constants() -> None:
    assert {name: ROWS[name]["value"] for name in CONSTANTS} == {name: str(value) for name, value in CONSTANTS.items()}
    assert ROWS[CONNECTIONS]["value"].endswith(f"and {RESERVE}")


def test_page_names_the_settings_that_refuse_nobody() -> None:
    """So that all other rows are those of which refusals are counted."""
    introduction = PAGE.read_text().partition("\n| ")[0]
    assert set(re.findall(r"`(\w+)`", introduction)) & set(BY_NAME) == REFUSING_NOBODY


def test_rows_say_what_happens_why_and_what_kafka_does() -> None:
    assert [name for name, row in ROWS.items() if not all(cell.strip() for cell in row["rest"].split("|"))] == []


def test_page_has_a_line_for_each_row() -> None:
    """A row that is written in another way would not be tested."""
    assert PAGE.read_text().count("\n| `") == len(ROWS)


def test_links_on_the_page_have_targets() -> None:
    assert dead_links(PAGE) == []
