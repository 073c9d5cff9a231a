"""``spark.read.format("callboard").load(DIR)``: an offsets log as a DataFrame, and ``readStream`` as it grows.

A task reads whole log partitions, since no key ever leaves its own, and lists their files when it begins: so a
DataFrame that is used again sees what came since. The tasks are made by the bytes that there are when Spark plans.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from heapq import heapify, heapreplace
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ..runtime.log.disk import file_size
from ..runtime.log.manifest import log_files
from .columns import ddl
from .files import Log, find_log
from .options import Options, parse
from .scan import Scan

NAME = "callboard"
TASK_BYTES = 32 * 1024 * 1024
"""About a tenth of a second of decoding; a task costs some 20 ms before it reads a byte."""

Piece = TypeVar("Piece")


class CallboardSource(DataSource):
    """What Spark finds under the name ``callboard``. The options are those of ``options.Options``."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._asked = parse(options)

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        find_log(self._asked.path)  # so that a wrong path is an error here, and not in the first query
        return ddl(self._asked.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        _refuse_other_schema(schema, self._asked)
        return BatchReader(self._asked)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from .stream import StreamReader

        _refuse_other_schema(schema, self._asked)
        return StreamReader(self._asked)


def register(spark: SparkSession) -> None:
    """Make the source known to a session. Needed only where Spark does not find the module ``pyspark_callboard``."""
    spark.dataSource.register(CallboardSource)


class Share(InputPartition):
    """The log partitions of one task."""

    def __init__(self, numbers: Sequence[int]) -> None:
        super().__init__(tuple(numbers))
        self.numbers = tuple(numbers)


class BatchReader(DataSourceReader):
    """Plans on the driver, reads in the tasks."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        log = find_log(self._options.path)
        sizes = {number: _size(log, number) for number in numbers_of(log, self._options)}
        return [Share(numbers) for numbers in spread(sizes, -(-sum(sizes.values()) // TASK_BYTES))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        freeze_once()
        if isinstance(partition, Share):
            log = find_log(self._options.path)
            for number in partition.numbers:
                if (folder := log.folder(number)) is not None:
                    yield from Scan(log.disk, folder, number, self._options).batches()


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


def _size(log: Log, number: int) -> int:
    """Of the files of a partition now; 0 when one goes meanwhile, for it is only an estimate."""
    if (folder := log.folder(number)) is None:
        return 0
    try:
        return sum(file_size(log.disk, file.path) for file in log_files(log.disk, folder).files)
    except FileNotFoundError:
        return 0


def _refuse_other_schema(schema: StructType, options: Options) -> None:
    if tuple(schema.names) != options.columns:
        raise ValueError(
            f"found a schema with columns {schema.names[:5]}, expected none: the source has columns of its own; choose"
            " some with option columns=..., or with select"
        )
