"""FailedLogins: how often clients have failed to authenticate, for a metric."""

from __future__ import annotations

from collections import Counter
from typing import Final

from ...security.exchange import Failure

NO_MECHANISM: Final = "none"
"""In place of the mechanism, before the client has chosen one that is enabled."""


class FailedLogins:
    """``counts``: by mechanism, or "SSL" for a TLS handshake, and reason. Clients cannot add further ones."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    def add(self, mechanism: str, reason: Failure) -> None:
        """``mechanism``: an enabled one, or ""."""
        self.counts[mechanism or NO_MECHANISM, reason.value] += 1
