"""The audit trail of a node."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..security.audit import NO_AUDIT, Audit
from ..settings.audit import NONE, STDOUT
from .data import NodeData
from .environment import Environment

if TYPE_CHECKING:
    from ..settings.table import Options


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
    return AuditLog(sink, data.files, environment.clock, environment.random, later, lambda: settings.audit_required)
