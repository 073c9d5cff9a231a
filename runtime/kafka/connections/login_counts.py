"""LoginCounts: how often clients have authenticated, and failed to, for a metric."""

from __future__ import annotations

from collections import Counter
from typing import Final

from ...security.exchange import Failure

NO_MECHANISM: Final = "none"
"""In place of the mechanism, before the client has chosen one that is enabled."""

ACCEPTED: Final = "accepted"


class LoginCounts:
    """``counts``: by mechanism, or "SSL" for a TLS handshake, and result. Clients cannot add further ones.

    The result is ``ACCEPTED``, or the reason of a failure.
    """

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    def accept(self, mechanism: str) -> None:
        """A client has authenticated, or authenticated again."""
        self.counts[mechanism, ACCEPTED] += 1

    def fail(self, mechanism: str, reason: Failure) -> None:
        """``mechanism``: an enabled one, or ""."""
        self.counts[mechanism or NO_MECHANISM, reason.value] += 1
