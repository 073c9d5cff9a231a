"""The connection of one client: splits bytes into frames, handles requests, sends responses in the requests' order.

Kafka handles the next request of a connection after it has answered the previous one. Clients can observe this: a
heartbeat that follows a pending JoinGroup is not handled, and a fetch that follows a commit sees it. This server
does the same, with one exception that clients cannot observe: heartbeats and commits overlap with each other, so
pipelined commits share one sync.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol, cast

from ..engine.reply import Reply
from .api import Route, find_route, loaded_routes
from .call import Call
from .codec.tags import is_refused_by_kio_only, skip_tagged_fields, without_unknown_tags
from .codec.validation import describe_decode_error
from .interceptor import Interceptor
from .services import Services

if TYPE_CHECKING:
    from socket import socket

log = logging.getLogger("callboard.kafka")

_SIZE = struct.Struct(">i")
_FRAME = struct.Struct(">iiih")  # size of what follows, api key and version, correlation id, length of the client id
_ROUTE_KEY = struct.Struct(">hh")  # api key, version
MIN_FRAME_BYTES = _FRAME.size - _SIZE.size

MAX_FRAMES_WAITING = 256
"""Queued requests of one connection. When there are as many, its socket is not read."""

MAX_BYTES_WAITING = 1024 * 1024
"""The same limit in bytes. One request may be larger: up to ``socket_request_max_bytes``."""

MAX_CALLS_OPEN = 1024
"""Unanswered requests of one connection. When there are as many, its socket is not read."""


class BadRequest(Exception):
    """The bytes are not a valid request, or its API is not served. The connection is closed, as in Kafka."""


class Server(Services, Protocol):
    """The server of a connection."""

    interceptor: Interceptor | None


class Pool(Protocol):
    """The pool of a connection: ``ConnectionPool``."""

    @property
    def server(self) -> Server: ...

    def add(self, connection: Connection) -> bool:
        """Add an open connection. False if there are too many."""

    def discard(self, connection: Connection) -> None:
        """Remove a connection that has ended and whose requests are all handled."""

    def schedule_request(self, connection: Connection) -> None:
        """Let the connection handle its next request in a later iteration of the event loop."""

    def schedule_responses(self, connection: Connection) -> None:
        """Send the connection's responses at the end of this iteration of the event loop."""


