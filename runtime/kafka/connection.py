"""One client's connection: frames in, calls out, answers back in the order of the requests.

Kafka takes the next request of a connection only after it has answered the one before. Clients can tell: a heartbeat
behind a parked JoinGroup is not looked at, a fetch behind a commit sees it. So do we, with one exception that nobody
can tell apart: heartbeats and commits overlap with each other, so that a pipeline of commits shares one sync.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol, cast

from ..engine.reply import Reply
from .api import Route, find_route, open_routes
from .call import Call
from .codec.strict import why
from .codec.tags import is_refused_by_kio_only, skip_tagged_fields, without_unknown_tags
from .interceptor import Interceptor
from .services import Services

if TYPE_CHECKING:
    from socket import socket

log = logging.getLogger("callboard.kafka")

_SIZE = struct.Struct(">i")
_FRAME = struct.Struct(">iiih")  # size of what follows, api key and version, correlation id, length of the client id
_KIND = struct.Struct(">hh")  # api key, version
MIN_FRAME_BYTES = _FRAME.size - _SIZE.size

MAX_FRAMES_WAITING = 256
"""Requests of one connection that wait for an earlier one; beyond them its socket is not read."""

MAX_BYTES_WAITING = 1024 * 1024
"""The same in bytes: a request may be as large as ``socket_request_max_bytes``, and one such is enough to keep."""

MAX_CALLS_OPEN = 1024
"""Heartbeats and commits of one connection on their way; beyond them its socket is not read."""


class BadRequest(Exception):
    """What came is not a request of Kafka's that we serve. Kafka closes the connection then, and so do we."""


class ConnectionLimit(Protocol):
    """Whether one more connection may be open."""

    def are_taken(self, connections: int, peer: str) -> bool:
        """Whether ``connections`` open ones are as many as there may be. ``peer``: who wants another, for the log."""


class Server(Services, Protocol):
    """What a connection needs of the server that has accepted it."""

    interceptor: Interceptor | None

    @property
    def places(self) -> ConnectionLimit: ...

    @property
    def connections(self) -> set[Connection]:
        """All open ones. A connection adds and removes itself."""

    def take_soon(self, connection: Connection) -> None:
        """Let the connection handle its next request in one of the next turns of the loop."""

    def send_soon(self, connection: Connection) -> None:
        """Send the connection's responses when this turn of the loop is over."""


