"""Throttling as of KIP-219: the response goes out at once and says how long the client has to wait.

Meanwhile its connection is not read, in case it does not wait by itself.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import fields
from functools import cache, partial
from socket import SO_LINGER, SOL_SOCKET
from typing import Any, Protocol

from ...common.shared_bytes import SharedBytes
from ..codec.schemas import Schema
from ..connections.holds import Hold, Holds
from ..connections.pending_requests import PendingRequests

_INT = struct.Struct(">i")
_LINGER_ON = struct.Struct("ii")
CHECK_MS = 30_000
"""How often it is checked whether a client that has to wait for long is still connected."""

_HEADER_BYTES = 8
"""The size and the correlation id; flexible ones have a byte for tagged fields, too."""


class SocketTransport(Protocol):
    def get_extra_info(self, name: str) -> Any: ...

    def abort(self) -> None: ...


class Timers(Protocol):
    def later(self, delay_ms: int, callback: Callable[[], None]) -> object: ...


class MutedConnection(Protocol):
    """A connection that can be muted."""

    requests: PendingRequests

    @property
    def services(self) -> Timers: ...

    @property
    def is_open(self) -> bool: ...

    def on_response_ready(self) -> None: ...


def mute(connection: MutedConnection, holds: Holds, delay_ms: int) -> None:
    """Read and handle no requests of a connection for a time. ``holds``: its own.

    It ends early if the client disconnects. Otherwise its connection and what it has sent might be kept for hours.
    """
    if connection.is_open:
        connection.requests.mute()
        holds.add(Hold.THROTTLED)
        _wait(connection, holds, delay_ms)


def _wait(connection: MutedConnection, holds: Holds, left_ms: int) -> None:
    if left_ms and connection.is_open:
        delay_ms = min(left_ms, CHECK_MS)
        connection.services.later(delay_ms, partial(_wait, connection, holds, left_ms - delay_ms))
    else:
        _unmute(connection, holds)


def _unmute(connection: MutedConnection, holds: Holds) -> None:
    if connection.requests.unmute():
        holds.remove(Hold.THROTTLED)
        connection.on_response_ready()  # handles the queued requests


def reset(transport: SocketTransport) -> None:
    """Close a connection so that its client sees a reset."""
    socket = transport.get_extra_info("socket")
    if socket is not None:
        socket.setsockopt(SOL_SOCKET, SO_LINGER, _LINGER_ON.pack(1, 0))
    transport.abort()


def with_throttle_time(schema: Schema, payload: bytes | SharedBytes, throttle_ms: int) -> bytes | SharedBytes:
    """The frame of a response with another throttle time, if its version has one at a known position."""
    position = _throttle_time_position(schema)
    if position is None or not payload:
        return payload
    if isinstance(payload, SharedBytes):
        head = payload.parts[0] + payload.parts[1] if position >= 0 and len(payload.parts) > 1 else bytes(payload)
        others = payload.parts[2:] if position >= 0 else ()
        return SharedBytes((_patched(head, position, throttle_ms), *others))
    return _patched(payload, position, throttle_ms)


def _patched(data: bytes, position: int, throttle_ms: int) -> bytes:
    start = position if position >= 0 else len(data) + position
    return data[:start] + _INT.pack(throttle_ms) + data[start + _INT.size :]


@cache
def _throttle_time_position(schema: Schema) -> int | None:
    """Where the throttle time begins in a frame; from its end if negative. None for a version without one.

    In ApiVersions it comes between two parts of variable length, and its clients do not wait anyway.
    """
    names = [field.name for field in fields(schema.response_type) if "tag" not in field.metadata]
    if "throttle_time" not in names or schema.name == "api_versions":
        return None
    header_bytes = _HEADER_BYTES + (1 if schema.flexible_header else 0)
    position: Any = {0: header_bytes, 1: header_bytes + 2}.get(names.index("throttle_time"))  # 1: after an error code
    if names.index("throttle_time") == len(names) - 1 and len(names) > 1:
        return -5 if schema.flexible else -4  # Produce, with no tagged fields
    return position if names[0] in ("throttle_time", "error_code") else None
