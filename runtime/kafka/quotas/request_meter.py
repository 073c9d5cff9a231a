"""RequestMeter: measures the event loop's time for the requests of clients, and throttles those above their quota.

It is attached to the connections only while there is such a quota. It measures reading, decoding and handling requests,
and long work in slices; not the work of the groups' actors and of the log, which requests of all clients share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from ...common.shared_bytes import SharedBytes
from ..authentication.principal import Principal
from ..connections.connection_phase import Phase
from ..connections.pending_requests import PendingRequests
from ..slices import SliceMeter
from .client_quotas import ClientQuotas
from .throttling import with_throttle_time


class MeteredConnection(Protocol):
    """A connection of a client."""

    principal: Principal
    client_id: str
    phase: Phase
    requests: PendingRequests

    def mute(self, delay_ms: int) -> None:
        """Read and handle no requests for a time."""


class MeteredPool(Iterable[Any], Protocol):
    """The connections of a server. New ones get its ``meter``."""

    meter: RequestMeter | None


class MeteredSlices(Protocol):
    """Long work of the connections."""

    meter: SliceMeter | None


class RequestMeter:
    """``clock_ns``: monotonic."""

    def __init__(
        self, quotas: ClientQuotas, connections: MeteredPool, slices: MeteredSlices, clock_ns: Callable[[], int]
    ) -> None:
        self._quotas = quotas
        self._connections = connections
        self._slices = slices
        self._clock_ns = clock_ns
        self._is_measuring = False
        quotas.on_change.append(self.update)
        self.update()

    def update(self) -> None:
        """Measure requests if there is a quota for them, else not."""
        meter = self if self._quotas.has_request_quotas else None
        if meter is not self._connections.meter:
            self._connections.meter = self._slices.meter = meter
            for connection in self._connections:
                connection.meter = meter

    def measures(self, connection: MeteredConnection, work: Callable[..., object], *arguments: Any) -> bool:
        """Do ``work`` of a connection and measure it. False, without doing it, inside of work that is measured."""
        if self._is_measuring:
            return False
        self._is_measuring = True
        was_authenticating = connection.phase is Phase.AUTHENTICATING
        begin_ns = self._clock_ns()
        try:
            work(connection, *arguments)
        finally:
            self._is_measuring = False
            if connection.phase.takes_requests or not was_authenticating:  # else it is not known who the client is
                self._add(connection, self._clock_ns() - begin_ns)
        return True

    def add_slice(self, connection: Any, spent_ns: int) -> None:
        """See ``slices.SliceMeter``."""
        if connection is not None and not self._is_measuring:  # else it is measured with the work that it is in
            self._add(connection, spent_ns)

    def _add(self, connection: Any, spent_ns: int) -> None:
        self._quotas.add_time(connection.principal.name, connection.client_id, spent_ns)

    def throttle(self, connection: MeteredConnection, payloads: list[bytes | SharedBytes]) -> None:
        """Mute a connection above its quota, and say so in the last of the responses that are sent now."""
        throttle_ms = self._quotas.request_throttle_ms(connection.principal.name, connection.client_id)
        schema = connection.requests.answered_last
        if throttle_ms and schema is not None:
            payloads[-1] = with_throttle_time(schema, payloads[-1], throttle_ms)
            connection.mute(throttle_ms)
