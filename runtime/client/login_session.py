"""LoginSession: when a connection authenticates, first and again (KIP-368). Without I/O."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import SystemRandom
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from random import Random

    from ..settings.client_settings import Login
    from .login import LoginSteps

EARLIEST, LATEST = 0.85, 0.95
"""The parts of a session after one of which, by chance, a client authenticates again, as in Kafka's clients."""

INTERVAL_S: Final = 1.0
"""A server refuses a client that begins again sooner (KafkaChannel)."""

_RANDOM: Final = SystemRandom()


class CredentialsUnavailable(Exception):
    """There is nothing to authenticate with. The text says why."""


class Credentials(Protocol):
    """Of one client, for all its connections. ``blocks``: whether ``login`` reads files, or uses the network."""

    @property
    def blocks(self) -> bool: ...

    def login(self) -> Login:
        """As whom to authenticate now. Raises CredentialsUnavailable."""

    def refused(self) -> None:
        """A server has refused the last ones."""


class Password:
    """``Credentials`` that never change."""

    blocks = False

    def __init__(self, login: Login) -> None:
        self._login = login

    def login(self) -> Login:
        return self._login

    def refused(self) -> None:
        pass


class LoginSession:
    """The authentication of one connection, which is due at the beginning, and again before its session ends.

    The server closes the connection at the first request after the end of the session.
    """

    def __init__(
        self, credentials: Credentials, clock_s: Callable[[], float] = time.monotonic, random: Random = _RANDOM
    ) -> None:
        self.credentials = credentials
        self._clock_s = clock_s
        self._random = random
        self._due_s = 0.0

    @property
    def is_due(self) -> bool:
        """Whether the connection must authenticate before its next request."""
        return self._clock_s() >= self._due_s

    def log_in(self, login: Login) -> LoginSteps:
        """The steps of ``login.log_in``. The session begins with the last one. Raises LoginFailed."""
        from .login import LoginFailed, log_in  # connections without SASL do without the mechanisms

        try:
            lifetime_s = yield from log_in(login)
        except LoginFailed:
            self.credentials.refused()
            raise
        part = self._random.uniform(EARLIEST, LATEST)
        self._due_s = self._clock_s() + max(part * lifetime_s, INTERVAL_S)
        return lifetime_s
