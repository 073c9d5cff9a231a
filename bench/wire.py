"""Requests and responses in one version each, and a blocking client, for set-up and checks around a measurement.

A measurement itself sends prepared bytes. Every request here is of a flexible version, so that all have the same form
of header.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from ssl import SSLContext
from typing import Any, Self

from callboard.bench.harness import BenchError, parse_address
from callboard.runtime.client.frame_socket import ConnectionEnded, FrameSocket
from callboard.runtime.kafka.codec import frames
from callboard.runtime.kafka.codec.kio import kio

CLIENT_ID = "load"
ANSWER_TIMEOUT_S = 30.0
CORRELATION_AT_REQUEST = 8  # after size, API key and version
CORRELATION_AT_ANSWER = 4  # after size


def no_error() -> Any:
    """kio's error code 0."""
    return kio("schema.errors").ErrorCode(0)


class Api:
    """One API in one flexible version. ``types`` makes the entities of its request: ``types.JoinGroupRequest``."""

    def __init__(self, name: str, version: int) -> None:
        self.name, self.version = name, version
        self.request_type = frames.message_type(name, version, "request")
        self.answer_type = frames.message_type(name, version, "response")
        self.types = import_module(self.request_type.__module__)
        self.answer_types = import_module(self.answer_type.__module__)
        self.key: int = self.request_type.__api_key__
        self.read_request = kio("serial").entity_reader(self.request_type)

    def request(self, correlation_id: int, **fields: Any) -> bytes:
        """The whole frame of a request: size, header and body."""
        return frames.encode(self.name, self.version, correlation_id, CLIENT_ID, fields)

    def answer(self, correlation_id: int, **fields: Any) -> bytes:
        """The whole frame of the response that a server should send."""
        return frames.encode_response(self.name, self.version, correlation_id, fields)

    def read_answer(self, payload: bytes, correlation_id: int) -> Any:
        """kio's entity of a response, from a frame without its size. Raises BadResponse."""
        return frames.decode(self.name, self.version, correlation_id, payload)


@cache
def api(name: str, version: int) -> Api:
    """An API by kio's name for it (``join_group``)."""
    return Api(name, version)


class Client:
    """One connection with at most one request in flight. Raises BenchError for everything that goes wrong."""

    def __init__(self, address: str, tls: SSLContext | None = None) -> None:
        try:
            self._connection = FrameSocket(*parse_address(address), ANSWER_TIMEOUT_S, tls)
        except OSError as error:
            raise BenchError(f"cannot connect to {address}: {error}; is the server running there?") from None
        self.socket = self._connection.socket
        self._correlation_id = 0
        self._pending: Api | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def ask(self, api: Api, **fields: Any) -> Any:
        """Send a request and wait for its response."""
        self.send(api, **fields)
        return self.receive()

    def send(self, api: Api, **fields: Any) -> None:
        self.post(self.prepare(api, **fields))

    def prepare(self, api: Api, **fields: Any) -> bytes:
        """The next request, to be sent with ``post``."""
        self._correlation_id += 1
        self._pending = api
        return api.request(self._correlation_id, **fields)

    def post(self, request: bytes) -> None:
        self._connection.send(request)

    def receive(self) -> Any:
        """The response to the request that was sent, as kio's entity."""
        assert self._pending is not None
        request = f"{self._pending.name} v{self._pending.version}"
        try:
            return self._pending.read_answer(self._connection.receive(), self._correlation_id)
        except frames.BadResponse as error:
            raise BenchError(f"the server answered {request} with {error}") from None
        except TimeoutError:
            raise BenchError(f"no answer to {request} in {self.socket.gettimeout():.0f} s") from None
        except ConnectionEnded:
            raise BenchError(f"the server closed the connection instead of answering {request}") from None

    def close(self) -> None:
        self._connection.close()
