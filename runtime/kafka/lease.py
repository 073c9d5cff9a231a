"""Requests that a node answers only while it has its lease: afterwards another node may own the groups."""

from __future__ import annotations

from collections.abc import Callable

from ...actors.errors import ErrorCode
from ...actors.steps import Steps
from .call import Call

Handler = Callable[[Call], Steps[None] | None]


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
