"""A request whose handler works in steps."""

from __future__ import annotations

import logging
from typing import Protocol

from ...actors.steps import Steps
from .api import Route
from .call import Call
from .framing import BadRequest
from .pending_requests import PendingRequests
from .services import Services

log = logging.getLogger("callboard.kafka")


class RequestSource(Protocol):
    """The connection of a request."""

    requests: PendingRequests

    @property
    def services(self) -> Services: ...

    @property
    def is_open(self) -> bool: ...

    def reject(self, error: BadRequest) -> None:
        """Close the connection after the responses to earlier requests."""


class HandlingJob:
    """Handles a request in slices. Implements ``slices.Job``.

    If the client is gone, a request that only reads is given up. One that changes something is handled, as in Kafka.
    """

    __slots__ = ("_call", "_connection", "_route", "steps")

    def __init__(self, connection: RequestSource, route: Route, call: Call, steps: Steps[None]) -> None:
        self._connection = connection
        self._route = route
        self._call = call
        self.steps = steps

    @property
    def is_wanted(self) -> bool:
        return self._connection.is_open or not self._route.reads_only

    def finish(self, result: None) -> None:
        """The handler has answered, or has sent the message that will be answered."""

    def fail(self, error: Exception) -> None:
        if self._call.payload is None:
            self._connection.requests.remove_call(self._call)
        self._connection.reject(as_bad_request(error, self._route))

    def drop(self) -> None:
        self._call.respond_with_nothing()


def run_handler(connection: RequestSource, route: Route, call: Call) -> None:
    """Handle a request, in slices if its handler works in steps."""
    steps = route.handle(call)
    if steps is not None:
        run_in_slices(connection, route, call, steps)


def run_in_slices(connection: RequestSource, route: Route, call: Call, steps: Steps[None]) -> None:
    """Handle a request in slices. Later requests of its connection wait until it is answered."""
    connection.requests.has_exclusive_call = True
    connection.services.slices.run(HandlingJob(connection, route, call, steps))


def as_bad_request(error: Exception, route: Route) -> BadRequest:
    """The reason to close the connection, for an exception of a handler, which is being handled. Logs a bug."""
    if isinstance(error, BadRequest):
        return error
    log.exception("internal error in %s version %s", route.schema.name, route.schema.version)
    return BadRequest(f"{route.schema.name} version {route.schema.version} could not be handled")
