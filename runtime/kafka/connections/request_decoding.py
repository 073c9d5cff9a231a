"""Decodes the requests of frames: their route, client id and kio's entity. Raises BadRequest for invalid bytes."""

from __future__ import annotations

from typing import Any

from ....actors.steps import Steps
from ..api import Route, Routes
from ..codec.kio import kio
from ..codec.repeated_requests import REPEATED_BYTES_MAX
from ..codec.stepped_reading import ItemCount, TooManyItems
from ..codec.tags import is_refused_by_kio_only, skip_tagged_fields, without_unknown_tags
from ..codec.validation import describe_decode_error
from .framing import BadRequest, NotServed, OverLimit
from .request_names import api_title, schema_name, split_route_key


def open_route(routes: Routes, route_key: int) -> Route:
    """Load the route of an API key (upper 16 bits) and version. Raises NotServed if there is none."""
    key, version = split_route_key(route_key)
    route = routes.find(key, version)
    if route is None:
        raise NotServed(f"not served: {_describe_api(routes, key, version)}")
    return route


def _describe_api(routes: Routes, key: int, version: int) -> str:
    name = kio("schema.index").api_key_map.get(key)
    if name is None:
        return f"API key {key}, which Kafka does not have, version {version}"
    api = api_title(name)
    versions = routes.versions_of(key)
    if versions is not None:
        return f"{api} version {version}; the versions {versions[0]} to {versions[1]} are served"
    return f"{api} (API key {key})"


def decode_client_id(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"the client id is not UTF-8: {raw[:40]!r}") from error


def decode_request(route: Route, data: bytes, start: int, end: int) -> Any:
    """Return kio's entity of a request, or an object with its attributes.

    ``start``: the end of its client id; ``end``: of its frame.
    """
    schema = route.schema
    try:
        if schema.flexible:
            start = skip_tagged_fields(data, start) if data[start] else start + 1
        if schema.read_repeated is not None and end - start <= REPEATED_BYTES_MAX:
            request = schema.read_repeated(data[start:end])
            if request is not None:
                return request
        request, size = schema.read(data, start)
    except (KeyError, ValueError, IndexError, OverflowError, schema.decode_error) as error:
        if not is_refused_by_kio_only(error):
            raise _unreadable(route, error) from error
        request, size = _decode_without_unknown_tags(route, data[start:end])
    if start + size > end:
        raise BadRequest(f"{schema_name(schema)} is truncated")
    return request


def decode_in_steps(route: Route, data: bytes, start: int, end: int, count: ItemCount) -> Steps[Any]:
    """Like ``decode_request``, for a large one. Raises OverLimit, before the items are read, if they are too many."""
    schema = route.schema
    try:
        if schema.flexible:
            start = skip_tagged_fields(data, start)
        request, position = yield from schema.read_in_steps(data, start, count)
    except TooManyItems as error:
        raise OverLimit(route.limit, schema_name(schema), str(error)) from error
    except (KeyError, ValueError, IndexError, OverflowError, schema.decode_error) as error:
        raise _unreadable(route, error) from error
    if position > end:
        raise BadRequest(f"{schema_name(schema)} is truncated")
    return request


def _decode_without_unknown_tags(route: Route, body: bytes) -> tuple[Any, int]:
    schema = route.schema
    try:
        return schema.read(without_unknown_tags(schema.request_type, body, 0)[0], 0)[0], 0
    except (KeyError, ValueError, IndexError, OverflowError, schema.decode_error) as error:
        raise _unreadable(route, error) from error


def _unreadable(route: Route, error: Exception) -> BadRequest:
    return BadRequest(f"{schema_name(route.schema)} cannot be read: {describe_decode_error(error)}")
