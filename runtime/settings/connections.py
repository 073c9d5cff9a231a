"""The settings of connections, under Kafka's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ..common.ip_addresses import parse_ip
from .rows import INT_MAX, LONG_MAX, TextForm, row, text_row


def parse_overrides(text: str) -> Mapping[str, int]:
    """The limits of single addresses, from ADDRESS:NUMBER,ADDRESS:NUMBER. Raises ValueError."""
    limits: dict[str, int] = {}
    for item in filter(None, text.split(",")):
        address, _, number = item.strip().rpartition(":")
        if not (number.isascii() and number.isdigit() and len(number) <= 10 and int(number) <= INT_MAX):
            raise ValueError(f"the limit {number!r} is not a number from 0 to {INT_MAX}")
        limits[str(parse_ip(address))] = int(number)
    return limits


def _are_overrides(text: str) -> bool:
    try:
        parse_overrides(text)
    except ValueError:
        return False
    return True


OVERRIDES: Final = TextForm(
    _are_overrides, "ADDRESS:NUMBER,ADDRESS:NUMBER, as in 10.0.0.5:200,2001:db8::7:50", "addresses with numbers"
)


@dataclass(frozen=True)
class ConnectionRows:
    """A part of ``table.Settings``. Without slots, since several bases of a class cannot have them."""

    connections_max_idle_ms: int = row(
        600_000,
        "A connection without requests for this time, and without a pending response, is closed; one whose client does"
        " not read its responses, too.",
        1,
        LONG_MAX,
    )
    max_connections: int = row(
        INT_MAX,
        "The maximum number of connections that are served; further ones wait without being read. With the prefix"
        " listener_name_NAME_ it is that of one listener.",
        0,
        INT_MAX,
    )
    max_connection_creation_rate: int = row(
        INT_MAX,
        "The maximum number of connections that begin in a second; those of eleven seconds may begin at once, and"
        " further ones wait for their turn. With the prefix listener_name_NAME_ it is that of one listener.",
        1,
        INT_MAX,
    )
    max_connections_per_ip: int = row(
        INT_MAX, "The maximum number of connections from one address; further ones are closed at once.", 0, INT_MAX
    )
    max_connections_per_ip_overrides: str = text_row(
        "",
        "The same for single addresses, as in 10.0.0.5:200,2001:db8::7:50; the number follows the last colon. Kafka"
        " takes host names, too.",
        form=OVERRIDES,
    )
