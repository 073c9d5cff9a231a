"""What waits for the next job on the partition files, and the start of that job. See ``checkpoint.FileJob``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ..common.logs import get_logger
from ..disk.disk import Disk
from ..disk.threads import Call, Threads
from .checkpoint import FileJob, FileJobResult, OldJournal
from .partitions import Partitions

log = get_logger("callboard.log")


class FileJobs:
    """The batches and calls that wait for a job. At most one job runs at a time.

    ``rounds``: the batches of each written round; ``waiting_bytes``: their size in the journal. ``job_bytes``: the
    bytes that were handed to jobs and are not in the partition files yet.
    """

    def __init__(self, disk: Disk, threads: Threads, partitions: Partitions) -> None:
        self.rounds: list[Sequence[tuple[int, bytes]]] = []
        self.waiting_bytes = 0
        self.job_bytes = 0
        self.tasks: list[Call] = []
        self.is_running = False
        self._disk = disk
        self._threads = threads
        self._partitions = partitions

    def start(
        self,
        done: Callable[[FileJobResult], None],
        old: tuple[Path, int] | None,
        journals: tuple[OldJournal, ...],
        *,
        syncs: bool,
        stopping: Path | None,
    ) -> None:
        """Start a job with everything that waits. ``done`` is called in the log's thread. The rest: see ``FileJob``."""
        rounds, self.rounds = self.rounds, []
        tasks, self.tasks = self.tasks, []
        self.job_bytes += self.waiting_bytes
        self.waiting_bytes = 0
        self.is_running = True
        work = rounds, tasks, old, journals
        job = FileJob(self._disk, self._threads, self._partitions, *work, syncs=syncs, stopping=stopping)
        self._threads.submit(partial(self._run, job, done))

    def discard(self) -> None:
        """Drop all waiting batches. The journal has them."""
        self.rounds.clear()
        self._partitions.drop_waiting()

    def _run(self, job: FileJob, done: Callable[[FileJobResult], None]) -> None:
        """Runs outside of the log's thread."""
        try:
            result = job.run()
        except Exception as error:  # a bug
            log.exception("bug in the work on the partition files")
            result = FileJobResult(error=error)
        self._threads.put(partial(self._finish, result, done))

    def _finish(self, result: FileJobResult, done: Callable[[FileJobResult], None]) -> None:
        self.is_running = False
        self.job_bytes = result.waiting_bytes
        done(result)
