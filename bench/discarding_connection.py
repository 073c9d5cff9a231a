"""A blocking connection that counts the bytes of its answers and does not keep them, for very large answers."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Self

from callboard.bench.harness import parse_address
from callboard.bench.wire import ANSWER_TIMEOUT_S
from callboard.runtime.client.frame_socket import ConnectionEnded
from callboard.runtime.kafka.codec.frames import SIZE

BUFFER_BYTES = 1 << 20


class DiscardingConnection:
    """Raises OSError for everything that goes wrong."""

    def __init__(self, address: str) -> None:
        self.socket = socket.create_connection(parse_address(address), ANSWER_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(BUFFER_BYTES)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, frame: bytes) -> None:
        self.socket.sendall(frame)

    def discard_answer(self) -> int:
        """Receive one answer and return its size in bytes, without the size field."""
        size_field = b""
        while len(size_field) < SIZE.size:
            part = self.socket.recv(SIZE.size - len(size_field))
            if not part:
                raise ConnectionEnded("it closed the connection instead of answering")
            size_field += part
        size = int(SIZE.unpack(size_field)[0])
        self._discard(size)
        return size

    def discard_all(self) -> int:
        """Receive until the server closes the connection, and return the number of bytes."""
        total = 0
        while received := self.socket.recv_into(self._buffer):
            total += received
        return total

    def _discard(self, missing: int) -> None:
        while missing:
            received = self.socket.recv_into(self._buffer, min(missing, BUFFER_BYTES))
            if not received:
                raise ConnectionEnded("it closed the connection during an answer")
            missing -= received
