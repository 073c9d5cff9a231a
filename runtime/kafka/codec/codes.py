"""Conversion of error codes to kio's enum, which kio needs to encode them, and the throttle time of responses."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import Any, Final

from ....actors.errors import ErrorCode
from .kio import kio

NO_THROTTLE: Final = timedelta(0)
"""There are no quotas, so no client is throttled."""

ONE_MILLISECOND: Final = timedelta(milliseconds=1)


@cache
def kafka_error(code: ErrorCode) -> Any:
    """Return kio's ``ErrorCode`` of the same number."""
    return kio("schema.errors").ErrorCode(int(code))


def producer_error(code: ErrorCode, has_fenced_code: bool) -> Any:
    """Like ``kafka_error``. Versions before KIP-588 get INVALID_PRODUCER_EPOCH for PRODUCER_FENCED."""
    if code is ErrorCode.PRODUCER_FENCED and not has_fenced_code:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return kafka_error(code)


def milliseconds(value: timedelta) -> int:
    """Convert a timedelta of kio to milliseconds."""
    return value // ONE_MILLISECOND
