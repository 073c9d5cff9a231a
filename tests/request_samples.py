"""Sample requests of any API in any version, for tests of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any

from kio.serial import _introspect as introspect

TOPIC, BROKER, BROKER_LOGGER, GROUP = 2, 4, 8, 32  # resource types of configs

VALUES: Mapping[str, Any] = {
    "resource_type": TOPIC,
    "key_type": 0,
    "acks": 1,
    "topic_id": None,
    "transaction_timeout": timedelta(seconds=30),
    "session_timeout": timedelta(seconds=30),
    "producer_id": -1,
    "producer_epoch": -1,
    "verify_only": False,
    "count": 4,
    "assignments": (),
    "generation_id_or_member_epoch": -1,
    "generation_id": -1,
    "member_epoch": -1,
}
"""Values of fields by name; other fields get a value of their type, and lists one entry.

Besides them: ``text``, the value of all other strings, and ``by_id``, that of all ids of topics."""


def sample(entity_type: Any, values: Mapping[str, Any]) -> Any:
    """Return an entity of one of kio's classes: one entry in each list, the text in each string."""
    return entity_type(**{field.name: sample_value(field, values) for field in fields(entity_type)})


def sample_value(field: Any, values: Mapping[str, Any]) -> Any:
    kind = introspect.classify_field(field)
    if field.name in values and not (field.name == "topic_id" and values.get("by_id")):
        return values[field.name]
    if is_dataclass(kind.type_):
        entity = sample(kind.type_, values)
        return (entity,) if kind.is_array else entity
    item = sample_item(field.metadata["kafka_type"], values)
    return (item,) if kind.is_array else item


def sample_item(kafka_type: str, values: Mapping[str, Any]) -> Any:
    match kafka_type:
        case "string":
            return values.get("text", "t")
        case "bool":
            return False
        case "bytes" | "records":
            return b""
        case "uuid":
            return values["by_id"]
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(seconds=30)
        case _:
            return 0
