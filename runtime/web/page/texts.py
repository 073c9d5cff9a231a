"""Values as texts of the page. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from ....actors.recorder.texts import duration as duration
from ....actors.text import format_count, printable

UNKNOWN: Final = "?"
DAY_MS: Final = 86_400_000

TONES: Final = {"Stable": "good", "Empty": "idle", "Dead": "bad"}
ICONS: Final = {"good": "●", "idle": "○", "bad": "✕", "busy": "◐"}


def shown(value: Any) -> Any:
    """Texts come from clients: control characters are shown as escapes."""
    is_html = hasattr(value, "__html__")
    return printable(value) if isinstance(value, str) and not is_html else value


def path(name: str) -> str:
    """A name as a part of a path."""
    return quote(name, safe="", errors="backslashreplace")


def number(value: int | None) -> str:
    """With thousands separated; "?" if it is not known."""
    return UNKNOWN if value is None else f"{value:,}"


def tone(state: str) -> str:
    """The class of a state: good, idle, bad, or busy while the group rebalances."""
    return TONES.get(state, "busy" if state else "idle")


def icon(state: str) -> str:
    return ICONS[tone(state)]


def when(time_ms: int, now_ms: int) -> str:
    """The time of day in UTC, with the date if it is not that of today."""
    time = datetime.fromtimestamp(time_ms / 1000, UTC)
    return f"{time:%H:%M:%S}" if time_ms // DAY_MS == now_ms // DAY_MS else f"{time:%Y-%m-%d %H:%M:%S}"


def iso(time_ms: int) -> str:
    """For the attribute ``datetime``."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def age(time_ms: int, now_ms: int) -> str:
    """How long ago, in words that change at most once a minute."""
    minutes = (now_ms - time_ms) // 60_000
    if minutes < 1:
        return "just now"
    return "1 min ago" if minutes == 1 else f"{duration(minutes * 60_000)} ago"


def until(time_ms: int, now_ms: int) -> str:
    """In how long, in words that change at most once a minute."""
    minutes = (time_ms - now_ms) // 60_000
    if minutes < 1:
        return "1 min or less"
    return "1 min" if minutes == 1 else duration(minutes * 60_000)


def ranges(numbers: Iterable[int]) -> str:
    """Sorted numbers, as in "0-3, 7"."""
    parts: list[list[int]] = []
    for each in sorted(numbers):
        if parts and each == parts[-1][1] + 1:
            parts[-1][1] = each
        else:
            parts.append([each, each])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def shorten(text: str, length: int) -> str:
    """At most so many characters, cut after a comma if there is one."""
    cut = text[: length - 2]
    return text if len(text) <= length else f"{cut[: cut.rfind(',') + 1] or cut} …"


def microseconds(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:,.0f} µs" if value < 1000 else f"{value / 1000:,.1f} ms"


def size(value: int | None) -> str:
    """Bytes, with a unit of 1024 of them or more."""
    if value is None:
        return UNKNOWN
    if value < 1024:
        return f"{value} B"
    amount = value / 1024
    for unit in ("KiB", "MiB"):
        if amount < 1024:
            return f"{amount:,.1f} {unit}"
        amount /= 1024
    return f"{amount:,.1f} GiB"


def setting(value: object) -> str:
    """The value of a setting, as it is given to ``--set``."""
    return str(value).lower() if isinstance(value, bool) else str(value)


FILTERS: Final = {
    "age": age,
    "bytes": size,
    "count": format_count,
    "duration": duration,
    "icon": icon,
    "iso": iso,
    "microseconds": microseconds,
    "number": number,
    "path": path,
    "ranges": ranges,
    "setting": setting,
    "shorten": shorten,
    "tone": tone,
    "until": until,
    "when": when,
}
"""The filters of templates."""
