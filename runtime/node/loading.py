"""LogLoading: loads the groups from the log of a node, before it listens or in the background."""

from __future__ import annotations

from ..common.logs import get_logger
from ..loading.loader import AT_ONCE_BYTES, load_in_subprocesses, load_inline, make_jobs
from ..loading.pieces import LoadJob, LoadReport
from ..loading.sink import LoadSink
from .actors import NodeActors
from .data import NodeData
from .environment import Environment

log = get_logger("callboard.runtime")


class LogLoading:
    """Loads the log of a node once. ``sink`` has the figures, and whether loading is finished.

    ``is_in_background``: call ``load_in_background`` while the server listens, because the log is large; else
    ``load_now`` before.
    """

    def __init__(self, data: NodeData, actors: NodeActors, environment: Environment) -> None:
        self._root = data.folder.path
        self._jobs = make_jobs(self._root, data.log, environment.disk)
        self._actors = actors
        self._environment = environment
        self.sink = LoadSink(actors.groups, data.topics, data.log, environment.clock)
        is_large = sum(job.log_bytes for job in self._jobs) > AT_ONCE_BYTES
        self.is_in_background = (environment.may_use_subprocesses and is_large) or environment.load is not None

    async def load_now(self) -> None:
        """Raises MisplacedError for a group in a wrong partition."""
        load_inline(self._jobs, self.sink.accept, self._environment.disk)
        await self.sink.finish(self._actors.transactions)

    async def load_in_background(self) -> None:
        """Requests to what is not loaded yet are refused meanwhile. Problems are logged, see also ``sink.failure``."""
        try:
            await (self._environment.load or load_in_subprocesses)(self._jobs, self.sink.accept)
        except Exception as error:
            if self.sink.failure:
                return
            log.exception("the log could not be loaded")
            self._report_failure(repr(error))
        try:
            await self.sink.finish(self._actors.transactions)
        except Exception:
            log.exception("loading could not be finished")

    def _report_failure(self, failure: str) -> None:
        """Refuse all partitions that are not loaded."""
        folder = str(self._root)
        for partition in tuple(self._actors.groups.availability.loading):
            self.sink.accept(LoadJob(partition, folder, False, 0), LoadReport(failure=failure))
        self.sink.accept(LoadJob(-1, folder, True, 0), LoadReport(failure=failure))
