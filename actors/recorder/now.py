"""What a group waits for at this moment. Pure."""

from __future__ import annotations

from typing import NamedTuple

from ..group.events import Identity
from .record import MemberName


class Waiting(NamedTuple):
    """What a group in memory waits for. ``what``: as in "waits for ..."; "" for nothing.

    ``generation``: or the epoch. ``missing``: the members that have to do it, the first 20 of ``missing_count``.
    ``until_ms``: when the group goes on without them, in monotonic milliseconds; None: it has no deadline. ``members``:
    the first 100.
    """

    generation: int

    what: str = ""
    missing: tuple[Identity, ...] = ()
    missing_count: int = 0
    until_ms: int | None = None
    members: tuple[Identity, ...] = ()
    member_count: int = 0


class OpenNow(NamedTuple):
    """A rebalance that has not ended. ``began_ms``: since 1970. The others as in ``record.Why``."""

    began_ms: int
    cause: str
    by: MemberName | None
    client_reason: str
    restarts: int


class GroupNow(NamedTuple):
    """A group at the time ``now_ms``; all times are in milliseconds since 1970. See ``Waiting``.

    ``state``: "" if only the time is known.

    ``missing_since_ms``: when the group began to wait. ``fenced``: the instance id of each refusal that a member got in
    the last ten minutes because another member has its instance id. ``guarded_until_ms``: until when commits without a
    generation to the partitions of the last reset are refused; None: they are not.
    """

    now_ms: int
    state: str
    generation: int
    waits_for: str = ""
    missing: tuple[MemberName, ...] = ()
    missing_count: int = 0
    missing_since_ms: int | None = None
    until_ms: int | None = None
    members: tuple[MemberName, ...] = ()
    member_count: int = 0
    rebalance: OpenNow | None = None
    fenced: tuple[str, ...] = ()
    guarded_until_ms: int | None = None
