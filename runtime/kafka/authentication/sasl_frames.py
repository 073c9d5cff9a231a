"""Splits what a client sends before it is authenticated, without I/O. A frame may be a token without a header."""

from __future__ import annotations

import struct
from typing import NamedTuple

from ..connections.foreign_protocols import describe_foreign_protocol
from ..connections.framing import BadRequest, NotServed

_SIZE = struct.Struct(">i")
_HEADER = struct.Struct(">iih")  # API key and version, correlation id, length of the client id
_START_BYTES = 8  # by which a foreign protocol is recognized


class Header(NamedTuple):
    """``route_key``: API key << 16 | version. ``body_start``: the end of the client id, see ``framing.Frame``."""

    route_key: int
    correlation_id: int
    raw_client_id: bytes
    body_start: int


def parse_header(frame: bytes) -> Header:
    """Raises BadRequest."""
    if len(frame) < _HEADER.size:
        raise BadRequest(f"a frame of {len(frame)} bytes: expected at least {_HEADER.size}")
    route_key, correlation_id, id_length = _HEADER.unpack_from(frame)
    body_start = _HEADER.size + max(id_length, 0)
    if body_start > len(frame):
        raise BadRequest(f"a client id of {id_length} bytes in a frame of {len(frame)} bytes")
    return Header(route_key, correlation_id, frame[_HEADER.size : body_start], body_start)


class SaslFrames:
    """``received``: the bytes that are not split yet."""

    def __init__(self) -> None:
        self.received = bytearray()

    def next(self, max_bytes: int) -> bytes | None:
        """The next frame without its size; None if it is incomplete. Raises BadRequest."""
        if len(self.received) < _SIZE.size:
            return None
        (size,) = _SIZE.unpack_from(self.received)
        if not 0 <= size <= max_bytes:
            foreign = describe_foreign_protocol(bytes(self.received[:_START_BYTES]))
            if foreign is not None:
                raise NotServed(foreign)
            raise BadRequest(
                f"a frame of {size} bytes before authentication: expected at most {max_bytes}"
                " (sasl_server_max_receive_size)"
            )
        end = _SIZE.size + size
        if len(self.received) < end:
            return None
        frame = bytes(self.received[_SIZE.size : end])
        del self.received[:end]
        return frame


def sized(token: bytes) -> bytes:
    """A token without a header, as a frame."""
    return _SIZE.pack(len(token)) + token
