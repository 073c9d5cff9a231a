"""The states of a client that authenticates by SASL, as a table: what is done with a request in each state.

The table is that of Kafka's SaslServerAuthenticator. A request that is not in it closes the connection without an
answer.

============  =====================================================================================================
FIRST         Nothing has been received, or only ApiVersions in unknown versions
HANDSHAKE     ApiVersions has been answered
AUTHENTICATE  A mechanism has been chosen; its tokens come in SaslAuthenticate requests
RAW           The same with SaslHandshake v0: tokens come without a header, so a frame is no request
COMPLETE      The client is authenticated. SaslHandshake begins again if its session ends (KIP-368)
FAILED        Final: an error is answered after a delay, then the connection is closed
============  =====================================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

SASL_HANDSHAKE_KEY, API_VERSIONS_KEY, SASL_AUTHENTICATE_KEY = 17, 18, 36


class State(Enum):
    FIRST = auto()
    HANDSHAKE = auto()
    AUTHENTICATE = auto()
    RAW = auto()
    COMPLETE = auto()
    FAILED = auto()


class Received(Enum):
    """What kind of request, by its API key."""

    VERSIONS = API_VERSIONS_KEY
    HANDSHAKE = SASL_HANDSHAKE_KEY
    TOKEN = SASL_AUTHENTICATE_KEY
    OTHER = -1


KINDS: Mapping[int, Received] = {kind.value: kind for kind in Received}


class Action(Enum):
    ANSWER_VERSIONS = auto()
    BEGIN = auto()  # an exchange of the mechanism that the client has chosen
    TAKE_TOKEN = auto()
    REFUSE = auto()  # ILLEGAL_SASL_STATE after the delay, then the connection is closed


ACTIONS: Mapping[tuple[State, Received], Action] = {
    (State.FIRST, Received.VERSIONS): Action.ANSWER_VERSIONS,
    (State.FIRST, Received.HANDSHAKE): Action.BEGIN,
    (State.HANDSHAKE, Received.HANDSHAKE): Action.BEGIN,
    (State.AUTHENTICATE, Received.TOKEN): Action.TAKE_TOKEN,
    (State.AUTHENTICATE, Received.VERSIONS): Action.REFUSE,
    (State.AUTHENTICATE, Received.HANDSHAKE): Action.REFUSE,
    (State.AUTHENTICATE, Received.OTHER): Action.REFUSE,
}
