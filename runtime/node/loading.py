"""LogLoading: loads the groups from the log of a node, before it listens or in the background."""

from __future__ import annotations

from ..common.logs import get_logger
from ..loading.loader import AT_ONCE_BYTES, load_in_subprocesses, load_inline, make_jobs
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
        self._jobs = make_jobs(data.folder.path, data.log, environment.disk)
        self._environment = environment
        self.sink = LoadSink(actors.groups, actors.transactions, data.topics, data.log, environment.clock)
        is_large = sum(job.log_bytes for job in self._jobs) > AT_ONCE_BYTES
        self.is_in_background = (environment.may_use_subprocesses and is_large) or environment.load is not None

    async def start(self) -> None:
        """Before requests are accepted."""
        await self.sink.start()

    async def load_now(self) -> None:
        """Raises MisplacedError for a group in a wrong partition."""
        load_inline(self._jobs, self.sink.accept, self._environment.disk)
        await self.sink.finish()

    async def load_in_background(self) -> None:
        """Requests to what is not loaded yet are refused meanwhile. Problems are logged, see also ``sink.failure``."""
        try:
            await (self._environment.load or load_in_subprocesses)(self._jobs, self.sink.accept)
        except Exception as error:
            if self.sink.failure:
                return
            log.exception("the log could not be loaded")
            self.sink.fail_rest(repr(error))
        try:
            await self.sink.finish()
        except Exception:
            log.exception("loading could not be finished")
