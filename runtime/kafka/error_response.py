"""Error responses to any request in any version, like Kafka's ``getErrorResponse``; and the errors in a response.

An error response follows the structure of its request: if the request has a list of topics, groups or resources, and
the response has no error of the whole request, it has the same list, with the error in each entry. An entry repeats
what it is about; all other fields have Kafka's defaults. Therefore APIs need no code for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from types import NoneType
from typing import Any, get_args
from uuid import UUID

from ...actors.steps import Steps, run_steps
from ...actors.text import did_you_mean
from .codec.kio import kio
from .codec.schemas import Schema
from .codec.step_writer import write_in_steps

ERROR = "error_code"  # kio's name of the type
REPEATED = frozenset(
    {
        *("name", "topic", "topic_id", "partition", "partition_index", "index", "resource_type", "resource_name"),
        *("group_id", "member_id", "group_instance_id", "transactional_id"),
    }
)
"""What an entry is about. Fields of the response itself are not repeated."""

SESSION = "session_id"
"""A Fetch response repeats it."""

WITH_ALL_ENTRIES = frozenset({"FetchResponse", "MetadataResponse"})
"""They have both an error of the whole request and one in each entry."""

OTHER_NAMES = {"partition_index": ("partition", "index"), "index": ("partition_index",)}
"""Field names of a partition in responses, and the names that requests may use instead."""

ZEROS: dict[str, Any] = {
    "bool": False,
    "string": "",
    "bytes": b"",
    "uuid": UUID(int=0),
    "float64": 0.0,
    "datetime_i64": datetime.fromtimestamp(0, UTC),
    "timedelta_i32": timedelta(0),
    "timedelta_i64": timedelta(0),
}
NONE_VALUE = -1
WITHOUT_VALUE: dict[str, Any] = {
    **dict.fromkeys(("base_offset", "high_watermark", "committed_offset", "low_watermark"), NONE_VALUE),
    **dict.fromkeys(("node_id", "port", "InitProducerIdResponse.producer_epoch"), NONE_VALUE),
    "metadata": "",
    "records": b"",
}
"""What Kafka sets instead of the default of its schema, by field, with the type of the response if it is needed."""


def error_names() -> list[str]:
    """The names of Kafka's errors."""
    return [code.name.upper() for code in _codes() if int(code)]


def error_code_by_name(name: str) -> Any:
    """Return kio's error code. Raises ValueError for an unknown name."""
    if not isinstance(name, str) or name.upper() not in error_names():
        known = sorted(error_names())
        raise ValueError(f"Kafka has no error {name!r}:{did_you_mean(name, known)} expected one of {', '.join(known)}")
    return _codes()[name.lower()]


def encode_error_response(schema: Schema, request: Any, code: Any) -> bytes | None:
    """Return the body of an error response, or None if the response has no error field in this version."""
    steps = error_response_in_steps(schema, request, code)
    return None if steps is None else run_steps(steps)


def error_response_in_steps(schema: Schema, request: Any, code: Any) -> Steps[bytes] | None:
    """The same in steps: the response has as many entries as the request."""
    if not _has_error_field(schema.response_type):
        return None
    return _write(_error_entity(schema.response_type, request, code))


def _write(entity: Any) -> Steps[bytes]:
    return bytes((yield from write_in_steps(entity)))


def encode_whole_error(schema: Schema, code: Any) -> bytes | None:
    """Return the body of a response with an error of the whole request and no entries, or None if it has no such error.

    It needs no request, so it answers requests that were not decoded.
    """
    response_type: Any = schema.response_type
    if not any(_is_error(field) for field in fields(response_type)):
        return None
    return schema.write(response_type(**{field.name: _whole_value(field, code) for field in fields(response_type)}))


def _whole_value(field: Any, code: Any) -> Any:
    if _is_error(field):
        return code
    return _default(field) if _entry_type(field.type) is None else ()


def decode_response(schema: Schema, body: bytes) -> Any:
    """Return kio's entity of a response body."""
    return _reader(schema.response_type)(body, 0)[0]


@cache
def _reader(response_type: Any) -> Any:
    return kio("serial").entity_reader(response_type)


def error_names_in(answer: Any) -> list[str]:
    """Return the names of the errors in a response or in an actor's reply, each once, in their order."""
    return list(dict.fromkeys(_errors(answer)))


