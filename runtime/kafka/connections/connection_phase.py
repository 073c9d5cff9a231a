"""The phases of a connection as a table: which event ends a phase, and which one follows.

==============  ========================================================================================================
HANDSHAKE       The client has connected. With TLS its handshake is not over
AUTHENTICATING  The client proves who it is. A listener without authentication ends this phase at once
SERVING         Requests are handled and answered
DRAINING        After a bad request, or when the server stops: earlier requests are answered, then the socket is closed
CLOSING         The server has closed the socket. Written responses are still sent, further ones are dropped
DETACHED        The socket is gone. Received requests are still handled, as in Kafka; their responses are dropped
CLOSED          Final: no socket and no request is left
==============  ========================================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto


class Phase(Enum):
    """``is_open``: the socket is read, and responses are sent. ``takes_requests``: received bytes are requests.

    ``is_ending``: the connection only waits for the answers of its requests, see ``Event.ALL_ANSWERED``.
    """

    #                  name             is_open  takes_requests  is_ending
    HANDSHAKE = ("handshake", True, False, False)
    AUTHENTICATING = ("authenticating", True, False, False)
    SERVING = ("serving", True, True, False)
    DRAINING = ("draining", True, False, True)
    CLOSING = ("closing", False, False, False)
    DETACHED = ("detached", False, False, True)
    CLOSED = ("closed", False, False, False)

    def __init__(self, _name: str, is_open: bool, takes_requests: bool, is_ending: bool) -> None:
        self.is_open = is_open
        self.takes_requests = takes_requests
        self.is_ending = is_ending


class Event(Enum):
    """What happens to a connection and may change its phase."""

    CONNECTED = auto()  # the transport is ready: the TLS handshake is over, if there is one
    AUTHENTICATED = auto()  # the principal of the client is known
    BAD_REQUEST = auto()  # bytes that are not a valid request or TLS, or a bug of a handler
    STOP = auto()  # the server stops
    CLOSE = auto()  # the server closes the socket
    LOST = auto()  # the socket is gone: the client or the server has closed it
    ALL_ANSWERED = auto()  # no request is queued or unanswered


class UndefinedEvent(Exception):
    """The event cannot happen in this phase: a bug."""


NEXT_PHASE: Mapping[tuple[Phase, Event], Phase] = {
    (Phase.HANDSHAKE, Event.CONNECTED): Phase.AUTHENTICATING,
    (Phase.HANDSHAKE, Event.BAD_REQUEST): Phase.DRAINING,
    (Phase.HANDSHAKE, Event.STOP): Phase.DRAINING,
    (Phase.HANDSHAKE, Event.CLOSE): Phase.CLOSING,
    (Phase.HANDSHAKE, Event.LOST): Phase.DETACHED,
    (Phase.AUTHENTICATING, Event.AUTHENTICATED): Phase.SERVING,
    (Phase.AUTHENTICATING, Event.BAD_REQUEST): Phase.DRAINING,
    (Phase.AUTHENTICATING, Event.STOP): Phase.DRAINING,
    (Phase.AUTHENTICATING, Event.CLOSE): Phase.CLOSING,
    (Phase.AUTHENTICATING, Event.LOST): Phase.DETACHED,
    (Phase.SERVING, Event.BAD_REQUEST): Phase.DRAINING,
    (Phase.SERVING, Event.STOP): Phase.DRAINING,
    (Phase.SERVING, Event.CLOSE): Phase.CLOSING,
    (Phase.SERVING, Event.LOST): Phase.DETACHED,
    (Phase.DRAINING, Event.BAD_REQUEST): Phase.DRAINING,
    (Phase.DRAINING, Event.STOP): Phase.DRAINING,
    (Phase.DRAINING, Event.CLOSE): Phase.CLOSING,
    (Phase.DRAINING, Event.LOST): Phase.DETACHED,
    (Phase.DRAINING, Event.ALL_ANSWERED): Phase.CLOSING,
    (Phase.CLOSING, Event.BAD_REQUEST): Phase.CLOSING,
    (Phase.CLOSING, Event.STOP): Phase.CLOSING,
    (Phase.CLOSING, Event.CLOSE): Phase.CLOSING,
    (Phase.CLOSING, Event.LOST): Phase.DETACHED,
    (Phase.DETACHED, Event.BAD_REQUEST): Phase.DETACHED,
    (Phase.DETACHED, Event.STOP): Phase.DETACHED,
    (Phase.DETACHED, Event.CLOSE): Phase.DETACHED,
    (Phase.DETACHED, Event.ALL_ANSWERED): Phase.CLOSED,
    (Phase.CLOSED, Event.CLOSE): Phase.CLOSED,
}


def next_phase(phase: Phase, event: Event) -> Phase:
    """Return the phase after an event. Raises UndefinedEvent if the event cannot happen in this phase."""
    following = NEXT_PHASE.get((phase, event))
    if following is None:
        raise UndefinedEvent(f"{event.name} in phase {phase.name}")
    return following
