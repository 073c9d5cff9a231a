"""Splits the bytes of a client into the frames of its requests, without I/O.

A frame is its size (int32, of what follows), API key and version (int16 each), correlation id (int32), the client id
(its length as int16, negative for null), and the rest of the header and the body.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from .foreign_protocols import describe_foreign_protocol
from .request_names import UNKNOWN, route_name

_SIZE = struct.Struct(">i")
_SIZE_BYTES = _SIZE.size
_ROUTE_KEY_BYTES = 4
_HEADER = struct.Struct(">iiih")  # size, API key and version, correlation id, length of the client id

HEADER_BYTES = _HEADER.size
"""From the beginning of a frame to its client id."""

MIN_FRAME_BYTES = HEADER_BYTES - _SIZE_BYTES
"""The smallest size in a frame."""

FRAMES_PER_TURN = 16
"""Frames that a connection may have handled before other connections get a turn: about 0.4 ms of heartbeats."""

BYTES_PER_TURN = 8192
"""A turn ends with the frame that reaches so many bytes: about a millisecond of commits of many partitions."""

Frame = tuple[bytes, int, int, int, int, int]
"""``(data, route_key, correlation_id, start, body_start, end)``: positions of a frame in ``data``.

``route_key``: API key << 16 | version. The client id ends at ``body_start``, the rest of the header begins there. This
is behind ``end`` if the length of the client id is wrong.
"""


class BadRequest(Exception):
    """The bytes are not a valid request, or its API is not served. The connection is closed, as in Kafka."""


class NotServed(BadRequest):
    """A request of another protocol, or of an API or version that is not served. A client is named once for each."""


class OverLimit(BadRequest):
    """A request is over the setting ``limit``. ``reason``: by how much, without the names of both."""

    def __init__(self, limit: str, request: str, reason: str) -> None:
        super().__init__(f"{reason} ({limit})")
        self.limit = limit
        self.request = request
        self.reason = reason


class FrameSplitter:
    """Splits a stream of bytes. The bytes of complete frames are not copied.

    ``rest``: received bytes whose frames are left for the next turn of the connection. Empty if all are split.
    """

    __slots__ = ("_bytes_needed", "_partial_frame", "_rest_start", "partial_bytes", "rest")

    def __init__(self) -> None:
        self.rest = b""
        self._rest_start = 0  # position of the next frame in ``rest``
        self._partial_frame = bytearray()
        self._bytes_needed = 0  # length of ``_partial_frame`` at which it is parsed again
        self.partial_bytes = 0
        """The bytes of the incomplete frame."""

    @property
    def is_in_frame(self) -> bool:
        """Whether the last frame is incomplete."""
        return self.partial_bytes > 0

    @property
    def next_request(self) -> str:
        """The name of the request in the next frame."""
        return _request_name(self.rest, self._rest_start) if self.rest else _request_name(self._partial_frame, 0)

    def hold(self, data: bytes) -> bool:
        """Keep received bytes as the ``rest``. False, without an effect, if they do not complete a frame."""
        if self.rest:
            data = self.rest[self._rest_start :] + data
        elif self._partial_frame:
            if self.partial_bytes + len(data) < self._bytes_needed:
                return False
            data = bytes(self._partial_frame) + data
            self.drop_partial()
        self.rest, self._rest_start = data, 0
        return True

    def drop(self) -> None:
        """Forget what is not split yet."""
        self.rest = b""
        self.drop_partial()

    def drop_partial(self) -> None:
        """Forget the incomplete frame."""
        self._partial_frame.clear()
        self.partial_bytes = 0

    def feed(self, data: bytes, max_bytes: int) -> Iterable[Frame]:
        """Return the next frames of one turn. Call it with no data while there is a ``rest``.

        The iteration raises BadRequest for a size that is too small, OverLimit for one above ``max_bytes``. It must be
        finished before the next call, unless it is the last one.
        """
        if self.rest:
            return self._split(self.rest + data, self._rest_start, max_bytes)
        if self._partial_frame:
            self._partial_frame += data
            self.partial_bytes += len(data)
            if self.partial_bytes < self._bytes_needed:
                return ()
            data = bytes(self._partial_frame)
            self._partial_frame.clear()
            self.partial_bytes = 0
        if len(data) >= HEADER_BYTES:  # the fast path: nothing but one complete frame
            size, route_key, correlation_id, id_length = _HEADER.unpack_from(data)
            if size + _SIZE_BYTES == len(data) and size <= max_bytes:
                body_start = HEADER_BYTES + id_length if id_length > 0 else HEADER_BYTES
                return ((data, route_key, correlation_id, 0, body_start, len(data)),)
        return self._split(data, 0, max_bytes)

    def _split(self, data: bytes, start: int, max_bytes: int) -> Iterator[Frame]:
        self.rest, end, turn_end = b"", len(data), start + BYTES_PER_TURN
        last_start = min(end - HEADER_BYTES, turn_end - 1)
        for _ in range(FRAMES_PER_TURN):
            if start > last_start:
                break
            size, route_key, correlation_id, id_length = _HEADER.unpack_from(data, start)
            frame_end = start + _SIZE_BYTES + size
            if frame_end > end or not MIN_FRAME_BYTES <= size <= max_bytes:
                break
            id_start = start + HEADER_BYTES
            body_start = id_start + id_length if id_length > 0 else id_start
            yield data, route_key, correlation_id, start, body_start, frame_end
            start = frame_end
        else:
            turn_end = start
        if start >= end:
            return
        if start >= turn_end:
            self.rest, self._rest_start = data, start
        else:
            self._keep(data[start:], max_bytes)

    def _keep(self, rest: bytes, max_bytes: int) -> None:
        """Keep an incomplete frame. Raises BadRequest or OverLimit if its size is out of range."""
        self._bytes_needed = _SIZE_BYTES
        if len(rest) >= _SIZE_BYTES:
            (size,) = _SIZE.unpack_from(rest)
            if size < MIN_FRAME_BYTES:
                raise BadRequest(f"a frame of {size} bytes: expected at least {MIN_FRAME_BYTES}")
            if size > max_bytes:
                if (foreign := describe_foreign_protocol(rest)) is not None:
                    raise NotServed(foreign)
                reason = f"a frame of {size} bytes: expected at most {max_bytes}"
                raise OverLimit("socket_request_max_bytes", _request_name(rest, 0), reason)
            self._bytes_needed = _SIZE_BYTES + size
        self._partial_frame += rest
        self.partial_bytes = len(rest)


def _request_name(data: bytes | bytearray, start: int) -> str:
    """``start``: of the frame."""
    key_start = start + _SIZE_BYTES
    if len(data) < key_start + _ROUTE_KEY_BYTES:
        return UNKNOWN
    return route_name(route_key_of(data, start))


def route_key_of(data: bytes | bytearray, start: int = 0) -> int:
    """API key << 16 | version of the frame that begins at ``start``."""
    key_start = start + _SIZE_BYTES
    return int.from_bytes(data[key_start : key_start + _ROUTE_KEY_BYTES], "big", signed=True)
