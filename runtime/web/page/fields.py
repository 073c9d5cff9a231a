"""The fields of a form, from the address or the body. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import parse_qsl

from ..problems import BadBody

FIELDS_MAX: Final = 20_000

Fields = Mapping[str, Sequence[str]]
"""The values of each field that is not empty."""


def make_fields(pairs: Iterable[tuple[str, str]]) -> Fields:
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        if value:
            fields.setdefault(name, []).append(value)
    return fields


def parse_form(body: bytes) -> Fields:
    """The body of a form. Raises BadBody."""
    try:
        return make_fields(parse_qsl(body.decode("ascii"), max_num_fields=FIELDS_MAX, errors="strict"))
    except ValueError:
        raise BadBody(f"the body {body[:100]!r}: expected a form in UTF-8 with at most {FIELDS_MAX} fields") from None


def one(fields: Fields, name: str) -> str:
    """The last value of a field; "" if there is none."""
    return fields.get(name, ("",))[-1]


def ticked(fields: Fields, name: str) -> Sequence[str]:
    """The rows that were ticked. Raises BadBody if some had to be and none was."""
    values = fields.get(name, ())
    if "ticked" in fields and not values:
        raise BadBody(f"no {name} was ticked")
    return values


def partitions_of(fields: Fields) -> list[tuple[str, int]]:
    """The partitions that were ticked, as in "jobs:0". Raises BadBody."""
    return [_partition(value) for value in ticked(fields, "partition")]


def _partition(value: str) -> tuple[str, int]:
    topic, _, number = value.rpartition(":")
    if not topic or not (number.isascii() and number.isdigit() and len(number) < 10):
        raise BadBody(f"partition {value[:100]!r}: expected a topic and a number, as in jobs:0")
    return topic, int(number)
