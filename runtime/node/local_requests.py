"""LocalRequests: requests of code in the node's own process, without a socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pykka

from ...actors.messages import GroupRequest
from ..kafka.interceptor import Interceptor
from ..kafka.services import MessageRouter, Origin

if TYPE_CHECKING:
    from ..engine.dispatcher import Dispatcher
    from ..engine.reply import Reply


class LocalChannel(Protocol):
    """The channel of a member in this process. The node closes it when it stops."""

    def close(self) -> None: ...


class Intercepted(Protocol):
    """The owner of the interceptor, which tests may change at any time."""

    interceptor: Interceptor | None


class LocalRequests:
    """Sends requests of this process to groups. ``channels``: those of members, which ``close`` closes."""

    def __init__(self, router: MessageRouter, owner: Intercepted, dispatcher: Dispatcher) -> None:
        self.post = router.post
        """``post(message, reply_to)`` sends a request that no interceptor sees."""
        self.channels: dict[LocalChannel, None] = {}
        self._router = router
        self._owner = owner
        self._dispatcher = dispatcher
        self._accepts_requests = True
        self._pending_replies: set[Reply] = set()

    @property
    def interceptor(self) -> Interceptor | None:
        return self._owner.interceptor

    def ask(self, message: GroupRequest, origin: Origin) -> Reply:
        """Send a request to a group like a client. The reply is set when a client would get it.

        The reply has no timeout. pykka.ActorDeadError if the node has stopped before it answered.
        """
        reply = self._dispatcher.new_reply()
        reply.timeout_s = float("inf")
        interceptor = self._owner.interceptor
        if not self._accepts_requests:
            reply.set_exception(_stopped())
        elif interceptor is None:
            self.post(message, reply)
        else:
            interceptor.ask(self._router, message, origin, reply)
        if not reply.done():
            self._pending_replies.add(reply)
            reply.on_done(self._pending_replies.discard)
        return reply

    def stop_accepting(self) -> None:
        """Refuse every request from now on."""
        self._accepts_requests = False

    def close(self) -> None:
        """Close all channels and fail every unanswered request."""
        for channel in tuple(self.channels):
            channel.close()
        for reply in tuple(self._pending_replies):
            reply.set_exception(_stopped())


def _stopped() -> tuple[type[BaseException], BaseException, None]:
    """The error of requests to a stopped node, in the form of ``sys.exc_info()``."""
    return pykka.ActorDeadError, pykka.ActorDeadError("the coordinator has stopped"), None
