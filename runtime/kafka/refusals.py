"""Refusals of requests, all or a part of them: for clients, and the limits by which they are refused for the log."""

from __future__ import annotations

from collections.abc import Iterable

from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.steps import Steps, pieces
from ..settings.dynamic import InvalidSetting
from .call import Call
from .connections.request_names import schema_name


def as_refusal(failure: Exception, what: str) -> CoordinatorError:
    """What the client is told if a change fails. ``what``: what could not be written, in the plural, as "settings"."""
    if isinstance(failure, CoordinatorError):
        return failure
    if isinstance(failure, InvalidSetting):
        return CoordinatorError(ErrorCode.INVALID_REQUEST, str(failure))
    if isinstance(failure, OSError):
        code, text = ErrorCode.KAFKA_STORAGE_ERROR, f"the {what} cannot be written: {failure.strerror}"
        return CoordinatorError(code, text)
    return CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the change has failed: {failure!r}")


def report_over_limit(call: Call, limit: str, reason: str = "") -> None:
    """Count a refusal, and name its client once. ``limit``: a setting of ``LIMITS``. Default reason: its value."""
    reason = reason or f"the limit is {getattr(call.services.settings, limit)}"
    call.services.over_limit.report(call.connection, limit, schema_name(call.schema), reason)


def report_refusals(call: Call, outcomes: Iterable[object]) -> Steps[None]:
    """Report each limit by which something in a request is refused, once. ``outcomes``: refusals, and other results."""
    limits: set[str] = set()
    for piece in pieces(outcomes):
        limits.update(outcome.limit for outcome in piece if isinstance(outcome, CoordinatorError))
        yield
    for limit in sorted(limits - {""}):
        report_over_limit(call, limit)
