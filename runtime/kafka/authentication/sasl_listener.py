"""SaslListener: what the connections of a listener with SASL have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from ...security.mechanisms import Mechanism, MechanismParts

LIFETIME_MS_MAX: Final = 2**53
"""More does not fit into the answer."""


class Worker(Protocol):
    """Runs work that takes some milliseconds of a processor elsewhere, one job at a time."""

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """``done`` gets the result, on the loop's thread."""


class SaslListener(NamedTuple):
    """``mechanisms``: those that are enabled, by name. ``failure_delay_ms``: until a failure is answered.
    ``timeout_ms``: for the whole authentication.

    ``session_ms``: after this time clients must authenticate again (KIP-368); 0: never. ``monotonic_ms`` and
    ``wall_ms``: the clocks.
    """

    mechanisms: Mapping[str, Mechanism]
    parts: MechanismParts
    worker: Worker
    failure_delay_ms: int
    timeout_ms: int
    max_receive_bytes: int
    session_ms: int
    monotonic_ms: Callable[[], int]
    wall_ms: Callable[[], int]

    def lifetime_ms(self, expires_at_ms: int | None, grace_ms: int = 0) -> int | None:
        """How long a session lasts; None if it does not end. ``expires_at_ms``: of its credential, if that ends.

        With a credential that has expired, and is accepted for ``grace_ms`` more, it lasts until the end of these.
        Never 0: clients read that as a session without an end, and would not authenticate again.
        """
        limits = [self.session_ms] if self.session_ms > 0 else []
        if expires_at_ms is not None:
            left_ms = expires_at_ms - self.wall_ms()
            limits.append(min(max(left_ms if left_ms > 0 else left_ms + grace_ms, 1), LIFETIME_MS_MAX))
        return min(limits, default=None)