class Connection(asyncio.Protocol):
    """Bytes from and to one client."""

    def __init__(self, node: Server) -> None:
        self.node = node
        self.client_id = ""
        self.client_host = ""
        self.peer = "an unknown peer"  # for the log
        self._raw_client_id = b""
        self._transport: asyncio.Transport
        self._rest = bytearray()  # the beginning of a frame
        self._needed = 0  # bytes that ``_rest`` must have before it is looked at again
        self._frames: deque[bytes] = deque()  # complete, but an earlier request comes first
        self._bytes_waiting = 0  # of ``_frames``
        self._is_unsent = False  # whether the node will send our answers at the end of this turn
        self._calls: deque[Call] = deque()  # handled; unanswered, or answered behind an unanswered one
        self._is_alone = False  # the last call does not overlap with others
        self._is_due = False  # the first of ``_frames`` waits for nothing but its turn
        self._is_paused = False  # too much is on its way
        self._crowds = 0  # groups that have too much to do
        self._is_unread = False  # the client does not take its answers
        self._is_stopping = False
        self._is_refused = False  # what came is no request: the connection ends behind the answers to those before
        self._is_heard = True  # something came since the last look, or was to be answered then
        self._quiet_looks = 0
        self._is_gone = False  # the client hung up
        self._is_closed = False

    # From the socket -------------------------------------------------------------------------------------------------

    def fileno(self) -> int:
        """The socket's descriptor, -1 when it is closed."""
        own: socket | None = self._transport.get_extra_info("socket")
        return -1 if own is None else own.fileno()

    @property
    def is_local(self) -> bool:
        """Whether the client is known to be on this machine: it came by the loopback network.

        A client that resets its connection before it is accepted has no address any more, and may be anywhere.
        """
        peer = self._transport.get_extra_info("peername")
        return isinstance(peer, tuple) and is_loopback(peer[0])

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.client_host = java_address(peer[0]) if peer else ""
        self.peer = host_and_port(peer[0], peer[1]) if peer else "an unknown peer"
        if self.node.places.are_taken(len(self.node.connections), self.peer):
            self._is_closed = True
            self._transport.abort()
        else:
            self.node.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """What is parked stays: the member lives on until its session ends, as in Kafka.

        What came behind it stays too, and is taken when that is answered: a consumer that closes in the middle of a
        rebalance sends its LeaveGroup behind its JoinGroup and hangs up.
        """
        self._is_gone = True
        self._end_if_gone()

    def _end_if_gone(self) -> None:
        """Until then it is one of the node's connections, so that a stop does not leave its requests half done."""
        if self._is_gone and not (self._calls or (self._is_due and not self._is_unread)):
            self._is_closed = True
            self._forget_waiting()
            self.node.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        self._is_heard = True
        if self._is_refused:
            return  # still read, so that the peer's end is noticed
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return
            data = bytes(self._rest)
            self._rest.clear()
        try:
            self._split(data)
        except BadRequest as error:
            self._refuse(error)

    def pause_writing(self) -> None:
        """The client does not read its answers: take no more requests from it."""
        self._is_unread = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_unread = False
        if self._frames:
            self.answered()  # to take them up again
        self._read_on()

    # Frames ----------------------------------------------------------------------------------------------------------

    def _split(self, data: bytes, *, has_just_come: bool = True) -> None:
        """Handle the requests that may be handled now, and put aside the others.

        What comes in crowds has its turn a little later (``Server.take_soon``): while thousands of sockets are read in
        one turn of the loop, nobody else is answered.
        """
        position, end = 0, len(data)
        limit = self.node.settings.socket_request_max_bytes
        while end - position >= _FRAME.size and not self._is_closed:
            size, kind, correlation_id, id_length = _FRAME.unpack_from(data, position)
            behind = position + _SIZE.size + size
            if behind > end or not MIN_FRAME_BYTES <= size <= limit:
                break
            route = open_routes.get(kind) or _open_route(kind)
            if route.overlaps and not self._is_alone:
                self._handle(route, correlation_id, data, position + _FRAME.size, id_length, behind)
            elif self._is_alone or self._calls:
                self._wait(data[position:behind])
            elif route.in_crowds and has_just_come:
                self._wait(data[position:behind])
                self._is_due = True
                self.node.take_soon(self)
            else:
                self._handle(route, correlation_id, data, position + _FRAME.size, id_length, behind)
            position = behind
        if position < end and not self._is_closed:
            self._keep_rest(data[position:])

    def _keep_rest(self, rest: bytes) -> None:
        """The beginning of a frame: wait for the rest, unless its size alone says that it is none of Kafka's."""
        self._needed = _SIZE.size
        if len(rest) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(rest)
            limit = self.node.settings.socket_request_max_bytes
            if not MIN_FRAME_BYTES <= size <= limit:
                raise BadRequest(
                    f"a frame of {size} bytes: expected {MIN_FRAME_BYTES} to {limit} (socket_request_max_bytes)"
                )
            self._needed = _SIZE.size + size
        self._rest += rest

    def _wait(self, frame: bytes) -> None:
        """An earlier request comes first."""
        self._is_alone = True
        self._frames.append(frame)
        self._bytes_waiting += len(frame)
        if len(self._frames) >= MAX_FRAMES_WAITING or self._bytes_waiting >= MAX_BYTES_WAITING:
            self._pause()

    def _handle(
        self, route: Route, correlation_id: int, data: bytes, position: int, id_length: int, behind: int
    ) -> None:
        request = self._read(route, data, position, id_length, behind)
        interceptor = self.node.interceptor
        call = (Call if interceptor is None else interceptor.call)(self, route.schema, correlation_id, request)
        self._calls.append(call)
        if not route.overlaps:
            self._is_alone = True
        elif len(self._calls) >= MAX_CALLS_OPEN:
            self._pause()
        try:
            if interceptor is None:
                route.handle(call)
            else:
                interceptor.handle(call, route.handle)
        except Exception as error:
            self._calls.pop()
            log.exception("a bug in %s version %s", route.schema.name, route.schema.version)
            raise BadRequest(f"{route.schema.name} version {route.schema.version} could not be handled") from error

    def _read(self, route: Route, data: bytes, position: int, id_length: int, behind: int) -> Any:
        """The request's entity. ``position`` is that of the client id, ``behind`` the end of the frame."""
        body = position + id_length if id_length > 0 else position
        if data[position:body] != self._raw_client_id:
            self._read_client_id(data[position:body])
        try:
            if route.schema.flexible:
                body = skip_tagged_fields(data, body) if data[body] else body + 1
            request, size = route.schema.read(data, body)
        except (KeyError, ValueError, IndexError, OverflowError, route.schema.decode_error) as error:
            if not is_refused_by_kio_only(error):
                raise BadRequest(
                    f"{route.schema.name} version {route.schema.version} cannot be read: {why(error)}"
                ) from error
            request, size = self._read_without_unknown_tags(route, data[body:behind])
        if body + size > behind:
            raise BadRequest(f"{route.schema.name} version {route.schema.version} is cut off")
        return request

    def _read_client_id(self, raw: bytes) -> None:
        """Client ids are remembered, since they hardly ever change."""
        try:
            self.client_id = raw.decode()
        except UnicodeDecodeError as error:
            raise BadRequest(f"a client id that is not UTF-8: {raw[:40]!r}") from error
        self._raw_client_id = raw

    def _read_without_unknown_tags(self, route: Route, body: bytes) -> tuple[Any, int]:
        schema = route.schema
        try:
            return schema.read(without_unknown_tags(schema.request_type, body, 0), 0)[0], 0
        except (KeyError, ValueError, IndexError, OverflowError, schema.decode_error) as error:
            raise BadRequest(f"{schema.name} version {schema.version} cannot be read: {why(error)}") from error

    # Answers ---------------------------------------------------------------------------------------------------------

    def answered(self) -> None:
        """A call has got its payload. All that a turn answers is sent at the end of it, in one write a connection."""
        if not self._is_unsent:
            self._is_unsent = True
            self.node.send_soon(self)

    def send_answers(self) -> None:
        """Send what can be sent in the order of the requests, and take what waited for it."""
        self._is_unsent = False
        calls = self._calls
        payloads = []
        while calls and (payload := calls[0].payload) is not None:
            payloads.append(payload)
            calls.popleft()
        if payloads and not (self._is_closed or self._is_gone):
            self._transport.write(payloads[0] if len(payloads) == 1 else b"".join(payloads))
        if self._is_alone and not calls and not (self._is_unread and self._frames):
            self._is_alone = self._is_due = False
            if self._frames:
                self._take_waiting()
        if self._is_refused:
            self._close_when_answered()
        elif self._is_paused and self._has_room():
            self._is_paused = False
            self._read_on()
        if self._is_gone:
            self._end_if_gone()

    def _take_waiting(self) -> None:
        """Requests that waited for the ones before them, up to one that still has to wait: that one is filed again."""
        frames, self._frames = self._frames, deque()
        try:
            while frames and not self._is_alone:
                frame = frames.popleft()
                self._bytes_waiting -= len(frame)
                self._split(frame, has_just_come=False)
        except BadRequest as error:
            self._refuse(error)
        else:
            if not self._is_closed:
                self._frames.extend(frames)

    def _has_room(self) -> bool:
        return (
            not self._crowds
            and len(self._calls) < MAX_CALLS_OPEN // 2
            and len(self._frames) < MAX_FRAMES_WAITING // 2
            and self._bytes_waiting < MAX_BYTES_WAITING // 2
        )

    def pause_until(self, room: Reply) -> None:
        """Do not read until ``room`` is settled."""
        self._crowds += 1
        self._pause()
        room.on_done(self._has_been_made_room)

    def _has_been_made_room(self, _room: Reply) -> None:
        self._crowds -= 1
        if self._is_paused and self._has_room():
            self._is_paused = False
            self._read_on()

    def _pause(self) -> None:
        if not (self._is_paused or self._is_closed or self._is_gone):
            self._is_paused = True
            self._transport.pause_reading()

    def _read_on(self) -> None:
        """Read again, unless there is another reason not to."""
        if not (self._is_paused or self._is_unread or self._is_stopping or self._is_closed or self._is_gone):
            self._transport.resume_reading()

    def _forget_waiting(self) -> None:
        self._frames.clear()
        self._bytes_waiting = 0

    # The end ---------------------------------------------------------------------------------------------------------

    def _refuse(self, error: BadRequest) -> None:
        """As in Kafka, the requests before it are answered first: whoever pipelines a bad one hears that much."""
        if self._is_due:
            self.send_answers()
        if self._is_refused:
            return  # that one was bad, too
        log.warning("connection from %s closed: %s", self.peer, error)
        self._is_refused = True
        self._is_paused = False
        self._forget_waiting()
        self._read_on()
        self._close_when_answered()

    def _close_when_answered(self) -> None:
        if not self._calls:
            self.close()

    def quiet_looks(self) -> int:
        """How many looks in a row, with this one, have found that nothing came and no answer is owed (``idle.py``)."""
        is_quiet = not self._is_heard and not self._calls
        self._quiet_looks = self._quiet_looks + 1 if is_quiet else 0
        self._is_heard = bool(self._calls)  # its answer will be a sign of life, too
        return self._quiet_looks

    @property
    def is_open(self) -> bool:
        """Whether the client is there, as far as we know, and hears our answers."""
        return not (self._is_gone or self._is_closed)

    def stop_reading(self) -> None:
        """The server is stopping: answers still go out, requests no longer come in."""
        self._is_stopping = True
        self._forget_waiting()
        self._pause()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._forget_waiting()
            self._transport.close()

    def abort(self) -> None:
        """The server dies: what was answered and not sent is lost too."""
        self._is_closed = True
        self._forget_waiting()
        self._transport.abort()


def _open_route(kind: int) -> Route:
    """For the first request of its kind: ``kind`` is the API's key (16 bits) and the version."""
    key, version = _KIND.unpack(kind.to_bytes(4, "big", signed=True))
    route = find_route(key, version)
    if route is None:
        raise BadRequest(f"API key {key} version {version}: this server does not have it")
    return route


def host_and_port(host: str, port: int) -> str:
    """A peer's address as people write it: "127.0.0.1:50000", "[::1]:50000"."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether a peer's address is one of 127.0.0.0/8, also mapped into IPv6, or ::1."""
    import ipaddress

    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def java_address(host: str) -> str:
    """A peer's address as Java prints it, since DescribeGroups shows it: "/127.0.0.1", IPv6 in eight plain groups."""
    if ":" not in host:
        return f"/{host}"
    import ipaddress

    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return f"/{address.ipv4_mapped}"
    return "/" + ":".join(format(int(group, 16), "x") for group in address.exploded.split(":"))
