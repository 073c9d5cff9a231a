"""TopicsFollower: brings the newest version of the topics into the catalogue of this node."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

from ...actors.steps import ITEMS_PER_STEP, Steps, pieces
from ..common.logs import get_logger
from ..disk.group_commit import outcome_of
from ..topics.adoption import Adoption
from ..topics.store import TopicRow
from .loop_work import run_on_loop
from .topics_document import TopicsDocument
from .topics_draft import rows_of
from .topics_log import TopicsLog

RETRY_S = 1.0

log = get_logger("callboard.cluster")


class TopicsFollower:
    """``applied``: the version that the catalogue has. ``on_applied`` gets the version before, and the new one."""

    def __init__(
        self,
        versions: TopicsLog,
        adoption: Adoption,
        on_applied: Callable[[TopicsDocument | None, TopicsDocument], Awaitable[None]],
    ) -> None:
        self.applied: TopicsDocument | None = None
        self.next: TopicsDocument | None = None  # while it is applied
        self._versions = versions
        self._adoption = adoption
        self._on_applied = on_applied
        self._waiting: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None

    def follow(self) -> asyncio.Future[None]:
        """Done when the catalogue has a version that was the newest one after this call; or with StoreRefused."""
        applied: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(applied)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        return applied

    def halt(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                error: Exception | None = None
                try:
                    await self._apply(await self._versions.read())
                except Exception as failure:
                    log.error("the cluster's topics cannot be read", reason=repr(failure))
                    error = failure
                for future in waiting:
                    if not future.done():
                        future.set_exception(error) if error is not None else future.set_result(None)
        finally:
            self._task = None

    async def _apply(self, document: TopicsDocument) -> None:
        previous = self.applied
        if previous is not None and document.version == previous.version:
            return
        self.next = document
        rows = await run_on_loop(_listed(rows_of(document)))
        reason = ""
        while failure := await outcome_of(partial(self._adoption.adopt, rows)):
            if reason != str(failure):  # the disk may be full for days
                reason = str(failure)
                log.error("the cluster's topics could not be written to the data folder", reason=reason)
            await asyncio.sleep(RETRY_S)
        self.applied, self.next = document, None
        await self._on_applied(previous, document)
        if previous is not None:  # its last reference: freeing 30,000 ACLs at once takes 7 ms
            parts = list(previous.parts())
            del previous
            await run_on_loop(_emptied(parts))

    def first_epoch(self, name: str) -> int:
        """The epoch in which a topic was created; 0 if it is not known yet."""
        document = self.next or self.applied
        topic = None if document is None else document.topics.get(name)
        return 0 if topic is None else topic.first_epoch


def _listed(rows: Iterable[TopicRow]) -> Steps[list[TopicRow]]:
    listed: list[TopicRow] = []
    for piece in pieces(rows):
        listed += piece
        yield
    return listed


def _emptied(parts: list[list[Any]]) -> Steps[None]:
    """Free parts of which there is no other reference."""
    while parts:
        part = parts.pop()
        while part:
            del part[-ITEMS_PER_STEP:]
            yield
