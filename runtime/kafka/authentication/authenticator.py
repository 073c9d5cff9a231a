"""Authenticator: authenticates one client by SASL, before its connection serves requests, and again (KIP-368).

``sasl_states`` has the table of what is done with which request. Until the client is authenticated only ApiVersions,
SaslHandshake and SaslAuthenticate are handled, one after the other, and nothing of them reaches an actor. Then the
connection does without this object, unless the session of the client ends.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

from ....actors.errors import ErrorCode
from ....actors.text import printable
from ...security.exchange import Accepted, AuthenticationFailed, Blocking, Challenge, Exchange, Failure, Step
from ..api import Route, Routes
from ..audit.audited import who
from ..call import Call, ResponseChannel
from ..codec.codes import kafka_error
from ..connections.client_buffers import BufferHolder
from ..connections.connection_ports import Server
from ..connections.framing import BadRequest, NotServed
from ..connections.holds import Hold, Holds
from ..connections.request_decoding import decode_client_id, decode_request, open_route
from ..connections.request_names import route_name
from ..connections.unread_bytes import UNCOUNTED_BYTES
from ..error_response import encode_error_response
from .principal import USER, Principal
from .sasl_frames import SaslFrames, parse_header, sized
from .sasl_listener import SaslListener
from .sasl_states import ACTIONS, KINDS, SASL_AUTHENTICATE_KEY, SASL_HANDSHAKE_KEY, Action, Received, State
from .time_limit import TimeLimit

REAUTHENTICATION_INTERVAL_MS = 1000
"""A client may not begin again more often (KafkaChannel)."""
REFUSED_REQUEST_BYTES_MAX = 8192
"""A larger request is not decoded before authentication, to be refused."""
MECHANISM_CHARS_SHOWN = 40
"""Of the name of an unknown mechanism in the log."""
ERROR_CODE = slice(8, 10)
"""The position of the error in a response to ApiVersions, whose header never has tagged fields."""
NO_ERROR_CODE = b"\0\0"
NO_DETAILS: Mapping[str, str] = {}

log = logging.getLogger("callboard.kafka")


class Writer(Protocol):
    """Sends bytes to the client."""

    def write(self, data: bytes) -> None: ...


class Authenticating(ResponseChannel, BufferHolder, Protocol):
    """The connection of an ``Authenticator``."""

    holds: Holds

    @property
    def services(self) -> Server: ...

    @property
    def transport(self) -> Writer: ...

    @property
    def is_authenticating(self) -> bool:
        """Whether no request is served yet."""

    def hold(self, hold: Hold, *, is_held: bool) -> None:
        """Do not read the socket for this reason, or no longer."""

    def authenticated(self, principal: Principal, rest: bytes, again: Authenticator | None) -> None:
        """Serve requests of this principal. ``rest``: what was received of them. ``again``: if the session ends."""

    def reject(self, error: BadRequest) -> None: ...

    def send_responses(self) -> None: ...


class Authenticator:
    """``state``: see ``sasl_states``."""

    def __init__(self, connection: Authenticating, listener: SaslListener) -> None:
        self.state = State.FIRST
        self._connection = connection
        self._listener = listener
        self._frames = SaslFrames()
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._is_busy = False  # a token is being checked
        self._is_counted = False  # the bytes that are not split yet
        self._ends_ms: int | None = None  # when the session ends; None: never
        self._began_again_ms: int | None = None
        time_out = partial(_time_out, weakref.ref(self))
        self.time_limit = TimeLimit(connection.services.later, listener.timeout_ms, time_out)
        if not connection.holds.reasons:
            self.time_limit.begin()

    # Before the connection serves requests ---------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Handle the bytes of a client that is not authenticated."""
        if self.state is not State.FAILED:
            self._frames.received += data
            self._handle_frames()

    def _handle_frames(self) -> None:
        """Handle one frame. The next one waits for a turn of the loop, because many clients may send some at once.

        The socket is not read while they cannot be handled.
        """
        is_behind = False
        try:
            frame = self._frames.next(self._listener.max_receive_bytes) if self._is_receiving else None
            if frame is not None:
                self._handle(frame)
                is_behind = self._is_receiving and bool(self._frames.received)
        except BadRequest as error:
            self.state = State.FAILED
            self._connection.reject(error)
        if is_behind:
            self._connection.services.later(0, self._handle_frames)
        if self._connection.is_authenticating:
            is_waiting = is_behind or self._is_busy or self.state is State.FAILED
            self._connection.hold(Hold.AUTHENTICATING, is_held=is_waiting)
            self._count_unread()

    def time_out(self) -> None:
        """Disconnect the client if it has not authenticated."""
        if self._connection.is_authenticating and self.state is not State.FAILED:
            self.state = State.FAILED
            self._connection.services.sasl.logins.fail(self._mechanism, Failure.TIMEOUT)
            timeout_ms = self._listener.timeout_ms
            self._connection.reject(NotServed(f"not authenticated within {timeout_ms} ms (authentication_timeout_ms)"))

    def release(self) -> None:
        """The client has disconnected: drop what it has sent."""
        self._frames = SaslFrames()
        self.time_limit.end()

    @property
    def _is_receiving(self) -> bool:
        """Whether the next frame may be handled now."""
        return self._connection.is_authenticating and not self._is_busy and self.state is not State.FAILED

    def _count_unread(self) -> None:
        size_bytes = len(self._frames.received)
        if size_bytes > UNCOUNTED_BYTES or self._is_counted:
            self._is_counted = size_bytes > UNCOUNTED_BYTES
            self._connection.services.buffers.unread.set(self._connection, size_bytes if self._is_counted else 0)

    def _handle(self, frame: bytes) -> None:
        if self.state is State.RAW:
            self._take_token(frame, None)
            return
        header = parse_header(frame)
        self._connection.client_id = decode_client_id(header.raw_client_id)
        kind = KINDS.get(header.route_key >> 16, Received.OTHER)
        action = ACTIONS.get((self.state, kind))
        if action is None or (action is Action.REFUSE and len(frame) > REFUSED_REQUEST_BYTES_MAX):
            raise NotServed(f"{route_name(header.route_key)} before authentication (state {self.state.name})")
        route = open_route(self._connection.services.routes, header.route_key)
        request = decode_request(route, frame, header.body_start, len(frame))
        call = Call(self._connection, route.schema, header.correlation_id, request)
        if action is Action.ANSWER_VERSIONS:
            self._answer_versions(route, call)
        elif action is Action.BEGIN:
            self._begin(call)
        elif action is Action.TAKE_TOKEN:
            self._take_token(call.request.auth_bytes, call)
        else:
            self._refuse(call)

    def _answer_versions(self, route: Route, call: Call) -> None:
        route.handle(call)
        self._send(call)
        if bytes(call.payload or b"")[ERROR_CODE] == NO_ERROR_CODE:
            self.state = State.HANDSHAKE

    def _send(self, call: Call) -> None:
        """Send an answer. After authentication the connection does it, which has the call."""
        if self._connection.is_authenticating and call.payload is not None:
            self._connection.transport.write(bytes(call.payload))

    # The exchange ----------------------------------------------------------------------------------------------------

    def _begin(self, call: Call) -> None:
        """Begin an exchange: answer SaslHandshake."""
        mechanism = self._listener.mechanisms.get(call.request.mechanism)
        if mechanism is None:
            names = tuple(self._listener.mechanisms)
            reason = f"the client has chosen the mechanism {printable(call.request.mechanism[:MECHANISM_CHARS_SHOWN])}"
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            self._fail(reason, Failure.MECHANISM, lambda: answer_handshake(call, code, names), call)
        elif not self._listener.parts.store.is_known:
            raise NotServed("the users are not known yet: the store of the cluster was not read")
        else:
            self._mechanism = mechanism.name
            self._exchange = mechanism.begin(self._listener.parts)
            self.state = State.AUTHENTICATE if call.version else State.RAW
            answer_handshake(call, ErrorCode.NONE, tuple(self._listener.mechanisms))
            self._send(call)

    def _take_token(self, token: bytes, call: Call | None) -> None:
        """``call``: None for a token without a header."""
        assert self._exchange is not None, "a mechanism was chosen"
        exchange = self._exchange
        self._advance(lambda: exchange.evaluate(token), call)

    def _advance(self, evaluate: Callable[[], Step], call: Call | None) -> None:
        try:
            step = evaluate()
            if isinstance(step, Challenge):
                self._answer_token(call, step.token)
            elif isinstance(step, Accepted):
                self._accept(step, call)
            else:
                self._is_busy = True
                work = partial(_unless_gone, self._connection, step.work)
                self._listener.worker.submit(work, lambda result: self._worked(step, result, call))
        except AuthenticationFailed as failure:
            self._fail_token(failure, call)

    def _worked(self, step: Blocking, result: Any, call: Call | None) -> None:
        self._is_busy = False
        if self._connection.is_open:
            self._advance(lambda: step.finish(result), call)
            if self._connection.is_authenticating:
                self._handle_frames()

    def _answer_token(self, call: Call | None, token: bytes, lifetime_ms: int = 0) -> None:
        if call is None:
            self._connection.transport.write(sized(token))
        else:
            answer_token(call, ErrorCode.NONE, "", token, lifetime_ms)
            self._send(call)

    def _accept(self, accepted: Accepted, call: Call | None) -> None:
        connection, principal = self._connection, Principal(USER, accepted.name)
        is_first = connection.is_authenticating
        if not is_first and principal != connection.principal:
            names = f"User.{connection.principal.name}: User.{principal.name}"
            text = f"Cannot change principals during re-authentication from {names}"
            raise AuthenticationFailed("the user is not the same as before", text, Failure.USER)
        lifetime_ms = self._listener.lifetime_ms(accepted.expires_at_ms, accepted.grace_ms)
        self._ends_ms = None if lifetime_ms is None else self._listener.monotonic_ms() + lifetime_ms
        self._answer_token(call, accepted.token, lifetime_ms or 0)
        self.state, self._exchange = State.COMPLETE, None
        connection.services.sasl.logins.accept(self._mechanism)
        connection.services.audit.authenticated(
            who(connection)._replace(principal=str(principal)), self._mechanism, NO_DETAILS
        )
        self.time_limit.end()
        if is_first:
            rest, self._frames = bytes(self._frames.received), SaslFrames()
            self._count_unread()
            connection.authenticated(principal, rest, None if self._ends_ms is None else self)

    # Failures --------------------------------------------------------------------------------------------------------

    def _refuse(self, call: Call) -> None:
        """Refuse a request that comes instead of a token."""
        body = encode_error_response(call.schema, call.request, kafka_error(ErrorCode.ILLEGAL_SASL_STATE))
        if body is None:
            raise NotServed(f"{call.schema.name} during authentication")
        reason = "another request came instead of a token"
        self._fail(reason, Failure.MESSAGE, lambda: call.respond_with_bytes(body), call)

    def _fail_token(self, failure: AuthenticationFailed, call: Call | None) -> None:
        what = "authentication" if self._connection.is_authenticating else "re-authentication"
        text = failure.text or (
            f"Authentication failed during {what} due to invalid credentials with SASL mechanism {self._mechanism}"
        )

        def answer() -> None:
            if call is not None:
                answer_token(call, ErrorCode.SASL_AUTHENTICATION_FAILED, text)

        self._fail(failure.reason, failure.kind, answer, call)

    def _fail(self, reason: str, kind: Failure, answer: Callable[[], None], call: Call | None) -> None:
        """Answer and close after the delay. Nothing is read meanwhile."""
        self.state, self._exchange = State.FAILED, None
        self._connection.services.sasl.logins.fail(self._mechanism, kind)
        self._log_failure(reason)
        self._connection.services.later(self._listener.failure_delay_ms, lambda: self._end(answer, call))

    def _end(self, answer: Callable[[], None], call: Call | None) -> None:
        connection = self._connection
        if connection.is_open:
            answer()
            if call is not None:
                self._send(call)
            connection.send_responses()
            connection.close()

    def _log_failure(self, reason: str) -> None:
        connection = self._connection
        connection.services.audit.refused(who(connection)._replace(principal=""), self._mechanism, reason)
        text = f"authentication failed: {reason}"
        if connection.services.over_limit.named.add(connection, text):
            log.info(
                "connection from %s: %s (mechanism %s, listener %s, logged once)",
                *(connection.peer, text, self._mechanism or "unknown", connection.listener),
            )

    # Re-authentication (KIP-368) -------------------------------------------------------------------------------------

    def begin_again(self, call: Call) -> bool:
        """Answer a SaslHandshake of a client that is authenticated. False if it may not begin again now.

        Raises NotServed for a mechanism that is not enabled.
        """
        if not self._may_begin_again:
            return False
        if call.request.mechanism not in self._listener.mechanisms:
            raise NotServed("the client has begun to authenticate again with a mechanism that is not enabled")
        self._began_again_ms = self._listener.monotonic_ms()
        if call.request.mechanism == self._mechanism and call.version > 0:
            self._begin(call)
        else:  # as in Kafka the next frame is refused; after version 0 it would be a token without a header
            self.state = State.FAILED
            answer_handshake(call, ErrorCode.NONE, tuple(self._listener.mechanisms))
        return True

    def take_again(self, call: Call) -> bool:
        """Answer a SaslAuthenticate of a client that has begun again. False if it has not."""
        if self.state is not State.AUTHENTICATE:
            return False
        self._take_token(call.request.auth_bytes, call)
        return True

    @property
    def _may_begin_again(self) -> bool:
        began_ms = self._began_again_ms
        is_soon = began_ms is not None and self._listener.monotonic_ms() - began_ms < REAUTHENTICATION_INTERVAL_MS
        return self.state is State.COMPLETE and self._ends_ms is not None and not is_soon

    def route_of(self, route_key: int, route: Route) -> Route:
        """The route of a request of a client whose session ends. Raises NotServed if it must authenticate first."""
        key = route_key >> 16
        if self.state is State.FAILED:
            raise NotServed("the client has failed to authenticate again")
        if self.state is State.COMPLETE:
            is_over = self._ends_ms is not None and self._ends_ms <= self._listener.monotonic_ms()
            if is_over and not (key == SASL_HANDSHAKE_KEY and self._may_begin_again):
                raise NotServed("the session has ended, and the client has not authenticated again")
            return route
        if key == SASL_AUTHENTICATE_KEY:
            return route
        return route._replace(handle=self._refuse, overlaps=False, comes_in_bursts=False, answer_at_once=None)


