"""ApiVersions (key 18): the served APIs and their versions, and the features of Kafka that are served (KIP-584)."""

from __future__ import annotations

import re
from functools import cache
from sys import intern
from typing import Any

from ....actors.errors import ErrorCode
from .. import api
from ..call import Call
from ..codec.codes import NO_THROTTLE
from ..codec.schemas import Schema

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""Valid client software names and versions (KIP-511)."""

SOFTWARE_FROM = 3
SOFTWARE_CHARACTERS_MAX = 100
"""Longer names are cut, since each connection keeps them."""

OWN_PREFIX = "callboard"
"""How the client ids of Callboard's nodes and tools begin. Others need not read a key that Kafka does not have."""

FEATURES_FROM = 3
FEATURES_FROM_ZERO_FROM = 4
"""Older clients cannot read features whose lowest version is 0, so Kafka leaves them out."""

GROUP_VERSION = "group.version"
FEATURE_MAX_VERSION = 1
FEATURES_EPOCH = 0  # the features never change


def handle(call: Call) -> None:
    name = getattr(call.request, "client_software_name", "unknown")
    version = getattr(call.request, "client_software_version", "unknown")
    if SOFTWARE.fullmatch(name) and SOFTWARE.fullmatch(version):
        if call.version >= SOFTWARE_FROM:
            call.connection.software = intern(f"{name[:SOFTWARE_CHARACTERS_MAX]} {version[:SOFTWARE_CHARACTERS_MAX]}")
        node_apis = () if call.services.peer_gate is None else api.NODE_APIS
        own_apis = api.OWN_APIS if call.connection.client_id.startswith(OWN_PREFIX) else ()
        _answer(call, ErrorCode.NONE, (*api.APIS, *node_apis, *own_apis))
    else:
        _answer(call, ErrorCode.INVALID_REQUEST, ())


def handle_unsupported(call: Call) -> None:
    """Answer an unsupported version of ApiVersions with the supported ones of this API."""
    _answer(call, ErrorCode.UNSUPPORTED_VERSION, (api.find_row("api_versions"),))


def _answer(call: Call, error: ErrorCode, rows: tuple[api.Api, ...]) -> None:
    call.respond_with_bytes(_body(call.schema, error, rows))


@cache
def _body(schema: Schema, error: ErrorCode, rows: tuple[api.Api, ...]) -> bytes:
    """The same for all clients: when thousands connect again at once, it is encoded for the first one."""
    response = schema.make(
        "ApiVersionsResponse",
        error_code=error,
        api_keys=tuple(_api_version(schema, row) for row in rows),
        throttle_time=NO_THROTTLE,
        **({} if error or schema.version < FEATURES_FROM else _features(schema)),
    )
    return schema.write(response)


def _features(schema: Schema) -> dict[str, Any]:
    """The protocol of KIP-848 is served. ``transaction.version`` is not a feature here, so its level is 0."""
    supported = schema.make("SupportedFeatureKey", name=GROUP_VERSION, min_version=0, max_version=FEATURE_MAX_VERSION)
    finalized = schema.make(
        "FinalizedFeatureKey",
        name=GROUP_VERSION,
        max_version_level=FEATURE_MAX_VERSION,
        min_version_level=FEATURE_MAX_VERSION,
    )
    return {
        "supported_features": (supported,) if schema.version >= FEATURES_FROM_ZERO_FROM else (),
        "finalized_features_epoch": FEATURES_EPOCH,
        "finalized_features": (finalized,),
    }


def _api_version(schema: Schema, row: api.Api) -> Any:
    min_version = row.min_version if row.advertised_min_version is None else row.advertised_min_version
    return schema.make("ApiVersion", api_key=row.key, min_version=min_version, max_version=row.max_version)
