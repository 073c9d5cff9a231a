"""FrameSocket: a blocking TCP connection that sends bytes and receives frames of Kafka's protocol."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ..kafka.codec.frames import SIZE, frame_size

if TYPE_CHECKING:
    from ssl import SSLContext

READ_BYTES_MAX = 1 << 20


class ConnectionEnded(ConnectionError):
    """The server closed the connection where a response was due."""


class FrameSocket:
    """``timeout_s``: for connecting and for each read and write. ``tls``: None without TLS. Raises OSError."""

    def __init__(self, host: str, port: int, timeout_s: float, tls: SSLContext | None = None) -> None:
        self.socket = socket.create_connection((host, port), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = _with_tls(self.socket, host, tls)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> bytes:
        """The next frame without its size field. Raises ConnectionEnded, and BadResponse for an impossible size."""
        return self._exactly(frame_size(self._exactly(SIZE.size), 0))

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(min(size - len(data), READ_BYTES_MAX))
            if not part:
                raise ConnectionEnded(f"it closed the connection after {len(data)} of {size} bytes")
            data += part
        return bytes(data)


def _with_tls(plain: socket.socket, host: str, tls: SSLContext) -> socket.socket:
    """The socket after the handshake. It is closed if that fails."""
    try:
        return tls.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise
