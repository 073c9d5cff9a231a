"""An answer that says nothing but an error, to any request in any version: what Kafka's ``getErrorResponse`` does.

The answer is laid out after the request: where that has a list of topics, groups or resources, the answer has the same
list, with the error in each entry. So no API needs code of its own here. Also the other way: the errors that an answer
tells of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from types import NoneType
from typing import Any, get_args
from uuid import UUID

from .codec.kio import kio
from .codec.schemas import Schema

ERROR = "error_code"  # kio's name of the type
OTHER_NAMES = {"partition_index": ("partition", "index"), "index": ("partition_index",)}
"""What an answer calls a partition, and what its request may call the same."""

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
NO_NUMBER = -1  # of offsets, generations, producers: what Kafka says where there is none


def error_names() -> list[str]:
    """Every error of Kafka's, by its name there."""
    return [code.name.upper() for code in _codes() if int(code)]


def error_named(name: str) -> Any:
    """kio's code. ValueError for a name that is none."""
    if not isinstance(name, str) or name.upper() not in error_names():
        raise ValueError(f"Kafka has no error {name!r}: expected one of {', '.join(sorted(error_names()))}")
    return _codes()[name.lower()]


def error_body(schema: Schema, request: Any, code: Any) -> bytes | None:
    """The body of the answer to ``request``. None if its version has no place for an error."""
    if not _tells_errors(schema.response_type):
        return None
    return schema.write(_refused(schema.response_type, request, code))


def read_answer(schema: Schema, body: bytes) -> Any:
    """An answer's entity, from its body."""
    return _reader(schema.response_type)(body, 0)[0]


@cache
def _reader(response_type: Any) -> Any:
    return kio("serial").entity_reader(response_type)


def errors_in(answer: Any) -> list[str]:
    """The names of the errors in an answer, of kio's or of the actors', each once, in their order."""
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


def _refused(kind: Any, asked: Any, code: Any) -> Any:
    """An entity of the answer, for what was asked: an entity of the request, or a bare name or number."""
    return kind(**{field.name: _value(kind, field, asked, code) for field in fields(kind)})


def _value(kind: Any, field: Any, asked: Any, code: Any) -> Any:
    if _is_error(field):
        return code
    item: Any = _item_type(field.type)
    if item is not None:
        if not is_dataclass(item) or not _tells_errors(item):
            return ()
        return tuple(_refused(item, one, code) for one in _list_in(asked))
    if not is_dataclass(asked):
        is_text = isinstance(asked, str)
        return asked if field.name == _name_of(kind, is_text) else _zero(field)
    for name in (field.name, *OTHER_NAMES.get(field.name, ())):
        value = getattr(asked, name, None)
        if value is not None and not isinstance(value, tuple):
            return value
    return _zero(field)


def _list_in(asked: Any) -> tuple[Any, ...]:
    """What a request, or an entry of it, is a list of: the first one that it has."""
    lists = (getattr(asked, field.name) for field in fields(asked) if _item_type(field.type) is not None)
    return next(lists, None) or ()


@cache
def _name_of(kind: Any, is_text: bool) -> str:
    """Which field of an entry says what it is about, where the request has bare names or numbers."""
    type_begins = "string" if is_text else "int"
    named = (field for field in fields(kind) if isinstance(field.type, type))
    return next(field.name for field in named if field.metadata.get("kafka_type", "").startswith(type_begins))


def _zero(field: Any) -> Any:
    if NoneType in get_args(field.type):
        return None
    if is_dataclass(field.type):
        entity_type: Any = field.type
        return entity_type(**{inner.name: _zero(inner) for inner in fields(entity_type)})
    return ZEROS.get(field.metadata["kafka_type"], NO_NUMBER)


def _tells_errors(kind: Any) -> bool:
    items = ((_is_error(field), _item_type(field.type)) for field in fields(kind))
    return any(is_error or (is_dataclass(item) and _tells_errors(item)) for is_error, item in items)


def _is_error(field: Any) -> bool:
    return bool(field.metadata.get("kafka_type") == ERROR)


def _item_type(annotation: Any) -> Any:
    """``X`` of ``tuple[X, ...]`` and ``tuple[X, ...] | None``; None for what is no list."""
    if getattr(annotation, "__origin__", None) is tuple:
        inner = get_args(annotation)[0]
        return next((one for one in get_args(inner) if one is not NoneType), inner)
    found = (_item_type(one) for one in get_args(annotation) if one is not NoneType)
    return next((one for one in found if one is not None), None)


def _codes() -> Any:
    return kio("schema.errors").ErrorCode
