"""Reports the limits by which requests are refused, all or a part of them."""

from __future__ import annotations

from collections.abc import Iterable

from ...actors.errors import CoordinatorError
from ...actors.steps import Steps, pieces
from .call import Call
from .request_names import schema_name


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
