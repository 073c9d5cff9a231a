"""Memory and CPU time of all child processes and their descendants. Needs ``/proc``.

A child process's own figures do not include its children: Spark is a Java process that starts Python workers.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from .harness import resident_bytes

SAMPLE_INTERVAL_S = 0.05  # memory that is used for a shorter time may be missed

_TICKS = slice(11, 15)  # fields of a process's stat after its name: user and system time, and those of reaped children
_PARENT = 1


def descendants(pid: int) -> set[int]:
    """The descendants of a process; empty without ``/proc``."""
    parents = {int(path.name): _stat(int(path.name))[1] for path in Path("/proc").glob("[0-9]*")}
    descendants: set[int] = set()
    while (
        children := {child for child, stat in parents.items() if stat and int(stat[_PARENT]) in descendants | {pid}}
        - descendants
    ):
        descendants |= children
    return descendants


def cpu_ticks(pids: Iterable[int]) -> Counter[str]:
    """CPU time of these processes and of their ended children, by program name."""
    cpu_by_process: Counter[str] = Counter()
    for pid in pids:
        name, stat = _stat(pid)
        cpu_by_process[name] += sum(map(int, stat[_TICKS]))
    return cpu_by_process


def _stat(pid: int) -> tuple[str, list[str]]:
    """The name and the fields after it; empty for a process that has ended."""
    try:
        head, _, tail = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    except OSError:
        return "", []
    return head.partition("(")[2], tail.split()


class ProcessUsage:
    """CPU time and peak memory of all descendants except ``others`` during the block.

    CPU time is in seconds, by program name. Memory is resident memory in bytes; shared pages count for each process.
    Without ``/proc`` both are 0.
    """

    def __init__(self, pids: Iterable[int] = ()) -> None:
        self.cpu_s: dict[str, float] = {}
        self.peak_bytes = 0
        self._began: Counter[str] = Counter()
        self._others = set(pids)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._sample_repeatedly, daemon=True)

    def __enter__(self) -> Self:
        self._began = cpu_ticks(self._pids())
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()
        ticks = cpu_ticks(self._pids())
        ticks.subtract(self._began)
        self.cpu_s = {name: count / os.sysconf("SC_CLK_TCK") for name, count in ticks.items()}

    def _sample_repeatedly(self) -> None:
        while not self._is_over.wait(SAMPLE_INTERVAL_S):
            self.sample()

    def sample(self) -> None:
        self.peak_bytes = max(self.peak_bytes, sum(resident_bytes(pid) or 0 for pid in self._pids()))

    def _pids(self) -> set[int]:
        return descendants(os.getpid()) - self._others
