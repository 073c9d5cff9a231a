"""The log is compacted while the server runs: Kafka's log cleaner, as a process beside it.

The server itself only looks, by names and sizes, what is worth it. The work is ``callboard compact`` in a child process
that gives way to others, so that no commit waits for it, and whose end, however it comes, leaves the log as it was or
better. It ends with the server, because it watches a pipe of which the server holds the other end.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..common.errors import StartError
from ..disk.disk import Disk
from ..engine.clock import wall_clock_ms
from ..log.partition import TOPIC, TRANSACTIONS_TOPIC
from ..settings.table import Settings as NodeSettings

if TYPE_CHECKING:
    from ..log.compaction.job import CompactionJob
    from ..log.compaction.plan import CompactionPlan
from ..common.logs import get_logger

NICENESS = 10
RETRY_S = 600.0
"""What was due, and still is after a run, waits so long: a transaction is open, or something is wrong."""

log = get_logger("callboard.runtime")


class Tried(NamedTuple):
    """What a partition was like when it was last given to a run, and when that was (monotonic, in s)."""

    generation: int
    end: int
    at_s: float


class Cleaner:
    """Looks every ``log_cleaner_backoff_ms`` and runs the child when there is something to do. A failure is logged."""

    def __init__(
        self,
        data: Path,
        settings: NodeSettings,
        disk: Disk | None = None,
        clock_s: Callable[[], float] = time.monotonic,
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        """``clock_s`` is monotonic, ``clock_ms`` counts from 1970."""
        self._data = data
        self._clock_s = clock_s
        self._clock_ms = clock_ms
        self._settings = settings
        self._disk = disk or Disk()
        self._tried: dict[str, Tried] = {}
        self._child: subprocess.Popen[str] | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self.runs = 0

    def start(self) -> None:
        """Begin, on the loop that runs, unless the settings say no."""
        if self._settings.log_cleaner_enable:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """End the child, too. What it was about is as it was before, or done."""
        self.halt()
        if self._task is not None:
            with suppress(asyncio.CancelledError):
                await self._task

    def halt(self) -> None:
        """The same without waiting."""
        self._stopping = True
        if self._task is not None:
            self._task.cancel()
        child = self._child  # once: the thread that waits for it forgets it when it ends
        if child is not None:
            child.kill()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._settings.log_cleaner_backoff_ms / 1000)
            try:
                await asyncio.to_thread(self._look)
            except Exception as error:  # the log goes on growing, which is no reason to stop
                log.error("the log could not be compacted", reason=repr(error))

    def _look(self) -> None:
        names = self.due()
        if names and not self._stopping:
            self.runs += 1
            self._tell(*self._call(names))

    def due(self) -> list[str]:
        """The partitions for which a run is worth it, and which one did not leave as they are a moment ago."""
        jobs = [self._job(self._data / name) for name in self._disk.names(self._data) if _is_partition(name)]
        return [job.folder.name for job in jobs if self._is_due(job)]

    def _is_due(self, job: CompactionJob) -> bool:
        from ..log.compaction.job import is_due  # which a server that has no log yet does not need
        from ..log.compaction.plan import make_plan

        name, now_s = job.folder.name, self._clock_s()
        before = self._tried.get(name)
        try:
            plan: CompactionPlan | None = make_plan(self._disk, job.folder)
        except (StartError, OSError) as error:
            plan = None
            if before is None:
                log.error("a partition cannot be compacted", partition=name, reason=str(error))
        mark = Tried(plan.manifest.generation, plan.end, now_s) if plan else Tried(-1, -1, now_s)
        if before is not None and before[:2] == mark[:2] and now_s < before.at_s + RETRY_S:
            return False
        if plan is not None and not is_due(self._disk, job, plan):
            return False
        self._tried[name] = mark
        return plan is not None

    def _job(self, folder: Path) -> CompactionJob:
        from ..log.compaction.job import CompactionJob
        from ..log.compaction.publish import GRACE_MS
        from ..log.compaction.swap import CompactionSettings

        settings = self._settings
        ratio, retention_ms = settings.log_cleaner_min_cleanable_ratio, settings.log_cleaner_delete_retention_ms
        return CompactionJob(folder, CompactionSettings(self._clock_ms(), "", ratio, retention_ms), GRACE_MS)

    def _call(self, names: list[str]) -> tuple[int, str, str]:
        """Run the child to its end: exit code, what it said, what it said on standard error."""
        self._child = child = subprocess.Popen(
            self._command(names), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert child.stdin is not None
        held, child.stdin = child.stdin, None  # communicate would close it, and the child take that for our end
        if self._stopping:
            child.kill()
        try:
            said, complaint = child.communicate()
        finally:
            held.close()
            self._child = None
        return child.returncode, said, complaint

    def _command(self, names: list[str]) -> list[str]:
        settings = self._settings
        options: dict[str, object] = {
            "data": self._data,
            "partitions": ",".join(names),
            "processes": 1,
            "min-cleanable-ratio": settings.log_cleaner_min_cleanable_ratio,
            "delete-retention-ms": settings.log_cleaner_delete_retention_ms,
            "segment-bytes": settings.offsets_topic_segment_bytes,
            "memory": settings.log_cleaner_dedupe_buffer_size,
            "nice": NICENESS,
        }
        given = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        return [sys.executable, "-m", "callboard", "compact", *given, "--json", "--end-with-stdin"]

    def _tell(self, code: int, said: str, complaint: str) -> None:
        if self._stopping:
            return
        for report in _reports(said):
            if report["status"] == "compacted":
                counts = {name: report[name] for name in ("records_before", "records_after", "bytes_before")}
                seconds = round(report["seconds"], 3)
                log.info(
                    "compacted", partition=report["partition"], **counts, bytes_after=report["bytes_after"],
                    seconds=seconds,
                )  # fmt: skip
            elif report["status"] == "waiting":
                log.warning("the log is not compacted further", partition=report["partition"], reason=report["reason"])
        if code:
            log.error("the log could not be compacted", exit_code=code, reason=complaint.strip()[-2000:])


def _is_partition(name: str) -> bool:
    topic, _, number = name.rpartition("-")
    return topic in (TOPIC, TRANSACTIONS_TOPIC) and number.isdecimal()


def _reports(said: str) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = json.loads(said)["partitions"]
    except (ValueError, KeyError):
        return []
    return found
