"""How the work of a job is shared out to Spark's tasks."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from heapq import heapify, heapreplace
from typing import TypeVar

from .files import Log
from .options import Options

TASK_BYTES = 32 * 1024 * 1024
"""About a tenth of a second of decoding; a task costs some 20 ms before it reads a byte."""

Piece = TypeVar("Piece")


def spread(sizes: Mapping[Piece, int], shares: int) -> list[list[Piece]]:
    """Pieces in so many shares of about the same size, at least one, none of them empty; the largest share first."""
    heap: list[tuple[int, int, list[Piece]]] = [(0, index, []) for index in range(max(1, min(shares, len(sizes))))]
    heapify(heap)
    for piece in sorted(sizes, key=lambda piece: -sizes[piece]):
        total, index, pieces = heap[0]
        pieces.append(piece)
        heapreplace(heap, (total + max(sizes[piece], 1), index, pieces))
    return [pieces for _, _, pieces in sorted(heap, key=lambda share: -share[0]) if pieces]


def freeze_once() -> None:
    """Spark collects garbage after each task in a worker: what was loaded before the first need not be looked at."""
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


def numbers_of(log: Log, options: Options) -> list[int]:
    """The partitions that the options ask for. ValueError for those that there are not."""
    asked = options.partitions or frozenset()
    known = log.numbers_of(None, None)
    if missing := sorted(asked - set(known)):
        raise ValueError(f"bad partitions: {options.path} has no partition {missing[0]}, expected some of {known}")
    return log.numbers_of(options.partitions, options.groups)
