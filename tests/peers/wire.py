"""Kafka's protocol without a client: one socket, requests by kio's schemas, responses as plain dictionaries.

The encoding is independent of the product's, so that tests can send what its clients cannot.

Requests are given as plain values too, so that one set of values serves every version: what a version does not have is
left out. Durations are milliseconds.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import struct
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from importlib import import_module
from typing import Any

from kio.serial import entity_reader, entity_writer

from callboard.runtime.client.frame_socket import ConnectionEnded, FrameSocket
from callboard.runtime.kafka.codec.own_api import ASK_NODE
from callboard.runtime.kafka.codec.own_messages import MESSAGES

ANSWER_TIMEOUT_S = 30.0
FRAME_SIZE = struct.Struct(">i")

Hangup = ConnectionEnded
"""The server closed the connection where a response was due."""

Plain = Any
Reader = Callable[[bytes, int], tuple[Any, int]]


class Wire(FrameSocket):
    """A connection to a broker. ``send`` and ``receive`` may be pipelined; ``ask`` is one after the other."""

    def __init__(self, host: str, port: int, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        super().__init__(host, port, timeout_s)

    def ask(self, name: str, version: int, **values: Plain) -> dict[str, Plain]:
        """Send one request and return its response."""
        self.send(encode(name, version, values))
        return decode(name, version, self.receive())

    def send(self, payload: bytes) -> None:
        """Send one frame: header and body, without the size."""
        super().send(FRAME_SIZE.pack(len(payload)) + payload)


def encode(
    name: str, version: int, values: Mapping[str, Plain], correlation_id: int = 7, client_id: str = "wire"
) -> bytes:
    """A request's header and body as bytes, e.g. ``encode("heartbeat", 4, {"group_id": "g", ...})``."""
    request_type = message_type(name, version, "request")
    header_type = request_type.__header_schema__
    header = {
        "request_api_key": request_type.__api_key__,
        "request_api_version": version,
        "correlation_id": correlation_id,
        "client_id": client_id,
    }
    buffer = io.BytesIO()
    _writer(header_type)(buffer, build(header_type, header))
    _writer(request_type)(buffer, build(request_type, values))
    return buffer.getvalue()


def decode(name: str, version: int, payload: bytes) -> dict[str, Plain]:
    """An answer's body as plain values. Raises ValueError where bytes are left over."""
    response_type = message_type(name, version, "response")
    _header, start = _reader(response_type.__header_schema__)(payload, 0)
    entity, size = _reader(response_type)(payload, start)
    if start + size != len(payload):
        raise ValueError(f"{name} v{version}: {len(payload) - start - size} bytes left over")
    answer: dict[str, Plain] = plain(entity)
    return answer


@cache
def message_type(name: str, version: int, kind: str) -> Any:
    """kio's class of an API's request or response in a version, or ours of the API that Kafka does not have."""
    if name == ASK_NODE:
        return MESSAGES[kind]
    module = import_module(f"kio.schema.{name}.v{version}.{kind}")
    return getattr(module, "".join(word.capitalize() for word in name.split("_")) + kind.capitalize())


def build(entity_type: Any, values: Mapping[str, Plain]) -> Any:
    """kio's entity from plain values. Values that its version does not have are left out."""
    hints = _type_hints(entity_type)
    return entity_type(**{name: _value(hints[name], value) for name, value in values.items() if name in hints})


def plain(value: Any) -> Plain:
    """An entity as dictionaries, lists, numbers and strings; error codes by name, durations in milliseconds."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.name.upper()
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    return value


def _value(hint: Any, value: Plain) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_value(_item_type(hint), item) for item in value)
    if isinstance(value, Mapping):
        return build(_entity_type(hint), value)
    if isinstance(hint, type) and issubclass(hint, datetime.timedelta):
        return datetime.timedelta(milliseconds=value)
    return value


def _entity_type(hint: Any) -> Any:
    """``X`` of ``X`` or ``X | None``."""
    return next(choice for choice in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(choice))


def _item_type(hint: Any) -> Any:
    """``X`` of ``tuple[X, ...]`` or ``tuple[X, ...] | None``."""
    choices = [hint, *typing.get_args(hint)]
    return next(typing.get_args(choice)[0] for choice in choices if typing.get_origin(choice) is tuple)


@cache
def _type_hints(entity_type: Any) -> dict[str, Any]:
    known = {field.name for field in dataclasses.fields(entity_type)}
    return {name: hint for name, hint in typing.get_type_hints(entity_type).items() if name in known}


@cache
def _reader(entity_type: Any) -> Reader:
    return entity_reader(entity_type)


@cache
def _writer(entity_type: Any) -> Callable[[io.BytesIO, Any], None]:
    return entity_writer(entity_type)
