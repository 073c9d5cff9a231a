"""Interceptor: lets a test observe, delay, replace or drop requests and responses.

``Server.interceptor`` is None in production. If it is set, every request of a client and every message of this process
goes through it first. ``FaultInterceptor`` implements it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ...actors.engine_ports import ReplyTo
from ...actors.messages import GroupRequest
from .call import Call, ResponseChannel
from .codec.schemas import Schema
from .services import MessageRouter, Origin


class Interceptor(Protocol):
    """All methods are called on the node's event loop."""

    def call(self, connection: ResponseChannel, schema: Schema, correlation_id: int, request: Any) -> Call:
        """Make the ``Call`` for a request that was just decoded, or a subclass of it."""

    def handle(self, call: Call, handle: Callable[[Call], None]) -> None:
        """Handle a request by ``handle(call)``, now, later or never.

        Exceptions that ``handle`` raises now must propagate: the connection handles them.
        """

    def refused(self, connection: ResponseChannel, reason: str) -> None:
        """A connection is closed because of bytes that are not a request, or one that is not served."""

    def ask(self, router: MessageRouter, message: GroupRequest, origin: Origin, reply: ReplyTo) -> None:
        """Handle a message from this process: ``router.post(message, reply)`` sends it to its group."""

    def disconnected(self, origin: Origin) -> None:
        """A client in this process has disconnected. May be called twice."""
