"""The share of each step of loading a partition in its CPU time.

The steps are called once for each chunk of the log, so measuring them costs nothing that would change their shares.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from callboard.runtime.log.reading import newest
from callboard.runtime.log.reading.backwards import chunks_newest_first
from callboard.runtime.log.reading.columns import has_numpy
from callboard.runtime.log.reading.newest import NewestFirstLoader

READING = "read the file, check the batches"
OTHER = "other"
MODULE_STEPS = {"read_columns": "find the records and their keys"}
LOADER_STEPS = {
    "_filter_new": "select the newest record of each key",
    "_store_records": "decode and store the newest records",
    "finish": "pack the groups",
}
TABLE_STEPS = {"find_unknown": "look up keys in the table", "add": "add keys to the table"}


class StepTimes:
    """Replaces functions of the loader, in this process, by ones that measure the CPU time of their step."""

    def __init__(self, clock: Callable[[], float] = time.process_time) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._clock = clock

    def replace(self, owner: Any, steps: dict[str, str]) -> None:
        """Measure functions of a module or class; ``steps`` has the name of each one's step."""
        for name, step in steps.items():
            setattr(owner, name, self.timed(step, getattr(owner, name)))

    def timed(self, step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            start_s = self._clock()
            try:
                return function(*arguments)
            finally:
                self.seconds[step] += self._clock() - start_s

        return run

    def timed_iterator(self, step: str, function: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        """The same for a function whose iterator does the work."""

        def iterate(*arguments: Any) -> Iterator[Any]:
            advance = self.timed(step, function(*arguments).__next__)
            while True:
                try:
                    value = advance()
                except StopIteration:
                    return
                yield value

        return iterate


def measure_steps(folder: Path, fast: bool) -> dict[str, float]:
    """Load a partition; the seconds of CPU of each step. Changes the loader of this process."""
    times = StepTimes()
    times.replace(newest, MODULE_STEPS)
    times.replace(NewestFirstLoader, LOADER_STEPS)
    if fast:
        from callboard.runtime.log.reading.known_keys import KnownKeys

        times.replace(KnownKeys, TABLE_STEPS)
    setattr(newest, "chunks_newest_first", times.timed_iterator(READING, chunks_newest_first))  # noqa: B010
    gc.disable()  # as in the process that loads the log for a server
    start_s = time.process_time()
    newest.load_partition(folder, fast=fast)
    total_s = time.process_time() - start_s
    return {**times.seconds, OTHER: max(0.0, total_s - sum(times.seconds.values()))}


if __name__ == "__main__":
    is_fast = sys.argv[2] == "fast"
    if is_fast and has_numpy():
        import numpy  # noqa: F401 - its import is not a step
    print(json.dumps(measure_steps(Path(sys.argv[1]), is_fast)))
