"""Wire: one connection to a broker. A request is sent, its answer is waited for; nothing overlaps.

Requests are given as plain values, so that one set of values serves every version of a request: what the version that
both sides know does not have is left out. Answers are kio's entities of that version.
"""

from __future__ import annotations

import io
import socket
import struct
import typing
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from importlib import import_module
from types import TracebackType
from typing import Any, NamedTuple

from ..config import Address
from .errors import ClientError

CLIENT_ID = "callboard"
ANSWER_BYTES_MAX = 100 * 1024 * 1024
"""A larger answer is none of Kafka's: something else listens there."""

_SIZE = struct.Struct(">i")


class Known(NamedTuple):
    """An API that this client knows, by kio's name for it, and the versions that it can write."""

    key: int
    min_version: int
    max_version: int


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


class Wire:
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
            self._socket.sendall(self._encoded(name, version, values))
            (size,) = _SIZE.unpack(self._exactly(_SIZE.size))
            if not 0 < size <= ANSWER_BYTES_MAX:
                raise ClientError(f"{self.address} does not speak Kafka's protocol: a frame of {size} bytes")
            return self._decoded(name, version, self._exactly(size))
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

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _negotiate(self) -> None:
        served = {one.api_key: one for one in self.ask("api_versions").api_keys}
        for name, known in APIS.items():
            theirs = served.get(known.key)
            if theirs is None:
                continue
            version = min(known.max_version, theirs.max_version)
            if version >= max(known.min_version, theirs.min_version):
                self._versions[name] = version

    def _encoded(self, name: str, version: int, values: Mapping[str, Any]) -> bytes:
        request_type = _message_type(name, version, "request")
        self._correlation_id += 1
        header = {
            "request_api_key": APIS[name].key,
            "request_api_version": version,
            "correlation_id": self._correlation_id,
            "client_id": CLIENT_ID,
        }
        buffer = io.BytesIO()
        for entity_type, content in ((request_type.__header_schema__, header), (request_type, values)):
            _writer(entity_type)(buffer, _build(entity_type, content))
        return _SIZE.pack(buffer.tell()) + buffer.getvalue()

    def _decoded(self, name: str, version: int, payload: bytes) -> Any:
        response_type = _message_type(name, version, "response")
        serial_error: type[Exception] = import_module("kio.serial.errors").SerialError
        try:
            header, start = _reader(response_type.__header_schema__)(payload, 0)
            if header.correlation_id != self._correlation_id:
                raise ValueError(f"an answer to request {header.correlation_id}, not {self._correlation_id}")
            return _reader(response_type)(payload, start)[0]
        except (ValueError, KeyError, IndexError, OverflowError, serial_error) as error:
            raise ClientError(f"{self.address} answers {name} with what cannot be read: {error!r}") from error

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


@cache
def _message_type(name: str, version: int, kind: str) -> Any:
    module = import_module(f"kio.schema.{name}.v{version}.{kind}")
    return getattr(module, "".join(word.capitalize() for word in name.split("_")) + kind.capitalize())


@cache
def _reader(entity_type: Any) -> Any:
    return import_module("kio.serial").entity_reader(entity_type)


@cache
def _writer(entity_type: Any) -> Any:
    return import_module("kio.serial").entity_writer(entity_type)


def _build(entity_type: Any, values: Mapping[str, Any]) -> Any:
    """kio's entity from plain values: mappings for entities, sequences for arrays."""
    hints = _hints(entity_type)
    return entity_type(**{name: _value(hints[name], value) for name, value in values.items() if name in hints})


def _value(hint: Any, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_value(_item_type(hint), item) for item in value)
    return _build(hint, value) if isinstance(value, Mapping) else value


def _item_type(hint: Any) -> Any:
    """``X`` of ``tuple[X, ...]``, which may also be None."""
    choices = [hint, *typing.get_args(hint)]
    return next(typing.get_args(choice)[0] for choice in choices if typing.get_origin(choice) is tuple)


@cache
def _hints(entity_type: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(entity_type)
    return {field.name: hints[field.name] for field in fields(entity_type)}
