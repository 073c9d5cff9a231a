"""Requests that are decoded or handled in steps."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, Protocol

from ....actors.errors import ErrorCode
from ....actors.steps import Steps
from ..api import Route
from ..call import Call, LargeCall, ResponseChannel
from ..codec.codes import kafka_error
from ..codec.stepped_reading import ItemCount
from ..error_response import encode_whole_error
from ..interceptor import Interceptor
from ..refusals import report_over_limit
from ..services import Services
from .framing import BadRequest, OverLimit
from .pending_requests import PendingRequests
from .request_decoding import decode_in_steps

LARGE_REQUEST_BYTES = 8192
"""A larger body is decoded in steps. A smaller one takes at most a millisecond, and has fewer items than any limit."""

log = logging.getLogger("callboard.kafka")


class InterceptedServices(Services, Protocol):
    """The services of a connection."""

    interceptor: Interceptor | None


class RequestSource(ResponseChannel, Protocol):
    """The connection of a request."""

    requests: PendingRequests

    @property
    def services(self) -> InterceptedServices: ...

    def reject(self, error: BadRequest) -> None:
        """Close the connection after the responses to earlier requests."""


class HandlingJob:
    """Handles a request in slices. Implements ``slices.Job``.

    If the client is gone, a request that only reads is given up. One that changes something is handled, as in Kafka.
    """

    __slots__ = ("_call", "_route", "connection", "steps")

    is_answer = False

    def __init__(self, connection: RequestSource, route: Route, call: Call, steps: Steps[None]) -> None:
        self.connection = connection
        self._route = route
        self._call = call
        self.steps = steps

    @property
    def is_wanted(self) -> bool:
        return self.connection.is_open or not self._route.reads_only

    def finish(self, result: None) -> None:
        """The handler has answered, or has sent the message that will be answered."""

    def fail(self, error: Exception) -> None:
        if self._call.payload is None:
            self.connection.requests.remove_call(self._call)
        self.connection.reject(as_bad_request(error, self._route))

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


def handle_large(
    connection: RequestSource, route: Route, correlation_id: int, data: bytes, body_start: int, end: int
) -> None:
    """Decode and handle a large request in slices. The positions are those of ``framing.Frame``."""
    call = LargeCall(connection, route.schema, correlation_id, None)
    connection.requests.calls.append(call)
    items_max: int = getattr(connection.services.settings, route.limit)
    count = ItemCount(items_max)
    decoding = decode_in_steps(route, data, body_start, end, count)
    run_in_slices(connection, route, call, _decode_and_handle(connection, route, call, decoding, count))


def _decode_and_handle(
    connection: RequestSource, route: Route, call: LargeCall, decoding: Steps[Any], count: ItemCount
) -> Steps[None]:
    try:
        call.request = yield from decoding
        call.items = count.read
    except OverLimit as error:
        if not _has_answered(connection, call, error):
            raise
        return
    interceptor = connection.services.interceptor
    if interceptor is not None:
        _handle_intercepted(connection, route, call, interceptor)
    elif (steps := route.handle(call)) is not None:
        yield from steps


def _has_answered(connection: RequestSource, call: Call, error: OverLimit) -> bool:
    """Answer INVALID_REQUEST, unless the response has no error of the whole request.

    Does not raise ``error``: its traceback would have this frame, and this frame has ``error``, so both would keep the
    bytes of the request until the garbage collector runs.
    """
    body = encode_whole_error(call.schema, kafka_error(ErrorCode.INVALID_REQUEST))
    if body is None:
        return False
    report_over_limit(call, error.limit, error.reason)
    call.respond_with_bytes(body)
    return True


def _handle_intercepted(connection: RequestSource, route: Route, call: Call, interceptor: Interceptor) -> None:
    """Replace the call by one of the interceptor, which needs the decoded request."""
    calls = connection.requests.calls
    position = calls.index(call)
    calls[position] = intercepted = interceptor.call(connection, route.schema, call.correlation_id, call.request)
    try:
        interceptor.handle(intercepted, partial(run_handler, connection, route))
    except Exception:
        calls[position] = call  # which the caller removes
        raise


def as_bad_request(error: Exception, route: Route) -> BadRequest:
    """The reason to close the connection, for an exception of a handler, which is being handled. Logs a bug."""
    if isinstance(error, BadRequest):
        return error
    log.exception("internal error in %s version %s", route.schema.name, route.schema.version)
    return BadRequest(f"{route.schema.name} version {route.schema.version} could not be handled")
