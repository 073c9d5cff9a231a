"""Encoding of requests and decoding of responses by kio's schemas, for the clients in this project.

Requests are given as plain values. Fields that a version does not have are left out, so one set of values serves every
version. Responses are kio's entities of the version.
"""

from __future__ import annotations

import io
import struct
import typing
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any, NamedTuple

from .kio import kio

RESPONSE_BYTES_MAX = 100 * 1024 * 1024
"""A larger response is not Kafka's: the server speaks another protocol."""

SIZE = struct.Struct(">i")
API_VERSIONS = "api_versions"


class ApiVersionRange(NamedTuple):
    """The key of an API and the versions that a client supports."""

    key: int
    min_version: int
    max_version: int


class BadResponse(ValueError):
    """The bytes are not a valid response to the request."""


def encode(name: str, key: int, version: int, correlation_id: int, client_id: str, values: Mapping[str, Any]) -> bytes:
    """Encode a request as a frame with its size."""
    request_type = _message_type(name, version, "request")
    header = {
        "request_api_key": key,
        "request_api_version": version,
        "correlation_id": correlation_id,
        "client_id": client_id,
    }
    buffer = io.BytesIO()
    for entity_type, content in ((request_type.__header_schema__, header), (request_type, values)):
        _writer(entity_type)(buffer, _build(entity_type, content))
    return SIZE.pack(buffer.tell()) + buffer.getvalue()


def decode(name: str, version: int, correlation_id: int, payload: bytes) -> Any:
    """Decode a response from a frame without its size. Raises BadResponse."""
    response_type = _message_type(name, version, "response")
    serial_error: type[Exception] = kio("serial.errors").SerialError
    try:
        header, start = _reader(response_type.__header_schema__)(payload, 0)
        if header.correlation_id != correlation_id:
            raise BadResponse(f"a response to request {header.correlation_id}, expected {correlation_id}")
        return _reader(response_type)(payload, start)[0]
    except (ValueError, KeyError, IndexError, OverflowError, serial_error) as error:
        raise BadResponse(f"a response that cannot be read: {error!r}") from error


def common_versions(served: Any, supported: Mapping[str, ApiVersionRange]) -> dict[str, int]:
    """Return the newest common version of each API. APIs without one are left out.

    ``served``: the response to api_versions.
    """
    served_ranges = {api.api_key: api for api in served.api_keys}
    versions = {}
    for name, own_range in supported.items():
        served_range = served_ranges.get(own_range.key)
        if served_range is None:
            continue
        version = min(own_range.max_version, served_range.max_version)
        if version >= max(own_range.min_version, served_range.min_version):
            versions[name] = version
    return versions


@cache
def _message_type(name: str, version: int, kind: str) -> Any:
    module = kio(f"schema.{name}.v{version}.{kind}")
    return getattr(module, "".join(word.capitalize() for word in name.split("_")) + kind.capitalize())


@cache
def _reader(entity_type: Any) -> Any:
    return kio("serial").entity_reader(entity_type)


@cache
def _writer(entity_type: Any) -> Any:
    return kio("serial").entity_writer(entity_type)


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
