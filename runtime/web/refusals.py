"""Refused requests in the audit trail: without a user, from a page of another site, or with a form of somebody else."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Final

import pykka
from starlette.requests import Request

from .backend import Backend, Unavailable
from .changing import who_asks
from .problems import Problem

log = logging.getLogger("callboard.runtime.web")

MECHANISM: Final = "HTTP"
STATUSES: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class Refusals:
    """``backend`` has the audit trail."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def record(self, request: Request, problem: Problem) -> None:
        """Record a refusal of the HTTP server itself. Those of the coordinator have the name of an error."""
        if problem.status not in STATUSES or problem.error is not None:
            return
        who = who_asks(request)

        async def note() -> None:
            self._backend.node().services.audit.refused(who, MECHANISM, problem.detail)

        try:
            await self._backend.ask(note)
        except (Unavailable, pykka.ActorDeadError, RuntimeError) as error:
            log.info("a refusal is not in the audit trail: %s", error)
