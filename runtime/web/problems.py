"""Errors as problem details (RFC 9457), with the name of Kafka's error where it is one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import pykka
from starlette.exceptions import HTTPException
from starlette.requests import Request

from ...actors.errors import CoordinatorError, ErrorCode
from ..common.errors import CompactionRuns
from ..embed.reset_undo import UndoRefused, UnknownChange
from .backend import Unavailable
from .group_list import BadParameter
from .json_replies import JsonResponse

log = logging.getLogger("callboard.runtime.web")

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
    ErrorCode.MESSAGE_TOO_LARGE: 413,
    ErrorCode.NOT_COORDINATOR: 421,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: 403,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.UNSUPPORTED_VERSION: 501,
    ErrorCode.LEADER_NOT_AVAILABLE: 503,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: 503,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: 503,
    ErrorCode.KAFKA_STORAGE_ERROR: 503,
}
"""The HTTP status of an error of Kafka's; of others 500."""


class BadBody(ValueError):
    """The body of a request is invalid. The text names the value, and says what was expected."""


class KeyReused(Exception):
    """An Idempotency-Key was used for another request."""


class KeyInUse(Exception):
    """A request with an Idempotency-Key is being answered, or its answer cannot be given again."""


class Problem(NamedTuple):
    """What is answered instead of what was asked for. ``error``: the name of Kafka's error, if it is one."""

    status: int
    detail: str
    error: str | None = None
    headers: Mapping[str, str] | None = None

    @property
    def title(self) -> str:
        return HTTPStatus(self.status).phrase


def headers_of(problem: Problem) -> Mapping[str, str]:
    retry = {"Retry-After": str(RETRY_AFTER_S)} if problem.status == HTTPStatus.SERVICE_UNAVAILABLE else {}
    return {**retry, **(problem.headers or {})}


def problem_json(problem: Problem) -> JsonResponse:
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail,
    }
    if problem.error is not None:
        body["error"] = problem.error
    return JsonResponse(body, problem.status, headers_of(problem), MEDIA_TYPE)


# By exception --------------------------------------------------------------------------------------------------------


def _of_http(request: Request, error: Exception) -> Problem:
    assert isinstance(error, HTTPException)
    detail = error.detail
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = f"nothing is at {request.url.path[:200]!r}: /api/v1/openapi.json lists what is there"
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
        detail = f"method {request.method[:20]!r}: expected {allowed}"
    return Problem(error.status_code, detail, headers=error.headers)


def _of_coordinator(request: Request, error: Exception) -> Problem:
    assert isinstance(error, CoordinatorError)
    return Problem(STATUS.get(error.code, 500), str(error), error.code.name)


def _unknown_change(request: Request, error: Exception) -> Problem:
    return Problem(404, str(error))


def _undo_refused(request: Request, error: Exception) -> Problem:
    return Problem(409, str(error))


def _bad_request(request: Request, error: Exception) -> Problem:
    return Problem(400, str(error))


def _key_reused(request: Request, error: Exception) -> Problem:
    return Problem(422, str(error))


def _key_in_use(request: Request, error: Exception) -> Problem:
    return Problem(409, str(error))


def _compaction_runs(request: Request, error: Exception) -> Problem:
    return Problem(409, str(error))


def _unavailable(request: Request, error: Exception) -> Problem:
    return Problem(503, str(error))


def _bug(request: Request, error: Exception) -> Problem:
    return Problem(500, "a bug: the log of the server has the error")


PROBLEMS: Final[Mapping[Any, Callable[[Request, Exception], Problem]]] = {
    HTTPException: _of_http,
    CoordinatorError: _of_coordinator,
    UnknownChange: _unknown_change,
    UndoRefused: _undo_refused,
    BadParameter: _bad_request,
    BadBody: _bad_request,
    KeyReused: _key_reused,
    KeyInUse: _key_in_use,
    CompactionRuns: _compaction_runs,
    Unavailable: _unavailable,
    pykka.ActorDeadError: _unavailable,
    Exception: _bug,
}
"""By exception, the function that says what the problem is."""


def problem_of(request: Request, error: Exception) -> Problem:
    """What is answered when an exception was raised. One that is not expected is in the log."""
    problem = next(PROBLEMS[kind] for kind in type(error).__mro__ if kind in PROBLEMS)(request, error)
    if problem.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        log.error("a bug of the web page", exc_info=error)
    return problem