def _unless_gone(connection: Authenticating, work: Callable[[], Any]) -> Any:
    """Do work in the thread of the worker, unless the client was disconnected meanwhile: others wait for the thread."""
    return work() if connection.is_open else None


def _time_out(authenticator: weakref.ref[Authenticator]) -> None:
    """The timer does not keep the connection of a client that has disconnected."""
    if (own := authenticator()) is not None:
        own.time_out()


class SessionRoutes:
    """The routes of a client whose session ends: each request is checked before it is handled."""

    def __init__(self, routes: Routes, authenticator: Authenticator) -> None:
        self._routes = routes
        self._authenticator = authenticator

    def get(self, route_key: int) -> Route:
        """``route_key``: API key << 16 | version. Raises NotServed."""
        route = self._routes.loaded.get(route_key) or open_route(self._routes, route_key)
        return self._authenticator.route_of(route_key, route)


def answer_handshake(call: Call, error: ErrorCode, mechanisms: tuple[str, ...]) -> None:
    call.respond(call.make("SaslHandshakeResponse", error_code=kafka_error(error), mechanisms=mechanisms))


def answer_token(call: Call, error: ErrorCode, text: str, token: bytes = b"", lifetime_ms: int = 0) -> None:
    call.respond(
        call.make(
            "SaslAuthenticateResponse",
            error_code=kafka_error(error),
            error_message=text,
            auth_bytes=token,
            session_lifetime=timedelta(milliseconds=lifetime_ms),
        )
    )
