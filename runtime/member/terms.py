"""MemberOptions: the options of a member, checked at creation, and its timeouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Required, TypedDict

from ..settings.table import INT_MAX
from .assignors.base import Assignor
from .assignors.table import find_assignor
from .assignors.user_data import write_weight
from .lease import LeaseTimeouts
from .named import Resource, check_resources, check_text

HEARTBEATS_A_SESSION = 5
"""Several heartbeats may be lost before the lease ends."""

MARGINS_A_SESSION = 5

INSTANCE_ID_MAX = 249
"""As in Kafka's clients, which apply the rules for topic names to instance ids."""


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """All arguments of ``Coordinator.member``; times in milliseconds.

    ``resources``: what to share, by name: a number of shards, a list of names, or a function that returns either.
    ``assignor``: a name, an object, or several in order of preference. ``weight``: for assignors that use it
    (``callboard-weighted``, functions). ``heartbeat_interval_ms`` and ``lease_margin_ms``: a fifth of the session if
    None. ``instance_id``: makes a static member (KIP-345). ``refresh_interval_ms``: how often functions are called.
    """

    resources: Mapping[str, Resource]
    assignor: str | Assignor | Sequence[str | Assignor] = "cooperative-sticky"
    instance_id: str | None = None
    weight: float = 1
    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int | None = None
    rebalance_timeout_ms: int = 60_000
    lease_margin_ms: int | None = None
    refresh_interval_ms: int = 1_000
    client_id: str | None = None

    def __post_init__(self) -> None:
        """Raises ValueError."""
        check_resources(self.resources)
        write_weight(self.weight)
        self.assignors()
        instance_id = self.instance_id
        if instance_id is not None and not (isinstance(instance_id, str) and 1 <= len(instance_id) <= INSTANCE_ID_MAX):
            raise ValueError(
                f"instance_id={instance_id!r}: expected 1 to {INSTANCE_ID_MAX} characters that no other member of "
                f"the group has, or None"
            )
        for what, text in (("instance_id", instance_id), ("client_id", self.client_id)):
            if text is not None:
                check_text(what, text)
        for name in ("heartbeat_interval_ms", "lease_margin_ms"):
            _check_number(name, getattr(self, name))
        for name in ("session_timeout_ms", "rebalance_timeout_ms", "refresh_interval_ms"):
            _check_ms(name, getattr(self, name))
        self._check_timeouts()

    def _check_timeouts(self) -> None:
        timeouts = self.timeouts()
        if not 0 < timeouts.interval_s < timeouts.session_s:
            raise ValueError(
                f"heartbeat_interval_ms={self.heartbeat_interval_ms!r}: expected more than 0 and less than "
                f"session_timeout_ms ({self.session_timeout_ms}); a fifth of it is the default"
            )
        if not 0 <= timeouts.margin_s < min(timeouts.session_s - timeouts.interval_s, timeouts.rebalance_s):
            raise ValueError(
                f"lease_margin_ms={self.lease_margin_ms!r}: expected 0 or more, and less than the session "
                f"({self.session_timeout_ms}) without a heartbeat's interval, and than rebalance_timeout_ms "
                f"({self.rebalance_timeout_ms}); else every lease ends before the next heartbeat"
            )

    def assignors(self) -> tuple[Assignor, ...]:
        """Raises ValueError for an unknown name."""
        given = self.assignor
        several = (given,) if isinstance(given, str | Assignor) else given
        is_list = isinstance(several, Sequence) and len(several) > 0
        if not is_list or not all(isinstance(one, str | Assignor) for one in several):
            raise ValueError(f"assignor={given!r}: expected at least one, as in assignor='cooperative-sticky'")
        return tuple(find_assignor(one) for one in several)

    def timeouts(self) -> LeaseTimeouts:
        session_ms = self.session_timeout_ms
        margin_ms = session_ms / MARGINS_A_SESSION if self.lease_margin_ms is None else self.lease_margin_ms
        interval_ms = self.heartbeat_interval_ms
        if interval_ms is None:
            interval_ms = session_ms // HEARTBEATS_A_SESSION
        return LeaseTimeouts(session_ms / 1000, self.rebalance_timeout_ms / 1000, margin_ms / 1000, interval_ms / 1000)


class MemberArguments(TypedDict, total=False):
    """``MemberOptions``, as keyword arguments."""

    resources: Required[Mapping[str, Resource]]
    assignor: str | Assignor | Sequence[str | Assignor]
    instance_id: str | None
    weight: float
    session_timeout_ms: int
    heartbeat_interval_ms: int | None
    rebalance_timeout_ms: int
    lease_margin_ms: int | None
    refresh_interval_ms: int
    client_id: str | None


def make_options(arguments: MemberArguments) -> MemberOptions:
    """Raises ValueError for a bad value, TypeError for an unknown name."""
    known = [field.name for field in fields(MemberOptions)]
    for name in arguments:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise TypeError(f"a member has no option {name!r}; {hint}")
    if "resources" not in arguments:
        raise TypeError("a member needs resources, as in resources={'jobs': 12}")
    return MemberOptions(**arguments)


def _check_ms(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= INT_MAX:
        raise ValueError(f"{name}={value!r}: expected a whole number of milliseconds, 1 to {INT_MAX}")


def _check_number(name: str, value: object) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise ValueError(f"{name}={value!r}: expected a number of milliseconds, or None for a fifth of the session")
