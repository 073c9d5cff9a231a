"""Requests that a node answers only while it has its lease: afterwards another node may own the groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...actors.errors import ErrorCode
from ...actors.steps import Steps
from .call import Call, ResponseChannel
from .codec.schemas import Schema

AtOnce = Callable[[ResponseChannel, Schema, Any], bytes | None]
"""Returns the body of the response to a request; None if the request has to be handled as usual."""

Handler = Callable[[Call], Steps[None] | None]


def at_once_with_lease(answer_at_once: AtOnce, has_lease: Callable[[], bool]) -> AtOnce:
    """Return a function that answers nothing at once without a lease."""
    return lambda channel, schema, request: answer_at_once(channel, schema, request) if has_lease() else None


def with_lease(handle: Handler, has_lease: Callable[[], bool]) -> Handler:
    """Return a handler that refuses with NOT_COORDINATOR without a lease.

    The lease is checked after the request was received, so the answer is as new as any that the client has seen.
    """

    def handle_with_lease(call: Call) -> Steps[None] | None:
        if has_lease():
            return handle(call)
        call.respond_with_error(ErrorCode.NOT_COORDINATOR)
        return None

    return handle_with_lease
