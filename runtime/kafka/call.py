"""One request on its way through the house: what was asked, by whom, and the place where the answer goes."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from typing import Any, Protocol

from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.messages import GroupRequest, JoinGroup, SyncGroup, TxnOffsetCommit
from ...actors.refusal import refusal
from ...actors.transactions.messages import TransactionRequest
from ..engine.reply import Reply
from .codec.codes import kafka_error
from .codec.schemas import Schema
from .services import Services

log = logging.getLogger("callboard.kafka")

_HEADER = struct.Struct(">ii")  # size of what follows, correlation id
_FLEXIBLE_HEADER = struct.Struct(">iib")  # the same and an empty section of tagged fields

Encoder = Callable[["Call", Any], bytes]


class ResponseChannel(Protocol):
    """The connection of a call, as the call sees it."""

    client_id: str
    client_host: str
    peer: str
    """Host and port, for the log."""

    @property
    def is_local(self) -> bool:
        """Whether the client is on this machine."""

    @property
    def node(self) -> Services: ...

    @property
    def is_open(self) -> bool:
        """Whether a response can still reach the client, as far as the server knows."""

    def answered(self) -> None:
        """The payload of one of its calls is set: send what can be sent in the order of the requests."""

    def pause_until(self, room: Reply) -> None:
        """Read no more requests until ``room`` is settled."""

    def close(self) -> None: ...


class Call:
    """A request that an ``api`` module handles. It must be answered exactly once, now or later.

    ``request`` is kio's entity of ``schema.version``. Answers leave the connection in the order of its requests. It is
    an ``actors.engine_ports.ReplyTo`` too: ``ask`` sends a message to an actor and says how to encode the answer.
    """

    __slots__ = ("_encode", "_message", "connection", "correlation_id", "payload", "request", "schema")

    def __init__(self, connection: ResponseChannel, schema: Schema, correlation_id: int, request: Any) -> None:
        self.connection = connection
        self.schema = schema
        self.correlation_id = correlation_id
        self.request = request
        self.payload: bytes | None = None
        self._encode: Encoder
        self._message: GroupRequest | TransactionRequest

    @property
    def node(self) -> Services:
        return self.connection.node

    @property
    def version(self) -> int:
        return self.schema.version

    @property
    def client_id(self) -> str:
        return self.connection.client_id

    @property
    def client_host(self) -> str:
        """The peer as Kafka writes it: "/127.0.0.1"."""
        return self.connection.client_host

    def make(self, type_name: str, **values: Any) -> Any:
        return self.schema.make(type_name, **values)

    def reply(self, response: Any) -> None:
        """Answer with an entity of kio's response class."""
        self.reply_bytes(self.schema.write(response))

    def reply_bytes(self, body: bytes) -> None:
        """Answer with a body that is already encoded in this version."""
        try:
            if self.schema.flexible_header:
                self.payload = _FLEXIBLE_HEADER.pack(len(body) + 5, self.correlation_id, 0) + body
            else:
                self.payload = _HEADER.pack(len(body) + 4, self.correlation_id) + body
        except struct.error:
            log.error("an answer of %d bytes to %s is too large: %s", len(body), self.connection.peer, self.schema.name)
            self.answer_with_error()
        else:
            self.connection.answered()

    def reply_nothing(self) -> None:
        """Produce with acks=0 gets no answer at all."""
        self.payload = b""
        self.connection.answered()

    def ask(self, message: GroupRequest, encode: Encoder) -> None:
        """Send a message to its group; ``encode(call, answer)`` makes the body when the answer comes."""
        self._message = message
        self._encode = encode
        self.connection.node.groups.post(message, self)

    def ask_with_others(self, message: JoinGroup | SyncGroup, encode: Encoder) -> None:
        """The same for what all members of a group ask, and are answered at once: see ``response_queue``."""
        self._message = message
        self._encode = encode
        self.connection.node.groups.post(message, OneOfMany(self, message.group_id))

    def ask_transactions(self, message: TransactionRequest | TxnOffsetCommit, encode: Encoder) -> None:
        """The same for what concerns a transaction."""
        self._message = message
        self._encode = encode
        self.connection.node.transactions.post(message, self)

    def set(self, value: Any = None) -> None:
        """The group's answer."""
        try:
            body = self._encode(self, value)
        except Exception:
            self.fail()
        else:
            self.reply_bytes(body)

    def finish(self, encode: Callable[[], bytes]) -> None:
        """Answer with what ``encode`` makes, in an actor's turn."""
        try:
            body = encode()
        except Exception:
            self.fail()
        else:
            self.reply_bytes(body)

    def fail(self) -> None:
        """No error of one call's may get into the actor that answers it; the client hears UNKNOWN_SERVER_ERROR."""
        log.exception("%s version %s cannot be answered", self.schema.name, self.schema.version)
        self.answer_with_error()

    def answer_with_error(self) -> None:
        """Answer with an error alone. The connection ends where the version has no place for an error."""
        from .refusing import error_body  # hardly ever needed

        try:
            body = error_body(self.schema, self.request, kafka_error(ErrorCode.UNKNOWN_SERVER_ERROR))
        except Exception:
            log.exception("%s version %s cannot be refused", self.schema.name, self.schema.version)
            body = None
        if body is None:
            self.connection.close()
        else:
            self.reply_bytes(body)

    def set_exception(self, exc_info: Any = None) -> None:
        """The group could not answer: the client hears an error code, and the log says why."""
        error = exc_info[1] if exc_info else None
        code = error.code if isinstance(error, CoordinatorError) else ErrorCode.UNKNOWN_SERVER_ERROR
        if self.connection.is_open:
            log.warning("%s is answered %s", type(self._message).__name__, code.name, exc_info=error)
        self.set(refusal(self._message, code))

    def wait_for_room(self, room: Reply) -> None:
        """The group has too much to do: take no more from this client until it has caught up."""
        self.connection.pause_until(room)


class OneOfMany:
    """The place for an answer that comes together with very many others of its group."""

    __slots__ = ("_call", "_group_id")

    def __init__(self, call: Call, group_id: str) -> None:
        self._call = call
        self._group_id = group_id

    def set(self, value: Any = None) -> None:
        self._call.node.response_queue.add(self._group_id, self._call, value)

    def set_exception(self, exc_info: Any = None) -> None:
        self._call.set_exception(exc_info)

    def wait_for_room(self, room: Reply) -> None:
        self._call.wait_for_room(room)
