"""Errors as problem details (RFC 9457), with the name of Kafka's error where it is one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

import pykka
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from ...actors.errors import CoordinatorError, ErrorCode
from .backend import Unavailable
from .group_list import BadParameter

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_S: Final = 1

STATUS: Final[Mapping[ErrorCode, int]] = {
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.UNKNOWN_MEMBER_ID: 404,
    ErrorCode.INVALID_GROUP_ID: 400,
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.NON_EMPTY_GROUP: 409,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: 409,
    ErrorCode.REBALANCE_IN_PROGRESS: 409,
    ErrorCode.UNSTABLE_OFFSET_COMMIT: 409,
    ErrorCode.NOT_COORDINATOR: 421,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: 403,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: 503,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: 503,
}
"""The HTTP status of an error of Kafka's; of others 500."""


class BadBody(ValueError):
    """The body of a request is invalid. The text names the value, and says what was expected."""


def problem(
    status: int, detail: str, error: str | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """``error``: the name of Kafka's error."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
    }
    if error is not None:
        body["error"] = error
    retry = {"Retry-After": str(RETRY_AFTER_S)} if status == HTTPStatus.SERVICE_UNAVAILABLE else {}
    return JSONResponse(body, status, {**retry, **(headers or {})}, MEDIA_TYPE)


async def _of_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    detail = error.detail
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = f"nothing is at {request.url.path[:200]!r}: /api/v1/openapi.json lists what is there"
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
        detail = f"method {request.method[:20]!r}: expected {allowed}"
    return problem(error.status_code, detail, headers=error.headers)


async def _of_coordinator(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, CoordinatorError)
    return problem(STATUS.get(error.code, 500), str(error), error.code.name)


async def _bad_request(request: Request, error: Exception) -> JSONResponse:
    return problem(400, str(error))


async def _unavailable(request: Request, error: Exception) -> JSONResponse:
    return problem(503, str(error))


async def _bug(request: Request, error: Exception) -> JSONResponse:
    return problem(500, "a bug: the log of the server has the error")


HANDLERS: Final[Mapping[Any, Callable[..., Any]]] = {
    HTTPException: _of_http,
    CoordinatorError: _of_coordinator,
    BadParameter: _bad_request,
    BadBody: _bad_request,
    Unavailable: _unavailable,
    pykka.ActorDeadError: _unavailable,
    Exception: _bug,
}
