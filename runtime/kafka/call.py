"""A decoded request and its response slot on the connection."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from typing import Any, Protocol

from ...actors.engine_ports import ReplyTo
from ...actors.error_reply import error_reply
from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.messages import GroupRequest, TxnOffsetCommit
from ...actors.steps import Steps
from ...actors.transactions.messages import AddPartitions, TransactionRequest, VerifyPartitions
from ...actors.transactions.peers import Peers
from ..common.shared_bytes import SharedBytes
from ..engine.reply import Reply
from .authentication.principal import Principal
from .authorization.grants import Grants
from .codec.codes import kafka_error
from .codec.schemas import Schema
from .codec.step_writer import write_in_steps
from .release import ReleaseJob, release_collections, release_request
from .services import Services

log = logging.getLogger("callboard.kafka")

NO_ACKS = 0
"""A Produce request with this in ``acks`` has no response, not even an error."""

_HEADER = struct.Struct(">ii")  # size of the rest, correlation id
_FLEXIBLE_HEADER = struct.Struct(">iib")  # the same, and an empty section of tagged fields

Body = bytes | Steps[bytes | SharedBytes]
"""The body of a response, or the work that makes it, whose result may be NO_BODY."""

NO_BODY = SharedBytes(())
"""This very object is the result of work that has completed the call without a response."""

Encoder = Callable[["Call", Any], Body]
Converter = Callable[[Body], Body]


def with_header(schema: Schema, correlation_id: int, body: bytes | SharedBytes) -> bytes | SharedBytes:
    """Return the frame of a response. Raises struct.error if it is too large."""
    if schema.flexible_header:
        return _FLEXIBLE_HEADER.pack(len(body) + 5, correlation_id, 0) + body
    return _HEADER.pack(len(body) + 4, correlation_id) + body


class Reauthentication(Protocol):
    """Authenticates a client again, when its session ends (KIP-368)."""

    def begin_again(self, call: Call) -> bool:
        """Answer a SaslHandshake. False if the client may not begin again now."""

    def take_again(self, call: Call) -> bool:
        """Answer a SaslAuthenticate. False if the client has not begun."""


class ResponseChannel(Protocol):
    """The connection of a call."""

    client_id: str
    client_host: str
    """The address in Kafka's notation, "/127.0.0.1"."""

    software: str
    """Name and version of the client's library, as ApiVersions says; "" if it does not."""

    principal: Principal
    grants: Grants | None
    """What the client was allowed; None before it was asked."""

    @property
    def authenticator(self) -> Reauthentication | None:
        """None for a client whose session does not end."""

    listener: str
    """The name of the listener that the client has connected to."""

    peer: str
    """Host and port, for the log."""

    @property
    def is_local(self) -> bool:
        """Whether the client is on this machine."""

    @property
    def services(self) -> Services: ...

    @property
    def is_open(self) -> bool:
        """Whether neither side has closed the connection."""

    def on_response_ready(self) -> None:
        """Send the responses that are ready, in the order of the requests. Called when a call got its payload."""

    def pause_until(self, room: Reply) -> None:
        """Stop reading requests until ``room`` is settled."""

    def mute(self, delay_ms: int) -> None:
        """Read and handle no requests for a time, because the client is above a quota."""

    def close(self) -> None: ...


