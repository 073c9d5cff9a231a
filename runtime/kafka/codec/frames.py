"""Requests and answers as bytes, by kio's schemas, for the clients here: requests are given as plain values.

One set of values serves every version of a request: what a version does not have is left out. Answers are kio's
entities of that version.
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

ANSWER_BYTES_MAX = 100 * 1024 * 1024
"""A larger answer is none of Kafka's: something else listens there."""

SIZE = struct.Struct(">i")
API_VERSIONS = "api_versions"


class Known(NamedTuple):
    """An API that a client knows, by kio's name for it, and the versions that it can write."""

    key: int
    min_version: int
    max_version: int


class BadAnswer(ValueError):
    """What came is no answer to what was asked."""


def encode(name: str, key: int, version: int, correlation_id: int, client_id: str, values: Mapping[str, Any]) -> bytes:
    """A request's frame, its size in front."""
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
    """kio's entity of an answer, from a frame without its size. Raises BadAnswer."""
    response_type = _message_type(name, version, "response")
    serial_error: type[Exception] = kio("serial.errors").SerialError
    try:
        header, start = _reader(response_type.__header_schema__)(payload, 0)
        if header.correlation_id != correlation_id:
            raise BadAnswer(f"an answer to request {header.correlation_id}, not {correlation_id}")
        return _reader(response_type)(payload, start)[0]
    except (ValueError, KeyError, IndexError, OverflowError, serial_error) as error:
        raise BadAnswer(f"what cannot be read: {error!r}") from error


def common_versions(served: Any, known: Mapping[str, Known]) -> dict[str, int]:
    """The newest version of each API that both sides know, from the answer to api_versions. Others are left out."""
    theirs = {one.api_key: one for one in served.api_keys}
    versions = {}
    for name, ours in known.items():
        other = theirs.get(ours.key)
        if other is None:
            continue
        version = min(ours.max_version, other.max_version)
        if version >= max(ours.min_version, other.min_version):
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
