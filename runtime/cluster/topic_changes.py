"""TopicChanges: changes of the cluster's topics that wait for the store. Those that wait together make one version."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.steps import Steps
from ..common.logs import get_logger
from ..topics.admin import SharedTopicLimits
from .store import StoreRefused
from .topics_document import TopicsDocument
from .topics_draft import OffsetsRemain, SharedTopicsDraft, draft_of
from .topics_log import TopicsLog

Apply = Callable[[SharedTopicsDraft], Steps[None] | None]
"""Changes a draft, in steps if the change is large. It is called again if others were faster.

Raises CoordinatorError, and OffsetsRemain.
"""

Done = Callable[[CoordinatorError | None], None]

log = get_logger("callboard.cluster")


class WaitingChange:
    """``outcome``: by the last attempt. ``finish`` calls ``done`` once."""

    def __init__(self, apply: Apply, done: Done, timeout_ms: int) -> None:
        self.apply = apply
        self.outcome: CoordinatorError | OffsetsRemain | None = None
        self.is_finished = False
        self._done = done
        self._timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, self._expire)

    def finish(self, error: CoordinatorError | None) -> None:
        if not self.is_finished:
            self.is_finished = True
            self._timer.cancel()
            try:
                self._done(error)
            except Exception:  # the other changes still need their outcome
                log.exception("the outcome of a change of topics could not be reported")

    def _expire(self) -> None:
        reason = "the cluster's store has not answered in time; the change may be made nevertheless; try again"
        if isinstance(self.outcome, OffsetsRemain):
            reason = f"the committed offsets of a deleted topic {self.outcome} are not deleted yet; try again"
        self.finish(CoordinatorError(ErrorCode.REQUEST_TIMED_OUT, reason))


class TopicChanges:
    """``follow`` returns when this node has applied the newest version."""

    def __init__(
        self,
        versions: TopicsLog,
        offsets_partitions: int,
        follow: Callable[[], Awaitable[None]],
        limits: SharedTopicLimits,
    ) -> None:
        self._versions = versions
        self._offsets_partitions = offsets_partitions
        self._follow = follow
        self._limits = limits
        self._waiting: list[WaitingChange] = []
        self._blocked: list[WaitingChange] = []  # until there is another version
        self._task: asyncio.Task[None] | None = None

    def submit(self, apply: Apply, done: Done) -> None:
        """``done`` gets None when the change is durable and applied here, or the refusal.

        It gets REQUEST_TIMED_OUT after as long as a commit may take.
        """
        self._waiting.append(WaitingChange(apply, done, self._limits.offsets_commit_timeout_ms))
        self._run()

    def retry_blocked(self) -> None:
        """There is another version."""
        self._waiting += self._blocked
        self._blocked.clear()
        self._run()

    def _run(self) -> None:
        if self._waiting and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._make_all())

    def halt(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _make_all(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                await self._make([change for change in waiting if not change.is_finished])
        finally:
            self._task = None

    async def _make(self, changes: Sequence[WaitingChange]) -> None:
        try:
            await self._versions.make(lambda document: self._changed(changes, document))
            await self._follow()
        except StoreRefused as error:
            self._fail(changes, ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        except Exception as error:
            log.exception("bug in a change of topics")
            self._fail(changes, ErrorCode.UNKNOWN_SERVER_ERROR, repr(error))
        else:
            for change in changes:
                if isinstance(change.outcome, OffsetsRemain):
                    self._blocked.append(change)
                else:
                    change.finish(change.outcome)

    def _fail(self, changes: Sequence[WaitingChange], code: ErrorCode, reason: str) -> None:
        for change in changes:
            change.finish(CoordinatorError(code, reason))

    def _changed(self, changes: Sequence[WaitingChange], document: TopicsDocument) -> Steps[TopicsDocument | None]:
        draft = yield from draft_of(document, self._offsets_partitions)
        for change in changes:
            try:
                steps = change.apply(draft)
                if steps is not None:
                    yield from steps
                change.outcome = None
            except (CoordinatorError, OffsetsRemain) as refusal:
                change.outcome = refusal.with_traceback(None)
        return (yield from draft.changed())
