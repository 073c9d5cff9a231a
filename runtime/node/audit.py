"""The audit trail of a node."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..common.logs import get_logger
from ..disk.file_work import FileThread, FileWork
from ..security.audit import NO_AUDIT, Audit
from ..settings.audit import NONE, STDOUT
from .data import NodeData
from .environment import Environment

if TYPE_CHECKING:
    from ..settings.table import Options

log = get_logger("callboard.runtime")


def open_audit(options: Options, data: NodeData, environment: Environment) -> Audit:
    """The audit trail that the settings ask for. Its code is not imported if there is none."""
    settings = data.configs.settings
    if settings.audit == NONE:
        return NO_AUDIT
    from ..security.audit_file import AuditFile, AuditStream
    from ..security.audit_log import AuditLog

    loop = asyncio.get_running_loop()
    file = AuditFile(environment.disk, options.data, settings)

    def later(delay_ms: int, callback: Callable[[], None]) -> object:
        return loop.call_later(delay_ms / 1000, callback)

    sink = AuditStream(sys.stdout.buffer) if settings.audit == STDOUT else file
    files: FileWork = data.files
    if settings.audit == STDOUT and environment.allows_workers:
        files = FileThread(loop)  # who reads it may be slow, and changes of users must not wait for that
    return AuditLog(sink, files, environment.clock, environment.random, later, lambda: settings.audit_required)


async def close_audit(audit: Audit, timeout_s: float) -> None:
    """Write what is not written yet, unless that takes too long: nobody may read standard output any more."""
    try:
        async with asyncio.timeout(timeout_s):
            await audit.close()
    except TimeoutError:
        log.error("lines of the audit trail are lost", reason=f"they could not be written within {timeout_s:g} s")
