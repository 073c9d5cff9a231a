"""MemberOptions: the options of a member, checked at creation, and its timeouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Required, TypedDict

from ...actors.assignors.base import Assignor
from ...actors.assignors.table import find_assignor
from ...actors.assignors.user_data import write_weight
from ...actors.text import did_you_mean
from ..settings.rows import INT_MAX
from .lease import LeaseTimeouts
from .resources import Resource, check_resources, check_text

HEARTBEATS_PER_SESSION = 5
"""Several heartbeats may be lost before the lease ends."""

MARGINS_PER_SESSION = 5

CLASSIC = "classic"

DEFAULT_ASSIGNOR = "cooperative-sticky"

SESSION_TIMEOUT_MS = 10_000

INSTANCE_ID_MAX = 249
"""As in Kafka's clients, which apply the rules for topic names to instance ids."""


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """All arguments of ``Coordinator.member``; times in milliseconds.

    ``resources``: what to share, by name: a number of shards, a list of names, or a function that returns either.
    ``assignor``: a name, an object, or several in order of preference; None for "cooperative-sticky". ``weight``: for
    assignors that use it (``callboard-weighted``, functions). ``session_timeout_ms``: 10 s if None.
    ``heartbeat_interval_ms`` and ``lease_margin_ms``: a fifth of the session if None. ``instance_id``: makes a static
    member (KIP-345). ``refresh_interval_ms``: how often functions are called.

    ``protocol``: "classic" or "consumer" (KIP-848). In the consumer protocol the coordinator assigns and decides about
    the session: ``assignor`` is None or the name of one of its assignors, ``session_timeout_ms`` must be None, and
    there are no weights.
    """

    resources: Mapping[str, Resource]
    assignor: str | Assignor | Sequence[str | Assignor] | None = None
    instance_id: str | None = None
    weight: float = 1
    session_timeout_ms: int | None = None
    heartbeat_interval_ms: int | None = None
    rebalance_timeout_ms: int = 60_000
    lease_margin_ms: int | None = None
    refresh_interval_ms: int = 1_000
    client_id: str | None = None
    protocol: str = "classic"

    def __post_init__(self) -> None:
        """Raises ValueError."""
        object.__setattr__(self, "resources", check_resources(self.resources))
        write_weight(self.weight)
        instance_id = self.instance_id
        if instance_id is not None and not (isinstance(instance_id, str) and 1 <= len(instance_id) <= INSTANCE_ID_MAX):
            raise ValueError(
                f"instance_id={instance_id!r}: expected 1 to {INSTANCE_ID_MAX} characters that no other member of "
                f"the group has, or None"
            )
        for name, text in (("instance_id", instance_id), ("client_id", self.client_id)):
            if text is not None:
                check_text(name, text)
        for name in ("heartbeat_interval_ms", "lease_margin_ms"):
            _check_number(name, getattr(self, name))
        _check_ms("session_timeout_ms", self.session_ms())
        for name in ("rebalance_timeout_ms", "refresh_interval_ms"):
            _check_ms(name, getattr(self, name))
        if self.protocol == CLASSIC:
            self.assignors()
            self.timeouts()

    def check_consumer(self) -> None:
        """Raises ValueError for options that the consumer protocol does not have."""
        if self.assignor is not None and not isinstance(self.assignor, str):
            raise ValueError(
                f"assignor={self.assignor!r} with protocol='consumer': expected None, or the name of an assignor of "
                f"the coordinator, as in assignor='range'"
            )
        if self.weight != 1:
            raise ValueError(
                f"weight={self.weight!r} with protocol='consumer': its members have no weights; use an assignor of the "
                f"coordinator that knows them, as in Coordinator(assignors={{'by-weight': function}})"
            )
        if self.session_timeout_ms is not None:
            raise ValueError(
                f"session_timeout_ms={self.session_timeout_ms!r} with protocol='consumer': the coordinator decides; "
                f"set its group_consumer_session_timeout_ms and group_consumer_min_session_timeout_ms"
            )

    def session_ms(self) -> int:
        """The session timeout of the classic protocol."""
        return SESSION_TIMEOUT_MS if self.session_timeout_ms is None else self.session_timeout_ms

    def _check_timeouts(self, timeouts: LeaseTimeouts) -> None:
        session_ms = round(timeouts.session_s * 1000)
        if not 0 < timeouts.interval_s < timeouts.session_s:
            raise ValueError(
                f"heartbeat_interval_ms={self.heartbeat_interval_ms!r}: expected more than 0 and less than "
                f"session_timeout_ms ({session_ms}); a fifth of it is the default"
            )
        if not 0 <= timeouts.margin_s < min(timeouts.session_s - timeouts.interval_s, timeouts.rebalance_s):
            raise ValueError(
                f"lease_margin_ms={self.lease_margin_ms!r}: expected 0 or more, less than session_timeout_ms "
                f"({session_ms}) minus the heartbeat interval, and less than rebalance_timeout_ms "
                f"({self.rebalance_timeout_ms}); else every lease ends before the next heartbeat"
            )

    def assignors(self) -> tuple[Assignor, ...]:
        """Raises ValueError for an unknown name."""
        option = DEFAULT_ASSIGNOR if self.assignor is None else self.assignor
        assignors = (option,) if isinstance(option, str | Assignor) else option
        is_list = isinstance(assignors, Sequence) and len(assignors) > 0
        if not is_list or not all(isinstance(assignor, str | Assignor) for assignor in assignors):
            raise ValueError(f"assignor={option!r}: expected at least one, as in assignor='cooperative-sticky'")
        return tuple(find_assignor(assignor) for assignor in assignors)

    def timeouts(self, session_ms: int | None = None) -> LeaseTimeouts:
        """``session_ms``: as the coordinator decides it; None: the member does. Raises ValueError."""
        session_ms = self.session_ms() if session_ms is None else session_ms
        margin_ms = session_ms / MARGINS_PER_SESSION if self.lease_margin_ms is None else self.lease_margin_ms
        interval_ms = self.heartbeat_interval_ms
        if interval_ms is None:
            interval_ms = session_ms // HEARTBEATS_PER_SESSION
        timeouts = LeaseTimeouts(
            session_ms / 1000, self.rebalance_timeout_ms / 1000, margin_ms / 1000, interval_ms / 1000
        )
        self._check_timeouts(timeouts)
        return timeouts


class MemberArguments(TypedDict, total=False):
    """``MemberOptions``, as keyword arguments."""

    resources: Required[Mapping[str, Resource]]
    assignor: str | Assignor | Sequence[str | Assignor] | None
    instance_id: str | None
    weight: float
    session_timeout_ms: int | None
    heartbeat_interval_ms: int | None
    rebalance_timeout_ms: int
    lease_margin_ms: int | None
    refresh_interval_ms: int
    client_id: str | None
    protocol: str


def make_options(arguments: MemberArguments) -> MemberOptions:
    """Raises ValueError for a bad value, TypeError for an unknown name."""
    names = [field.name for field in fields(MemberOptions)]
    for name in arguments:
        if name not in names:
            raise TypeError(
                f"there is no option {name!r};{did_you_mean(name, names)} expected one of {', '.join(names)}"
            )
    if "resources" not in arguments:
        raise TypeError("a member needs resources, as in resources={'jobs': 12}")
    return MemberOptions(**arguments)


def _check_ms(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= INT_MAX:
        raise ValueError(f"{name}={value!r}: expected a whole number of milliseconds, 1 to {INT_MAX}")


def _check_number(name: str, value: object) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise ValueError(f"{name}={value!r}: expected a number of milliseconds, or None for a fifth of the session")
