"""Distributes the work of a job over Spark's tasks."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heapreplace
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from .files import LogLocation, partition_numbers
from .options import Options
from .quiet_daemon import ignore_disconnect_in_sparks_daemon

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASK_BYTES = 32 * 1024 * 1024
"""About 0.1 s of decoding; starting a task costs some 20 ms."""

Item = TypeVar("Item")

ignore_disconnect_in_sparks_daemon()  # each worker that plans a query or runs a task imports this module


def distribute(sizes: Mapping[Item, int], task_count: int) -> list[list[Item]]:
    """Distribute items over tasks of about the same total size, the largest task first. No task is empty."""
    heap: list[tuple[int, int, list[Item]]] = [(0, index, []) for index in range(max(1, min(task_count, len(sizes))))]
    heapify(heap)
    for item in sorted(sizes, key=lambda item: -sizes[item]):
        total, index, items = heap[0]
        items.append(item)
        heapreplace(heap, (total + max(sizes[item], 1), index, items))
    return [items for _, _, items in sorted(heap, key=lambda task: -task[0]) if items]


def run_for_each(
    spark: SparkSession,
    items: Sequence[Item],
    run: Callable[[Item], Iterator[pa.RecordBatch]],
    schema: str,
    task_count: int,
) -> DataFrame:
    """The batches that ``run`` gives for each item, in tasks with about the same number of items.

    ``schema``: of the batches, as Spark writes it.
    """

    def run_some(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_gc_once()
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield from run(items[index])

    return spark.range(0, len(items), numPartitions=task_count).mapInArrow(run_some, schema)


def freeze_gc_once() -> None:
    """Exclude everything loaded before a worker's first task from the garbage collection that follows each task."""
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


def selected_partitions(location: LogLocation, options: Options) -> list[int]:
    """The log partitions that the options select. Raises ValueError if one of them does not exist."""
    return selected_numbers(location.folders, location.partition_count, options)


def selected_numbers(existing: Collection[int], count: int | None, options: Options) -> list[int]:
    """The same of a log with the partitions ``existing``. ``count``: of its topic, if it is known."""
    whole = partition_numbers(existing, count, None, None)
    requested = options.partitions or frozenset()
    if missing := sorted(requested - set(whole)):
        raise ValueError(
            f"bad partitions: {options.shown_path} has no partition {missing[0]}, expected some of {whole}"
        )
    return partition_numbers(existing, count, options.partitions, options.groups)
