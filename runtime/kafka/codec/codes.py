"""From our error codes to kio's, and the throttle time of every answer.

kio writes an error code from its own enum only, and it is loaded late like all of kio.
"""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import Any, Final

from ....actors.errors import ErrorCode
from .kio import kio

NO_THROTTLE: Final = timedelta(0)
"""There are no quotas, so no client is ever asked to slow down."""


ONE_MILLISECOND: Final = timedelta(milliseconds=1)


@cache
def kafka_error(code: ErrorCode) -> Any:
    """kio's ``ErrorCode`` of the same number."""
    return kio("schema.errors").ErrorCode(int(code))


def producer_error(code: ErrorCode, knows_fenced: bool) -> Any:
    """The same for producers: versions before KIP-588 hear of a fenced one by the code that they know."""
    if code is ErrorCode.PRODUCER_FENCED and not knows_fenced:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return kafka_error(code)


def milliseconds(value: timedelta) -> int:
    """kio reads times as timedeltas; Kafka's rules speak of milliseconds."""
    return value // ONE_MILLISECOND
