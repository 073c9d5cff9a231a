"""Pages of lists that have one order. Pure."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Final

from .group_list import LIMIT_DEFAULT, LIMIT_MAX, BadParameter, parse_number

NAMES: Final = ("limit", "after")


def parse_page(parameters: Iterable[tuple[str, str]]) -> tuple[int, str]:
    """The limit, and the place after which the page begins; "" for the first page. Raises BadParameter."""
    found: dict[str, str] = {}
    for name, value in parameters:
        if name not in NAMES:
            raise BadParameter(f"unknown parameter {name[:100]!r}: expected some of {', '.join(NAMES)}")
        if name in found:
            raise BadParameter(f"{name}={value[:100]!r}: the parameter is there twice, expected it once")
        found[name] = value
    limit = parse_number("limit", found["limit"], 1, LIMIT_MAX) if "limit" in found else LIMIT_DEFAULT
    return limit, parse_after(found["after"]) if "after" in found else ""


def format_after(place: str) -> str:
    """A place as a parameter."""
    return base64.urlsafe_b64encode(place.encode("utf-8", "surrogatepass")).decode().rstrip("=")


def parse_after(text: str) -> str:
    """Raises BadParameter."""
    try:
        place = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        found = place.decode("utf-8", "surrogatepass")
    except ValueError:
        found = ""
    if not found:
        raise BadParameter(f"after={text[:100]!r}: expected the value of `after` in the previous page")
    return found
