"""Checkpoints: the partition files are synced, then the journal files that held the same batches go.

The syncs run in parallel, because fifty of them one after the other take 141 ms and together 6 (the file system's own
journal merges them), and outside of the log's thread, because rounds go on meanwhile into the next journal file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from .disk import Disk
from .partition import SyncJob

THREADS = 8  # more do not make fifty syncs faster


class Checkpointer:
    """Runs one checkpoint at a time; its threads are started when the first one needs them."""

    def __init__(self, disk: Disk, on_failure: Callable[[Exception], None]) -> None:
        self._disk = disk
        self._on_failure = on_failure
        self._pool = ThreadPoolExecutor(THREADS, "callboard-log-sync")
        self._running: Future[None] | None = None

    @property
    def busy(self) -> bool:
        return self._running is not None and not self._running.done()

    def start(self, jobs: Sequence[SyncJob], journals: Sequence[Path]) -> None:
        """Run the jobs, then remove the journals, durably; not while ``busy``. A failure is told and removes nothing.

        At least one journal, all of one folder.
        """
        self._running = self._pool.submit(self._run, jobs, journals)

    def wait(self) -> None:
        """Until the checkpoint that runs, if any, has ended."""
        if self._running is not None:
            self._running.result()

    def close(self) -> None:
        self._pool.shutdown()

    def _run(self, jobs: Sequence[SyncJob], journals: Sequence[Path]) -> None:
        try:
            self._sync(jobs)
            for path in journals:
                self._disk.remove(path)
            self._disk.sync_folder(journals[0].parent)
        except Exception as error:  # a thread that cannot be started is one, too
            self._on_failure(error)

    def _sync(self, jobs: Sequence[SyncJob]) -> None:
        """All jobs run to their end, each closes its file, before the first failure of any is raised."""
        futures = [self._pool.submit(job.run, self._disk) for job in jobs]
        errors = [future.exception() for future in futures]
        for error in errors:
            if error is not None:
                raise error