class Call:
    """A request that an ``api`` module handles. It must be answered exactly once, now or later.

    ``request`` is kio's entity of ``schema.version``. A call is also an ``actors.engine_ports.ReplyTo``: ``ask_group``
    sends a message to an actor and sets the encoder of its reply. An encoder that takes long returns ``Steps``.
    """

    __slots__ = ("_encode", "_message", "connection", "correlation_id", "payload", "request", "schema")

    def __init__(self, connection: ResponseChannel, schema: Schema, correlation_id: int, request: Any) -> None:
        self.connection = connection
        self.schema = schema
        self.correlation_id = correlation_id
        self.request = request
        self.payload: bytes | SharedBytes | None = None
        self._encode: Encoder
        self._message: Any = None  # a GroupRequest or a TransactionRequest

    @property
    def services(self) -> Services:
        return self.connection.services

    @property
    def version(self) -> int:
        return self.schema.version

    @property
    def principal(self) -> Principal:
        """In whose name the request is sent."""
        return self.connection.principal

    def make(self, type_name: str, **values: Any) -> Any:
        return self.schema.make(type_name, **values)

    def respond(self, response: Any) -> None:
        """Answer with an entity of kio's response class."""
        self.respond_with_bytes(self.schema.write(response))

    def respond_with_bytes(self, body: bytes | SharedBytes) -> None:
        """Answer with an encoded body. A request whose body is ``SharedBytes`` must not overlap with others.

        Does nothing if the request was answered before, because the answer did not come in time.
        """
        if self.payload is not None:
            return
        try:
            self.payload = with_header(self.schema, self.correlation_id, body)
        except struct.error:
            log.error(
                "a response of %d bytes to %s is too large: %s", len(body), self.connection.peer, self.schema.name
            )
            self.respond_with_error()
        else:
            self.connection.on_response_ready()

    def respond_in_steps(self, response: Any) -> Steps[None]:
        """Answer with an entity whose arrays of entities may be iterators, see ``codec.step_writer``."""
        self.respond_with_bytes((yield from write_in_steps(response)))

    def respond_with_nothing(self) -> None:
        """Complete the call without a response: for Produce with acks=0."""
        if self.payload is not None:
            return
        self.payload = b""
        self.connection.on_response_ready()

    def ask_group(self, message: GroupRequest, encode: Encoder) -> None:
        """Send a message to its group; ``encode(call, reply)`` makes the response body from the reply."""
        self._message = message
        self._encode = encode
        self.connection.services.groups.post(message, self)

    def ask_group_through(self, message: GroupRequest, encode: Encoder, reply_to: ReplyTo) -> None:
        """Like ``ask_group``. The reply goes to ``reply_to``, which passes it on to ``set`` or ``set_exception``."""
        self._message = message
        self._encode = encode
        self.connection.services.groups.post(message, reply_to)

    def ask_transactions(
        self, message: TransactionRequest | TxnOffsetCommit, encode: Encoder, coordinator: Peers | None = None
    ) -> None:
        """Like ``ask_group``, for a message to the TransactionsActor, or to that of another node."""
        self._message = message
        self._encode = encode
        if coordinator is None:
            self.connection.services.transactions.post(message, self)
        else:
            assert isinstance(message, AddPartitions | VerifyPartitions), "other nodes answer only these"
            coordinator.check(message, self.set)

    def set(self, value: Any = None) -> None:
        """Receive the actor's reply."""
        try:
            body = self._encode(self, value)
        except Exception:
            self.fail()
        else:
            if isinstance(body, bytes):
                self.respond_with_bytes(body)
            else:
                self.services.slices.run_in_turn(EncodingJob(self, body))

    def encode_and_respond(self, encode: Callable[[], Body]) -> None:
        """Answer with the body that ``encode`` makes, or UNKNOWN_SERVER_ERROR if it raises.

        The call does not keep ``encode``, which refers to the call: only the garbage collector frees such a circle.
        """
        try:
            body = encode()
        except Exception:
            self.fail()
        else:
            if isinstance(body, bytes):
                self.respond_with_bytes(body)
            else:
                self.services.slices.run_in_turn(EncodingJob(self, body))

    def fail(self) -> None:
        """Log the current exception and answer UNKNOWN_SERVER_ERROR, so that it does not reach the actor."""
        log.exception("%s version %s cannot be answered", self.schema.name, self.schema.version)
        self.respond_with_error()

    def respond_with_error(self, code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR) -> None:
        """Answer that the whole request has failed, in each entry if the response has entries.

        Close the connection if the response has no error field in this version, or if the client expects no response.
        """
        from .error_response import error_response_in_steps  # rarely needed

        is_silent = getattr(self.request, "acks", None) == NO_ACKS
        steps = None if is_silent else error_response_in_steps(self.schema, self.request, kafka_error(code))
        if steps is None:
            self.connection.close()
        else:
            self.services.slices.run(ErrorJob(self, steps))

    def set_exception(self, exc_info: Any = None) -> None:
        """Log the exception that the actor raised, and answer with an error code."""
        error = exc_info[1] if exc_info else None
        code = error.code if isinstance(error, CoordinatorError) else ErrorCode.UNKNOWN_SERVER_ERROR
        if self.connection.is_open:
            log.warning("%s is answered with %s", type(self._message).__name__, code.name, exc_info=error)
        self.set(error_reply(self._message, code))

    def wait_for_room(self, room: Reply) -> None:
        """Read no more requests of this client until ``room`` is settled: the mailbox is full."""
        self.connection.pause_until(room)


