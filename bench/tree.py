"""Memory and CPU time of all processes that this one has started, and of those that they have. Needs ``/proc``.

What a child says of itself leaves out its own children: Spark is a machine for Java that starts Python workers.
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

LOOK_S = 0.05  # memory that is taken for a shorter time may be missed

_TICKS = slice(11, 15)  # of a process's stat, behind its name: user, system, and both of children that it has reaped
_PARENT = 1


def descendants(pid: int) -> set[int]:
    """The processes below one; none where there is no ``/proc``."""
    parents = {int(path.name): _stat(int(path.name))[1] for path in Path("/proc").glob("[0-9]*")}
    found: set[int] = set()
    while more := {one for one, stat in parents.items() if stat and int(stat[_PARENT]) in found | {pid}} - found:
        found |= more
    return found


def cpu_ticks(pids: Iterable[int]) -> Counter[str]:
    """What these have used, with their children that have ended, by the names of their programs."""
    used: Counter[str] = Counter()
    for pid in pids:
        name, stat = _stat(pid)
        used[name] += sum(map(int, stat[_TICKS]))
    return used


def _stat(pid: int) -> tuple[str, list[str]]:
    """The name, and the fields behind it; none of a process that has ended."""
    try:
        head, _, tail = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    except OSError:
        return "", []
    return head.partition("(")[2], tail.split()


class Watch:
    """What all processes below this one but ``others`` use while the block lasts: CPU time, and memory at its most.

    CPU time is in seconds, by the names of programs. Memory is what is resident, in bytes; pages that several share
    count for each. Without ``/proc`` there is none of both.
    """

    def __init__(self, others: Iterable[int] = ()) -> None:
        self.cpu_s: dict[str, float] = {}
        self.peak_bytes = 0
        self._began: Counter[str] = Counter()
        self._others = set(others)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)

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

    def _look_on(self) -> None:
        while not self._is_over.wait(LOOK_S):
            self.look()

    def look(self) -> None:
        self.peak_bytes = max(self.peak_bytes, sum(resident_bytes(pid) or 0 for pid in self._pids()))

    def _pids(self) -> set[int]:
        return descendants(os.getpid()) - self._others
