"""An outage of the store: what is tried several times a second is logged once for each reason, and when it is over."""

from __future__ import annotations

import re
from typing import Final

from ..common.logs import get_logger
from .store import StoreRefused, StoreUnavailable

REASONS_MAX: Final = 8
"""Reasons that are logged of one outage."""
NUMBER: Final = re.compile(r"\d+")
"""In a reason: of a temporary file, or of a time. Reasons that differ in numbers only are one."""

log = get_logger("callboard.cluster")


class Outage:
    """``event`` and ``fields``: of the log's lines."""

    def __init__(self, event: str, **fields: str) -> None:
        self._event = event
        self._fields = fields
        self._reasons: set[str] = set()

    def note(self, error: StoreUnavailable | StoreRefused) -> None:
        """The store did not answer, or not with what was asked for."""
        reason = str(error)
        kind = NUMBER.sub("", reason)
        if kind not in self._reasons and len(self._reasons) < REASONS_MAX:
            self._reasons.add(kind)
            log.warning(self._event, **self._fields, reason=reason)

    def end(self) -> None:
        """The store has answered. Does nothing without an outage."""
        if self._reasons:
            self._reasons.clear()
            log.info("the store is available again", **self._fields)
