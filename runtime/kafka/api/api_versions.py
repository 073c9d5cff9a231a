"""ApiVersions (key 18): the served APIs and their versions."""

from __future__ import annotations

import re
from typing import Any

from ....actors.errors import ErrorCode
from ..call import Call
from ..codec.codes import NO_THROTTLE
from . import API_VERSIONS_KEY, APIS, Api

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""Valid client software names and versions (KIP-511)."""


def handle(call: Call) -> None:
    name = getattr(call.request, "client_software_name", "unknown")
    version = getattr(call.request, "client_software_version", "unknown")
    if SOFTWARE.fullmatch(name) and SOFTWARE.fullmatch(version):
        _answer(call, ErrorCode.NONE, APIS)
    else:
        _answer(call, ErrorCode.INVALID_REQUEST, ())


def handle_unsupported(call: Call) -> None:
    """Answer an unsupported version of ApiVersions with the supported ones of this API."""
    _answer(call, ErrorCode.UNSUPPORTED_VERSION, tuple(api for api in APIS if api.key == API_VERSIONS_KEY))


def _answer(call: Call, error: ErrorCode, apis: tuple[Api, ...]) -> None:
    response = call.make(
        "ApiVersionsResponse",
        error_code=error,
        api_keys=tuple(_api_version(call, api) for api in apis),
        throttle_time=NO_THROTTLE,
    )
    call.respond(response)


def _api_version(call: Call, api: Api) -> Any:
    min_version = api.min_version if api.advertised_min_version is None else api.advertised_min_version
    return call.make("ApiVersion", api_key=api.key, min_version=min_version, max_version=api.max_version)
