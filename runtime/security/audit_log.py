"""AuditLog: makes the lines of the audit trail and has them written, without holding up the event loop.

Lines that could not be written are kept and written later, so an error of the disk loses none unless the process ends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from ...actors.engine_ports import Clock
from ..common.logs import get_logger
from ..disk.file_work import FileWork
from .audit import Asked, Change, Who
from .audit_file import AuditSink
from .audit_folding import Folding

FOLD_MS: Final = 60_000
FOLDED_CHARS_MAX: Final = 300
"""The end of a longer text in a folded line is left out: clients choose them, and a name may have 32,767 bytes."""

RETRY_MS: Final = 1000
UNWRITTEN_MAX: Final = 100_000
"""Lines that wait because the disk fails. Beyond it the oldest are lost, which is logged."""

log = get_logger("callboard.runtime")


class Ids(Protocol):
    def uuid(self) -> str:
        """A random UUID as 36 lower-case characters."""


class Line(NamedTuple):
    """``is_change``: durable when it is written."""

    data: bytes
    is_change: bool


class AuditLog:
    """Implements ``Audit``. For use on the loop's thread only.

    ``later`` calls back after milliseconds. ``is_required``: whether changes are refused while lines cannot be written.
    """

    is_on = True

    def __init__(
        self,
        sink: AuditSink,
        files: FileWork,
        clock: Clock,
        ids: Ids,
        later: Callable[[int, Callable[[], None]], object],
        is_required: Callable[[], bool],
    ) -> None:
        self.failure = ""
        self._sink = sink
        self._files = files
        self._clock = clock
        self._ids = ids
        self._later = later
        self._is_required = is_required
        self._lines: list[Line] = []
        self._is_writing = False
        self._folding = Folding()
        self._is_closed = False

    @property
    def refusal(self) -> str:
        """See ``Audit``."""
        return self.failure if self.failure and self._is_required() else ""

    # Events ----------------------------------------------------------------------------------------------------------

    def authenticated(self, who: Who, mechanism: str, details: Mapping[str, str]) -> None:
        """See ``Audit``, also for the next three methods."""
        self._add({"kind": "authenticated", **who._asdict(), "mechanism": mechanism, **details})

    def refused(self, who: Who, mechanism: str, reason: str) -> None:
        fields = {"kind": "refused", **who._asdict(), "mechanism": mechanism, "reason": reason}
        self._fold("refused", (who.principal, who.host, mechanism, reason), fields)

    def denied(self, who: Who, asked: Asked, operation: str, resources: Sequence[str]) -> None:
        fields = {"kind": "denied", **who._asdict(), **asked._asdict(), "operation": operation}
        for resource in resources:
            self._fold("denied", (who.principal, operation, resource), {**fields, "resource": resource})

    def changed(self, who: Who, asked: Asked, changes: Iterable[Change], reason: str = "", change_id: str = "") -> str:
        change_id = change_id or self._ids.uuid()
        fields = {"kind": "changed", **who._asdict(), **asked._asdict()}
        for change in changes:
            self._add({**fields, **change._asdict(), "reason": reason, "change_id": change_id}, is_change=True)
        return change_id

    def _fold(self, kind: str, alike: tuple[str, ...], fields: Mapping[str, Any]) -> None:
        if not self._folding:
            self._later(FOLD_MS, self._unfold)
        kept = {name: shortened(value) if isinstance(value, str) else value for name, value in fields.items()}
        self._folding.add(kind, tuple(map(shortened, alike)), kept, self._clock.wall_ms())

    def _unfold(self) -> None:
        for fields in self._folding.take():
            first_ms, last_ms = fields.pop("first_ms"), fields.pop("last_ms")
            self._add({**fields, "first": timestamp(first_ms), "last": timestamp(last_ms)})

    # Writing ---------------------------------------------------------------------------------------------------------

    def _add(self, fields: Mapping[str, Any], *, is_change: bool = False) -> None:
        if self._is_closed:
            return
        start = {"time": timestamp(self._clock.wall_ms()), "id": self._ids.uuid()}
        given = {name: value for name, value in fields.items() if value is not None and value != ""}
        self._lines.append(Line(json.dumps({**start, **given}).encode() + b"\n", is_change))
        self._write()

    def _write(self) -> None:
        if self._lines and not self._is_writing:
            self._is_writing = True
            lines, self._lines = self._lines, []
            data, is_durable = b"".join(line.data for line in lines), any(line.is_change for line in lines)
            work = partial(self._sink.append, data, is_durable=is_durable)
            self._files.submit(work, partial(self._written, lines))

    def _written(self, lines: list[Line], error: OSError | None) -> None:
        self._is_writing = False
        if error is None:
            if self.failure:
                log.warning("the audit trail is written again")
            self.failure = ""
            self._write()
            return
        if not self.failure:
            log.error("the audit trail cannot be written; its lines are kept and written later", reason=str(error))
        self.failure = f"the audit trail cannot be written: {error}"
        lost = max(0, len(lines) + len(self._lines) - UNWRITTEN_MAX)
        if lost:
            log.error("lines of the audit trail are lost", lines=lost)
        self._lines = (lines + self._lines)[lost:]
        if not self._is_closed:
            self._later(RETRY_MS, self._write)

    async def close(self) -> None:
        """Write what is folded or was not written yet. Later events are not kept."""
        self._unfold()
        self._is_closed = True
        await self._files.wait_until_idle()
        self._write()
        await self._files.wait_until_idle()
        if self._lines:
            log.error("lines of the audit trail are lost", lines=len(self._lines), reason=self.failure)


def shortened(text: str) -> str:
    return text if len(text) <= FOLDED_CHARS_MAX else f"{text[:FOLDED_CHARS_MAX]}..."


def timestamp(wall_ms: int) -> str:
    """In ISO 8601, in UTC, with milliseconds."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
