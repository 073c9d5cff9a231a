"""Names, times and durations in sentences. Pure."""

from __future__ import annotations

from ..text import printable
from .record import MemberName

NAME_LENGTH = 40


def who(member: MemberName | None) -> str:
    """The instance id or the client id of a member, with its host; a client may be anybody, so it is escaped."""
    if member is None:
        return "a member"
    name = _cut(member.instance_id or member.client_id or member.member_id)
    host = short_host(member.client_host)
    return f"{name} ({host})" if host else name


def short_host(host: str) -> str:
    """Kafka writes "/10.0.0.7"."""
    return _cut(host.removeprefix("/"))


def shown_name(name: str) -> str:
    """A name that a client has chosen: escaped, and cut at 40 characters."""
    return _cut(name)


def _cut(text: str) -> str:
    shown = printable(text[:NAME_LENGTH])
    return shown if len(shown) <= NAME_LENGTH and len(text) <= NAME_LENGTH else f"{shown[: NAME_LENGTH - 3]}..."


def clock_time(wall_ms: int) -> str:
    """The time of day in UTC."""
    seconds = wall_ms // 1000 % 86_400
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def duration(ms: int) -> str:
    if ms < 1000:
        return f"{max(ms, 0)} ms"
    if ms < 120_000:
        return f"{ms / 1000:.3g} s"
    minutes = ms // 60_000
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // (24 * 60)} days"
