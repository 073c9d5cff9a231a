"""The names of requests for people: their API and version."""

from __future__ import annotations

import struct

from ..codec.kio import kio
from ..codec.schemas import Schema

UNKNOWN = "unknown"
"""The name of a request of which too little was received."""

_ROUTE_KEY = struct.Struct(">hh")  # API key, version


def api_title(name: str) -> str:
    """Kafka's name of an API, "DeleteGroups", from kio's, "delete_groups"."""
    return "".join(map(str.capitalize, name.split("_")))


def schema_name(schema: Schema) -> str:
    return f"{schema.name} version {schema.version}"


def route_name(route_key: int) -> str:
    """``route_key``: see ``framing.Frame``."""
    key, version = split_route_key(route_key)
    return f"{kio('schema.index').api_key_map.get(key, f'API key {key}')} version {version}"


def split_route_key(route_key: int) -> tuple[int, int]:
    """The API key (upper 16 bits) and the version."""
    key, version = _ROUTE_KEY.unpack(route_key.to_bytes(4, "big", signed=True))
    return key, version
