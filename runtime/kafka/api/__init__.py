"""The table of served APIs: key, versions and the module that handles each. ApiVersions answers with it.

The versions are those of Kafka 4.3, except the last one of ListTransactions, which filters names by RE2 patterns. A
module has one function ``handle(call)``. Modules and schemas are loaded with the first request of their API.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from ..call import Call
from ..codec.schemas import Schema, schema


class Api(NamedTuple):
    key: int
    name: str  # kio's name for its schemas, and the module's here
    min_version: int
    max_version: int
    advertised_min_version: int | None = None  # what ApiVersions says, if it differs
    overlaps: bool = False  # a connection may have several unanswered ones
    comes_in_bursts: bool = False  # all members of a group send it at about the same time


APIS: tuple[Api, ...] = (
    # librdkafka needs Produce from version 0 on to detect a modern broker; Kafka advertises the same (KIP-896).
    Api(0, "produce", 3, 13, advertised_min_version=0),
    Api(1, "fetch", 4, 18),
    Api(2, "list_offsets", 1, 11),
    Api(3, "metadata", 0, 13),
    Api(8, "offset_commit", 2, 10, overlaps=True),
    Api(9, "offset_fetch", 1, 10),
    Api(10, "find_coordinator", 0, 6),
    Api(11, "join_group", 0, 9, comes_in_bursts=True),
    Api(12, "heartbeat", 0, 4, overlaps=True),
    Api(13, "leave_group", 0, 5),
    Api(14, "sync_group", 0, 5, comes_in_bursts=True),
    Api(15, "describe_groups", 0, 6),
    Api(16, "list_groups", 0, 5),
    Api(18, "api_versions", 0, 4),
    Api(19, "create_topics", 2, 7),
    Api(20, "delete_topics", 1, 6),
    Api(21, "delete_records", 0, 2),
    Api(22, "init_producer_id", 0, 5),
    Api(24, "add_partitions_to_txn", 0, 5),
    Api(25, "add_offsets_to_txn", 0, 4),
    Api(26, "end_txn", 0, 5),
    Api(28, "txn_offset_commit", 0, 5),
    Api(32, "describe_configs", 1, 4),
    Api(33, "alter_configs", 0, 2),
    Api(37, "create_partitions", 0, 3),
    Api(42, "delete_groups", 0, 2),
    Api(44, "incremental_alter_configs", 0, 1),
    Api(47, "offset_delete", 0, 0),
    Api(60, "describe_cluster", 0, 2),
    Api(65, "describe_transactions", 0, 0),
    Api(66, "list_transactions", 0, 1),
)

API_VERSIONS_KEY = 18


class Route(NamedTuple):
    """The schema and the handler of one API version."""

    schema: Schema
    handle: Callable[[Call], None]
    overlaps: bool
    comes_in_bursts: bool = False


_BY_KEY = {api.key: api for api in APIS}
loaded_routes: dict[int, Route] = {}
"""The routes of API versions that have been requested, by key << 16 | version."""


def find_route(key: int, version: int) -> Route | None:
    """Return the route of an API version; None if it is not served."""
    return loaded_routes.get(key << 16 | version) or _open_route(key, version)


def _open_route(key: int, version: int) -> Route | None:
    api = _BY_KEY.get(key)
    if api is None:
        return None
    if not api.min_version <= version <= api.max_version:
        return _unsupported_api_versions() if key == API_VERSIONS_KEY else None
    module = import_module(f".{api.name}", __name__)
    route = Route(schema(api.name, version), module.handle, api.overlaps, api.comes_in_bursts)
    loaded_routes[key << 16 | version] = route
    return route


def _unsupported_api_versions() -> Route:
    """For newer versions of ApiVersions: the response has version 0, which every client can read."""
    module = import_module(".api_versions", __name__)
    return Route(schema("api_versions", 0), module.handle_unsupported, False)
