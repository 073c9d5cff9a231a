"""Ports: what a connection needs of its server, and of the pool of all connections."""

from __future__ import annotations

from typing import Protocol, TypeVar

from ..api import Route, Routes
from ..authentication.sasl_listener import SaslListener
from ..interceptor import Interceptor
from ..quotas.request_meter import RequestMeter
from ..services import Services
from .login_counts import LoginCounts
from .time_budget import TimeBudget


class SaslListeners(Protocol):
    def get(self, name: str) -> SaslListener | None:
        """What the connections of a listener with SASL have in common; None for a listener without it."""

    @property
    def logins(self) -> LoginCounts:
        """By SASL, and in TLS handshakes."""


class Server(Services, Protocol):
    """The server of a connection."""

    interceptor: Interceptor | None

    @property
    def sasl(self) -> SaslListeners: ...

    @property
    def routes(self) -> Routes: ...


C_contra = TypeVar("C_contra", contravariant=True)


class RouteSource(Protocol):
    """The routes of a connection."""

    def get(self, route_key: int, /) -> Route | None:
        """By API key << 16 | version. None if it is not loaded. Raises NotServed."""


class Pool(Protocol[C_contra]):
    """The pool of a connection: ``ConnectionPool``."""

    @property
    def server(self) -> Server: ...

    @property
    def budget(self) -> TimeBudget: ...

    @property
    def meter(self) -> RequestMeter | None:
        """Measures requests while there is a quota for them."""

    def add(self, connection: C_contra) -> bool:
        """Add an open connection. False if there are too many."""

    def lost(self, connection: C_contra) -> None:
        """The socket of a connection is gone. Its requests may still be handled."""

    def discard(self, connection: C_contra) -> None:
        """Remove a connection that has ended and whose requests are all handled."""

    def schedule_turn(self, connection: C_contra) -> None:
        """Let the connection handle its next requests in a later iteration of the event loop."""

    def schedule_responses(self, connection: C_contra) -> None:
        """Send the connection's responses at the end of this iteration of the event loop."""