class Connection(asyncio.Protocol):
    """The connection of one client."""

    def __init__(self, pool: Pool) -> None:
        self.services = pool.server
        self._pool = pool
        self.client_id = ""
        self.client_host = ""
        self.peer = "an unknown peer"  # for the log
        self._raw_client_id = b""
        self._transport: asyncio.Transport
        self._partial_frame = bytearray()
        self._bytes_needed = 0  # length of ``_partial_frame`` at which it is parsed again
        self._frames: deque[bytes] = deque()  # complete requests that wait for an earlier one
        self._queued_bytes = 0  # size of ``_frames``
        self._is_send_scheduled = False  # the server sends the responses at the end of this iteration
        self._calls: deque[Call] = deque()  # unanswered, or answered after an unanswered one
        self._is_blocked = False  # requests wait: the last call does not overlap, or others wait
        self._is_request_scheduled = False  # the first of ``_frames`` waits only for its iteration
        self._is_paused = False  # too many requests are queued or unanswered
        self._full_groups = 0  # groups whose mailbox is full
        self._is_write_blocked = False  # the client does not read its responses
        self._is_stopping = False
        self._has_bad_request = False  # the connection closes after the responses to earlier requests
        self._had_activity = True  # since the last idle check: bytes arrived, or a request was unanswered
        self._idle_checks = 0
        self._is_disconnected = False  # the client closed the connection
        self._is_closed = False

    # From the socket -------------------------------------------------------------------------------------------------

    def fileno(self) -> int:
        """The file descriptor of the socket, -1 if it is closed."""
        own: socket | None = self._transport.get_extra_info("socket")
        return -1 if own is None else own.fileno()

    @property
    def is_local(self) -> bool:
        """Whether the client is on this machine: its address is a loopback address.

        False if the client reset the connection before it was accepted, because its address is then unknown.
        """
        peer = self._transport.get_extra_info("peername")
        return isinstance(peer, tuple) and is_loopback(peer[0])

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.client_host = java_address(peer[0]) if peer else ""
        self.peer = host_and_port(peer[0], peer[1]) if peer else "an unknown peer"
        if not self._pool.add(self):
            self._is_closed = True
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Keep pending requests: a member stays in its group until its session expires, as in Kafka.

        Queued requests are kept too, and handled after the pending one: a consumer that closes during a rebalance sends
        LeaveGroup after its pending JoinGroup and disconnects.
        """
        self._is_disconnected = True
        self._finish_if_disconnected()

    def _finish_if_disconnected(self) -> None:
        """Stay in the pool until all requests are handled, so that a stop waits for them."""
        if self._is_disconnected and not (self._calls or (self._is_request_scheduled and not self._is_write_blocked)):
            self._is_closed = True
            self._clear_queued_frames()
            self._pool.discard(self)

    def data_received(self, data: bytes) -> None:
        self._had_activity = True
        if self._has_bad_request:
            return  # the socket is still read, so that a disconnect is noticed
        if self._partial_frame:
            self._partial_frame += data
            if len(self._partial_frame) < self._bytes_needed:
                return
            data = bytes(self._partial_frame)
            self._partial_frame.clear()
        try:
            self._handle_frames(data)
        except BadRequest as error:
            self._reject(error)

    def pause_writing(self) -> None:
        """The client does not read its responses: read no more requests."""
        self._is_write_blocked = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_write_blocked = False
        if self._frames:
            self.on_response_ready()  # handles the queued frames
        self._resume_reading()

    # Frames ----------------------------------------------------------------------------------------------------------

    def _handle_frames(self, data: bytes, *, may_defer: bool = True) -> None:
        """Handle the requests that may be handled now, and queue the others.

        JoinGroup and SyncGroup are deferred (``Pool.schedule_request``). If the requests of thousands of members were
        handled in one iteration of the loop, all other clients would wait for them.
        """
        position, end = 0, len(data)
        limit = self.services.settings.socket_request_max_bytes
        while end - position >= _FRAME.size and not self._is_closed:
            size, route_key, correlation_id, id_length = _FRAME.unpack_from(data, position)
            frame_end = position + _SIZE.size + size
            if frame_end > end or not MIN_FRAME_BYTES <= size <= limit:
                break
            route = loaded_routes.get(route_key) or _open_route(route_key)
            if route.overlaps and not self._is_blocked:
                self._handle_request(route, correlation_id, data, position + _FRAME.size, id_length, frame_end)
            elif self._is_blocked or self._calls:
                self._queue_frame(data[position:frame_end])
            elif route.comes_in_bursts and may_defer:
                self._queue_frame(data[position:frame_end])
                self._is_request_scheduled = True
                self._pool.schedule_request(self)
            else:
                self._handle_request(route, correlation_id, data, position + _FRAME.size, id_length, frame_end)
            position = frame_end
        if position < end and not self._is_closed:
            self._keep_partial_frame(data[position:])

    def _keep_partial_frame(self, rest: bytes) -> None:
        """Keep an incomplete frame. Raises BadRequest if its size is out of range."""
        self._bytes_needed = _SIZE.size
        if len(rest) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(rest)
            limit = self.services.settings.socket_request_max_bytes
            if not MIN_FRAME_BYTES <= size <= limit:
                raise BadRequest(
                    f"a frame of {size} bytes: expected {MIN_FRAME_BYTES} to {limit} (socket_request_max_bytes)"
                )
            self._bytes_needed = _SIZE.size + size
        self._partial_frame += rest

    def _queue_frame(self, frame: bytes) -> None:
        """Queue a request until the earlier ones are answered."""
        self._is_blocked = True
        self._frames.append(frame)
        self._queued_bytes += len(frame)
        if len(self._frames) >= MAX_FRAMES_WAITING or self._queued_bytes >= MAX_BYTES_WAITING:
            self._pause()

    def _handle_request(
        self, route: Route, correlation_id: int, data: bytes, position: int, id_length: int, frame_end: int
    ) -> None:
        request = self._decode_request(route, data, position, id_length, frame_end)
        interceptor = self.services.interceptor
        call = (Call if interceptor is None else interceptor.call)(self, route.schema, correlation_id, request)
        self._calls.append(call)
        if not route.overlaps:
            self._is_blocked = True
        elif len(self._calls) >= MAX_CALLS_OPEN:
            self._pause()
        try:
            if interceptor is None:
                route.handle(call)
            else:
                interceptor.handle(call, route.handle)
        except Exception as error:
            self._calls.pop()
            log.exception("internal error in %s version %s", route.schema.name, route.schema.version)
            raise BadRequest(f"{route.schema.name} version {route.schema.version} could not be handled") from error

    def _decode_request(self, route: Route, data: bytes, position: int, id_length: int, frame_end: int) -> Any:
        """Return kio's entity of a request. ``position``: where the client id begins."""
        body = position + id_length if id_length > 0 else position
        if data[position:body] != self._raw_client_id:
            self._update_client_id(data[position:body])
        try:
            if route.schema.flexible:
                body = skip_tagged_fields(data, body) if data[body] else body + 1
            request, size = route.schema.read(data, body)
        except (KeyError, ValueError, IndexError, OverflowError, route.schema.decode_error) as error:
            if not is_refused_by_kio_only(error):
                raise BadRequest(
                    f"{route.schema.name} version {route.schema.version} cannot be read: {describe_decode_error(error)}"
                ) from error
            request, size = self._decode_without_unknown_tags(route, data[body:frame_end])
        if body + size > frame_end:
            raise BadRequest(f"{route.schema.name} version {route.schema.version} is truncated")
        return request

    def _update_client_id(self, raw: bytes) -> None:
        """Decode the client id. It is cached because it rarely changes."""
        try:
            self.client_id = raw.decode()
        except UnicodeDecodeError as error:
            raise BadRequest(f"the client id is not UTF-8: {raw[:40]!r}") from error
        self._raw_client_id = raw

    def _decode_without_unknown_tags(self, route: Route, body: bytes) -> tuple[Any, int]:
        schema = route.schema
        try:
            return schema.read(without_unknown_tags(schema.request_type, body, 0), 0)[0], 0
        except (KeyError, ValueError, IndexError, OverflowError, schema.decode_error) as error:
            raise BadRequest(
                f"{schema.name} version {schema.version} cannot be read: {describe_decode_error(error)}"
            ) from error

    # Responses -------------------------------------------------------------------------------------------------------

    def on_response_ready(self) -> None:
        """Schedule the responses: those of one iteration of the loop are sent in one write."""
        if not self._is_send_scheduled:
            self._is_send_scheduled = True
            self._pool.schedule_responses(self)

    def send_responses(self) -> None:
        """Send the responses that are ready, in the order of the requests; then handle queued requests."""
        self._is_send_scheduled = False
        calls = self._calls
        payloads = []
        while calls and (payload := calls[0].payload) is not None:
            payloads.append(payload)
            calls.popleft()
        if payloads and not (self._is_closed or self._is_disconnected):
            self._transport.write(payloads[0] if len(payloads) == 1 else b"".join(payloads))
        if self._is_blocked and not calls and not (self._is_write_blocked and self._frames):
            self._is_blocked = self._is_request_scheduled = False
            if self._frames:
                self._handle_queued_frames()
        if self._has_bad_request:
            self._close_when_answered()
        elif self._is_paused and self._has_room():
            self._is_paused = False
            self._resume_reading()
        if self._is_disconnected:
            self._finish_if_disconnected()

    def _handle_queued_frames(self) -> None:
        """Handle queued requests up to one that has to wait; that one is queued again."""
        frames, self._frames = self._frames, deque()
        try:
            while frames and not self._is_blocked:
                frame = frames.popleft()
                self._queued_bytes -= len(frame)
                self._handle_frames(frame, may_defer=False)
        except BadRequest as error:
            self._reject(error)
        else:
            if not self._is_closed:
                self._frames.extend(frames)

    def _has_room(self) -> bool:
        return (
            not self._full_groups
            and len(self._calls) < MAX_CALLS_OPEN // 2
            and len(self._frames) < MAX_FRAMES_WAITING // 2
            and self._queued_bytes < MAX_BYTES_WAITING // 2
        )

    def pause_until(self, room: Reply) -> None:
        """Stop reading requests until ``room`` is settled."""
        self._full_groups += 1
        self._pause()
        room.on_done(self._on_room_made)

    def _on_room_made(self, _room: Reply) -> None:
        self._full_groups -= 1
        if self._is_paused and self._has_room():
            self._is_paused = False
            self._resume_reading()

    def _pause(self) -> None:
        if not (self._is_paused or self._is_closed or self._is_disconnected):
            self._is_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        """Read again, unless another condition forbids it."""
        if not (
            self._is_paused or self._is_write_blocked or self._is_stopping or self._is_closed or self._is_disconnected
        ):
            self._transport.resume_reading()

    def _clear_queued_frames(self) -> None:
        self._frames.clear()
        self._queued_bytes = 0

    # Closing ---------------------------------------------------------------------------------------------------------

    def _reject(self, error: BadRequest) -> None:
        """Close the connection after the responses to earlier requests, as in Kafka."""
        if self._is_request_scheduled:
            self.send_responses()
        if self._has_bad_request:
            return  # the scheduled request was bad too
        log.warning("connection from %s closed: %s", self.peer, error)
        self._has_bad_request = True
        self._is_paused = False
        self._clear_queued_frames()
        self._resume_reading()
        self._close_when_answered()

    def _close_when_answered(self) -> None:
        if not self._calls:
            self.close()

    def count_idle_checks(self) -> int:
        """Check for activity; return how many checks in a row, with this one, found none (see ``idle.py``)."""
        is_idle = not self._had_activity and not self._calls
        self._idle_checks = self._idle_checks + 1 if is_idle else 0
        self._had_activity = bool(self._calls)  # its response will count as activity
        return self._idle_checks

    @property
    def is_open(self) -> bool:
        """Whether neither side has closed the connection."""
        return not (self._is_disconnected or self._is_closed)

    def stop_reading(self) -> None:
        """Read no more requests, because the server is stopping. Responses are still sent."""
        self._is_stopping = True
        self._clear_queued_frames()
        self._pause()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._clear_queued_frames()
            self._transport.close()

    def abort(self) -> None:
        """Close at once, without sending what is buffered: for a simulated crash."""
        self._is_closed = True
        self._clear_queued_frames()
        self._transport.abort()


def _open_route(route_key: int) -> Route:
    """Load the route of an API key (upper 16 bits) and version. Raises BadRequest if it is not served."""
    key, version = _ROUTE_KEY.unpack(route_key.to_bytes(4, "big", signed=True))
    route = find_route(key, version)
    if route is None:
        raise BadRequest(f"API key {key} version {version} is not served")
    return route


def host_and_port(host: str, port: int) -> str:
    """Format an address: "127.0.0.1:50000", "[::1]:50000"."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether an address is in 127.0.0.0/8 (also mapped into IPv6), or is ::1."""
    import ipaddress

    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def java_address(host: str) -> str:
    """Format an address as Java does, for DescribeGroups: "/127.0.0.1"; IPv6 as eight groups without "::"."""
    if ":" not in host:
        return f"/{host}"
    import ipaddress

    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return f"/{address.ipv4_mapped}"
    return "/" + ":".join(format(int(group, 16), "x") for group in address.exploded.split(":"))
