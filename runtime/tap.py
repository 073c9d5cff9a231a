"""The tap: where a test listens at the front door, and meddles.

A node has none (``node.tap`` is None), and then the door pays one look at that attribute for a request, and no more.
With one, every request of a client and every message from within the process passes it before anything else sees it.
``runtime/testing/wiretap.py`` is the one that there is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ..actors.engine_ports import ReplyTo
from ..actors.messages import GroupRequest
from .kafka.call import Call, ResponseChannel
from .kafka.schemas import Schema
from .kafka.services import GroupRouter, Origin


class Tap(Protocol):
    """All methods are called on the node's loop."""

    def call(self, connection: ResponseChannel, schema: Schema, correlation_id: int, request: Any) -> Call:
        """The place for an answer to a request that has just been read, instead of ``Call(...)``."""

    def handle(self, call: Call, handle: Callable[[Call], None]) -> None:
        """A request's turn has come: see to it that ``handle(call)`` is called, now, later or never.

        What ``handle`` raises now must get out: the connection knows what to do about it.
        """

    def ask(self, router: GroupRouter, message: GroupRequest, origin: Origin, reply: ReplyTo) -> None:
        """The same for a message from within the process: ``router.post(message, reply)`` sends it to its group."""

    def gone(self, origin: Origin) -> None:
        """Who has asked from within the process has hung up. May be said twice."""