class LargeCall(Call):
    """A request that was decoded in steps. When it is answered, its items are freed in steps, too.

    ``items``: their number, when they are decoded.
    """

    __slots__ = ("items",)

    def __init__(self, connection: ResponseChannel, schema: Schema, correlation_id: int, request: Any) -> None:
        super().__init__(connection, schema, correlation_id, request)
        self.items = 0

    def respond_with_bytes(self, body: bytes | SharedBytes) -> None:
        is_first = self.payload is None
        super().respond_with_bytes(body)
        if is_first:
            self.release()

    def respond_with_nothing(self) -> None:
        is_first = self.payload is None
        super().respond_with_nothing()
        if is_first:
            self.release()

    def release(self) -> None:
        """Free the request in steps. The call keeps it: after an answer at the deadline its handler may go on."""
        self.services.slices.batches.forget(self)
        self.services.slices.run_later(ReleaseJob(release_request(self.request, self._message)))


def release_later(call: Call, *collections: Any) -> None:
    """Free what was made from a large request in steps: for the end of a function that has used it."""
    if isinstance(call, LargeCall):
        call.services.slices.run_later(ReleaseJob(release_collections(*collections)))


def shorten(call: Call, request: Any, message: GroupRequest) -> None:
    """Keep only these while the call waits, since its answer needs no more."""
    if isinstance(call, LargeCall):
        call.release()
    call.request, call._message = request, message


def message_of(call: Call) -> Any:
    """The message that was sent to a group or to the TransactionsActor; None before."""
    return call._message


def watch(call: Call, observe: Callable[[Any], None]) -> None:
    """Call ``observe`` with the reply to the message that was sent, before the response is made of it."""
    encode: Encoder | None = getattr(call, "_encode", None)
    if encode is None:
        return  # it was answered without a message

    def observe_and_encode(call: Call, reply: Any) -> Body:
        observe(reply)
        return encode(call, reply)

    call._encode = observe_and_encode


def convert_answer(call: Call, convert: Converter) -> None:
    """Convert the body that is made of the reply to the message that was sent."""
    encode: Encoder | None = getattr(call, "_encode", None)
    if encode is not None:
        call._encode = lambda call, reply: convert(encode(call, reply))


class EncodingJob:
    """Makes the body of a response in slices. Implements ``slices.Job``."""

    __slots__ = ("_call", "steps")

    is_answer = True

    def __init__(self, call: Call, steps: Steps[bytes | SharedBytes]) -> None:
        self._call = call
        self.steps = steps

    @property
    def connection(self) -> ResponseChannel:
        return self._call.connection

    @property
    def is_wanted(self) -> bool:
        return self._call.connection.is_open

    def finish(self, result: bytes | SharedBytes) -> None:
        if result is not NO_BODY:
            self._call.respond_with_bytes(result)

    def fail(self, error: Exception) -> None:
        self._call.fail()

    def drop(self) -> None:
        self._call.respond_with_nothing()


class ErrorJob(EncodingJob):
    """Makes an error response. If that fails, no other response can be made."""

    __slots__ = ()

    def fail(self, error: Exception) -> None:
        schema = self._call.schema
        log.error("no error response can be made for %s version %s", schema.name, schema.version, exc_info=error)
        self._call.connection.close()


class QueuedReplySlot:
    """Receives a reply and puts it into the response queue."""

    __slots__ = ("_call", "_group_id")

    def __init__(self, call: Call, group_id: str) -> None:
        self._call = call
        self._group_id = group_id

    def set(self, value: Any = None) -> None:
        self._call.services.response_queue.add(self._group_id, self._call, value)

    def set_exception(self, exc_info: Any = None) -> None:
        self._call.set_exception(exc_info)

    def wait_for_room(self, room: Reply) -> None:
        self._call.wait_for_room(room)
