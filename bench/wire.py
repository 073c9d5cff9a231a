"""The client's half of Kafka's protocol, by kio: requests as frames, answers as entities, and a client that waits.

It is for the set-up and the checks round a measurement; a measurement itself sends prepared bytes. Every request here
is of a flexible version, so that there is one form of header. kio is loaded when it is first used, so that
``skip_hypothesis`` can come before it.
"""

from __future__ import annotations

import io
import socket
import sys
from functools import cache
from importlib import import_module
from types import TracebackType
from typing import Any, Self

from callboard.bench.harness import BenchError, parse_address

CLIENT_ID = "load"
ANSWER_TIMEOUT_S = 30.0
CORRELATION_AT_REQUEST = 8  # after size, API key and version
CORRELATION_AT_ANSWER = 4  # after size


def skip_hypothesis() -> None:
    """Keep kio from importing hypothesis, which takes longer than all the rest. For a bench's own processes only."""
    sys.modules["hypothesis"] = None  # type: ignore[assignment]


def no_error() -> Any:
    """kio's error code 0."""
    return import_module("kio.schema.errors").ErrorCode(0)


class Api:
    """One API in one flexible version. ``types`` makes the entities of its request: ``types.JoinGroupRequest``."""

    def __init__(self, name: str, version: int) -> None:
        serial = import_module("kio.serial")
        self.types = import_module(f"kio.schema.{name}.v{version}.request")
        self.answer_types = import_module(f"kio.schema.{name}.v{version}.response")
        title = "".join(word.capitalize() for word in name.split("_"))
        self.request_type = getattr(self.types, f"{title}Request")
        self.answer_type = getattr(self.answer_types, f"{title}Response")
        self.key: int = self.request_type.__api_key__
        self.version = version
        self.read_request = serial.entity_reader(self.request_type)
        self._read_answer = serial.entity_reader(self.answer_type)
        self._serial = serial

    def request(self, correlation_id: int, **fields: Any) -> bytes:
        """A whole frame that asks, size and header included."""
        header_type = self.request_type.__header_schema__
        header = header_type(
            request_api_key=self.key,
            request_api_version=self.version,
            correlation_id=correlation_id,
            client_id=CLIENT_ID,
        )
        return self._frame(header, self.request_type(**fields))

    def answer(self, correlation_id: int, **fields: Any) -> bytes:
        """The whole frame that a server should answer with."""
        header = self.answer_type.__header_schema__(correlation_id=correlation_id)
        return self._frame(header, self.answer_type(**fields))

    def read_answer(self, frame: bytes) -> tuple[int, Any]:
        """(correlation id, entity) of a frame without its size."""
        header, start = self._serial.entity_reader(self.answer_type.__header_schema__)(frame, 0)
        entity, _ = self._read_answer(frame, start)
        return header.correlation_id, entity

    def _frame(self, *entities: Any) -> bytes:
        buffer = io.BytesIO()
        for entity in entities:
            self._serial.entity_writer(type(entity))(buffer, entity)
        body = buffer.getvalue()
        return len(body).to_bytes(4, "big") + body


@cache
def api(name: str, version: int) -> Api:
    """An API by kio's name for it (``join_group``)."""
    return Api(name, version)


class Client:
    """One connection with at most one request in flight."""

    def __init__(self, address: str) -> None:
        try:
            self.socket = socket.create_connection(parse_address(address), ANSWER_TIMEOUT_S)
        except OSError as error:
            raise BenchError(f"cannot connect to {address}: {error}; is the server running there?") from None
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0
        self._asked: Api | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, asked: Api, **fields: Any) -> Any:
        """Send a request and wait for its answer."""
        self.send(asked, **fields)
        return self.receive()

    def send(self, asked: Api, **fields: Any) -> None:
        self.post(self.prepare(asked, **fields))

    def prepare(self, asked: Api, **fields: Any) -> bytes:
        """The next request, to be sent with ``post``."""
        self._correlation_id += 1
        self._asked = asked
        return asked.request(self._correlation_id, **fields)

    def post(self, request: bytes) -> None:
        self.socket.sendall(request)

    def receive(self) -> Any:
        """The answer to the request that was sent. Raises BenchError when it answers something else."""
        assert self._asked is not None
        size = int.from_bytes(self._exactly(4), "big")
        correlation_id, answer = self._asked.read_answer(self._exactly(size))
        if correlation_id != self._correlation_id:
            raise BenchError(f"asked with correlation id {self._correlation_id}, the answer has {correlation_id}")
        return answer

    def close(self) -> None:
        self.socket.close()

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += self._some(size - len(data))
        return data

    def _some(self, size: int) -> bytes:
        try:
            data = self.socket.recv(size)
        except TimeoutError:
            raise BenchError(f"no answer to {self._what()} in {self.socket.gettimeout():.0f} s") from None
        if not data:
            raise BenchError(f"the server closed the connection instead of answering {self._what()}")
        return data

    def _what(self) -> str:
        return "" if self._asked is None else f"{self._asked.request_type.__name__} v{self._asked.version}"