def _errors(answer: Any) -> Iterator[str]:
    if isinstance(answer, int):
        if type(answer).__name__ == "ErrorCode" and answer != 0:
            yield answer.name.upper()  # type: ignore[attr-defined]
    elif isinstance(answer, tuple):
        for item in answer:
            yield from _errors(item)
    elif is_dataclass(answer):
        for field in fields(answer):
            yield from _errors(getattr(answer, field.name))


def _error_entity(entity_type: Any, item: Any, code: Any, is_entry: bool = False) -> Any:
    """Return an entity of the response, with iterators as arrays.

    ``item``: the corresponding entity of the request, or a bare name or number. ``is_entry``: not the response itself.
    """
    own = fields(entity_type)
    is_whole = any(_is_error(field) for field in own) and entity_type.__name__ not in WITH_ALL_ENTRIES
    return entity_type(**{field.name: _value(entity_type, field, item, code, is_entry, is_whole) for field in own})


def _value(entity_type: Any, field: Any, item: Any, code: Any, is_entry: bool, is_whole: bool) -> Any:
    """``is_whole``: the entity has an error itself, so its own entries are left out."""
    if _is_error(field):
        return code
    entry_type: Any = _entry_type(field.type)
    if entry_type is not None:
        if is_whole or not is_dataclass(entry_type) or not _has_error_field(entry_type):
            return ()
        return (_error_entity(entry_type, entry, code, is_entry=True) for entry in _entries(item))
    repeated = _repeated(entity_type, field, item) if is_entry or field.name == SESSION else None
    return _default(field, entity_type) if repeated is None else repeated


def _repeated(entity_type: Any, field: Any, item: Any) -> Any:
    """The value of the request's entry; None if it has none."""
    if not is_dataclass(item):
        return item if field.name == _name_field(entity_type, isinstance(item, str)) else None
    if field.name not in REPEATED and field.name != SESSION:
        return None
    values = (getattr(item, name, None) for name in (field.name, *OTHER_NAMES.get(field.name, ())))
    return next((value for value in values if value is not None and not isinstance(value, tuple)), None)


def _entries(item: Any) -> tuple[Any, ...]:
    """Return the first list of a request, or of an entry of it."""
    lists = (getattr(item, field.name) for field in fields(item) if _entry_type(field.type) is not None)
    return next(lists, None) or ()


@cache
def _name_field(entity_type: Any, is_text: bool) -> str:
    """Return the field of a response entry that holds the name or number of the request."""
    type_begins = "string" if is_text else "int"
    candidates = (field for field in fields(entity_type) if isinstance(field.type, type))
    return next(field.name for field in candidates if field.metadata.get("kafka_type", "").startswith(type_begins))


def _default(field: Any, entity_type: Any = None) -> Any:
    """Kafka's value of a field that is not set."""
    for name in (field.name, f"{entity_type.__name__}.{field.name}" if entity_type else ""):
        if name in WITHOUT_VALUE:
            return WITHOUT_VALUE[name]
    if field.default is not MISSING:
        return field.default
    if NoneType in get_args(field.type):
        return None
    if is_dataclass(field.type):
        inner_type: Any = field.type
        return inner_type(**{inner.name: _default(inner) for inner in fields(inner_type)})
    return ZEROS.get(field.metadata["kafka_type"], 0)


def _has_error_field(entity_type: Any) -> bool:
    types = ((_is_error(field), _entry_type(field.type)) for field in fields(entity_type))
    return any(is_error or (is_dataclass(entry) and _has_error_field(entry)) for is_error, entry in types)


def _is_error(field: Any) -> bool:
    return bool(field.metadata.get("kafka_type") == ERROR)


def _entry_type(annotation: Any) -> Any:
    """Return ``X`` of ``tuple[X, ...]`` and ``tuple[X, ...] | None``; None for other types."""
    if getattr(annotation, "__origin__", None) is tuple:
        inner = get_args(annotation)[0]
        return next((choice for choice in get_args(inner) if choice is not NoneType), inner)
    types = (_entry_type(choice) for choice in get_args(annotation) if choice is not NoneType)
    return next((entry_type for entry_type in types if entry_type is not None), None)


def _codes() -> Any:
    return kio("schema.errors").ErrorCode
