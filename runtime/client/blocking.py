"""Wire: one connection to a broker. A request is sent, its answer is waited for; nothing overlaps.

Requests are given as plain values, so that one set of values serves every version of a request: what the version that
both sides know does not have is left out. Answers are kio's entities of that version.
"""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any

from ..kafka.codec.frames import ANSWER_BYTES_MAX, SIZE, BadAnswer, Known, common_versions, decode, encode
from ..settings.table import Address
from .errors import ClientError

CLIENT_ID = "callboard"

APIS = {
    "list_offsets": Known(2, 1, 7),
    "metadata": Known(3, 4, 9),
    "offset_commit": Known(8, 2, 8),
    "offset_fetch": Known(9, 2, 7),
    "find_coordinator": Known(10, 0, 3),
    "leave_group": Known(13, 3, 5),
    "describe_groups": Known(15, 0, 5),
    "list_groups": Known(16, 0, 5),
    "api_versions": Known(18, 0, 0),
    "delete_groups": Known(42, 0, 2),
    "offset_delete": Known(47, 0, 0),
}
"""Up to the last version with one group or key a request: several are asked for one after the other."""


class BlockingConnection:
    """A connection to ``address``. Raises ClientError when nobody is there, in time, or who is there is no Kafka."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        self.address = address
        self._timeout_s = timeout_s
        self._versions = {"api_versions": 0}
        self._correlation_id = 0
        try:
            self._socket = socket.create_connection((address.host or "localhost", address.port), timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (OSError, UnicodeError) as error:
            raise ClientError(
                f"cannot reach {address}: {_reason(error, timeout_s)}; is a server running there? "
                f"(--bootstrap-server HOST:PORT says where to look)"
            ) from error
        try:
            self._negotiate()
        except BaseException:
            self.close()
            raise

    def ask(self, name: str, **values: Any) -> Any:
        """Send a request in the newest version that both sides know; returns kio's entity of its answer.

        Raises ClientError when the server does not know the request, hangs up, or takes too long.
        """
        version = self.version_of(name)
        try:
            self._correlation_id += 1
            self._socket.sendall(encode(name, APIS[name].key, version, self._correlation_id, CLIENT_ID, values))
            (size,) = SIZE.unpack(self._exactly(SIZE.size))
            if not 0 < size <= ANSWER_BYTES_MAX:
                raise ClientError(f"{self.address} does not speak Kafka's protocol: a frame of {size} bytes")
            return decode(name, version, self._correlation_id, self._exactly(size))
        except BadAnswer as error:
            raise ClientError(f"{self.address} answers {name} with {error}") from error
        except OSError as error:
            raise ClientError(f"{self.address} did not answer {name}: {_reason(error, self._timeout_s)}") from error

    def version_of(self, name: str) -> int:
        """The version in which ``ask`` asks. Raises ClientError where there is none."""
        if name not in self._versions:
            known = APIS[name]
            raise ClientError(
                f"{self.address} does not serve {name} in a version from {known.min_version} to {known.max_version}, "
                f"which this command needs"
            )
        return self._versions[name]

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> BlockingConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _negotiate(self) -> None:
        self._versions |= common_versions(self.ask("api_versions"), APIS)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(min(size - len(data), 1 << 20))
            if not part:
                raise ConnectionResetError("it closed the connection")
            data += part
        return bytes(data)


def _reason(error: Exception, timeout_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout_s:g} s"
    return (getattr(error, "strerror", None) or str(error)).lower()
