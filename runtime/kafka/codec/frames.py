"""Encoding of requests and decoding of responses by kio's schemas, for the clients in this project.

Requests are given as plain values. Fields that a version does not have are left out, so one set of values serves every
version. Responses are kio's entities of the version.
"""

from __future__ import annotations

import io
import struct
import typing
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from .kio import kio
from .own_api import ASK_NODE

RESPONSE_BYTES_MAX = 100 * 1024 * 1024
"""A larger response is not Kafka's: the server speaks another protocol."""

SIZE = struct.Struct(">i")


class BadResponse(ValueError):
    """The bytes are not a valid response to the request."""


def encode(name: str, version: int, correlation_id: int, client_id: str, values: Mapping[str, Any]) -> bytes:
    """Encode a request as a frame with its size."""
    request_type = message_type(name, version, "request")
    header = {
        "request_api_key": request_type.__api_key__,
        "request_api_version": version,
        "correlation_id": correlation_id,
        "client_id": client_id,
    }
    return _frame((request_type.__header_schema__, header), (request_type, values))


def encode_response(name: str, version: int, correlation_id: int, values: Mapping[str, Any]) -> bytes:
    """Encode a response as a frame with its size."""
    response_type = message_type(name, version, "response")
    return _frame((response_type.__header_schema__, {"correlation_id": correlation_id}), (response_type, values))


def frame_size(data: bytes | bytearray, position: int) -> int:
    """The size of the frame whose size field is at ``position``. Raises BadResponse for an impossible one."""
    (size,) = SIZE.unpack_from(data, position)
    if not 0 < size <= RESPONSE_BYTES_MAX:
        raise BadResponse(f"does not speak Kafka's protocol: a frame of {size} bytes")
    return int(size)


def split_frames(received: bytearray) -> Iterator[bytes]:
    """Remove the complete frames from ``received``; yields each without its size. Raises BadResponse."""
    position = 0
    try:
        while len(received) - position >= SIZE.size:
            end = position + SIZE.size + frame_size(received, position)
            if end > len(received):
                return
            yield bytes(received[position + SIZE.size : end])
            position = end
    finally:
        del received[:position]


def decode(name: str, version: int, correlation_id: int, payload: bytes) -> Any:
    """Decode a response from a frame without its size: kio's entity. Raises BadResponse."""
    response_type = message_type(name, version, "response")
    serial_error: type[Exception] = kio("serial.errors").SerialError
    try:
        header, start = _reader(response_type.__header_schema__)(payload, 0)
        if header.correlation_id != correlation_id:
            raise BadResponse(f"a response to request {header.correlation_id}, expected {correlation_id}")
        return _reader(response_type)(payload, start)[0]
    except (ValueError, KeyError, IndexError, OverflowError, serial_error) as error:
        raise BadResponse(f"a response that cannot be read: {error!r}") from error


@cache
def message_type(name: str, version: int, kind: str) -> Any:
    """kio's class of a message. ``name``: kio's name of the API; ``kind``: "request" or "response"."""
    if name == ASK_NODE:
        from .own_messages import MESSAGES

        return MESSAGES[kind]
    module = kio(f"schema.{name}.v{version}.{kind}")
    return getattr(module, "".join(word.capitalize() for word in name.split("_")) + kind.capitalize())


@cache
def _reader(entity_type: Any) -> Any:
    return kio("serial").entity_reader(entity_type)


@cache
def _writer(entity_type: Any) -> Any:
    return kio("serial").entity_writer(entity_type)


def _frame(*messages: tuple[Any, Mapping[str, Any]]) -> bytes:
    buffer = io.BytesIO()
    for entity_type, values in messages:
        _writer(entity_type)(buffer, _build(entity_type, values))
    return SIZE.pack(buffer.tell()) + buffer.getvalue()


def _build(entity_type: Any, values: Mapping[str, Any]) -> Any:
    """Make kio's entity from plain values: mappings for entities, sequences for arrays."""
    hints = _hints(entity_type)
    return entity_type(**{name: _value(hints[name], value) for name, value in values.items() if name in hints})


def _value(hint: Any, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_value(_item_type(hint), item) for item in value)
    return _build(hint, value) if isinstance(value, Mapping) else value


def _item_type(hint: Any) -> Any:
    """Return ``X`` of ``tuple[X, ...]`` or ``tuple[X, ...] | None``."""
    choices = [hint, *typing.get_args(hint)]
    return next(typing.get_args(choice)[0] for choice in choices if typing.get_origin(choice) is tuple)


@cache
def _hints(entity_type: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(entity_type)
    return {field.name: hints[field.name] for field in fields(entity_type)}
