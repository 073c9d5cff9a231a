"""``spark.read.format("callboard").load(DIR)``: an offsets log as a DataFrame, and ``readStream`` as it grows.

A task reads whole log partitions, since no key ever leaves its own, and lists their files when it begins: so a
DataFrame that is used again sees what came since. The tasks are made by the bytes that there are when Spark plans.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ..runtime.disk.disk import file_size
from ..runtime.log.manifest import log_files
from .columns import ddl
from .files import Log, find_log
from .options import Options, parse
from .scan import Scan
from .tasks import TASK_BYTES, freeze_once, numbers_of, spread

NAME = "callboard"


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
        from .stream import StreamReader  # a batch job does without it

        _refuse_other_schema(schema, self._asked)
        return StreamReader(self._asked)


def register(spark: SparkSession) -> None:
    """Make the source known to a session. Needed only where Spark does not find the module ``pyspark_callboard``."""
    spark.dataSource.register(CallboardSource)


class TaskPartitions(InputPartition):
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
        return [TaskPartitions(numbers) for numbers in spread(sizes, -(-sum(sizes.values()) // TASK_BYTES))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        freeze_once()
        if isinstance(partition, TaskPartitions):
            log = find_log(self._options.path)
            for number in partition.numbers:
                if (folder := log.folder(number)) is not None:
                    yield from Scan(log.disk, folder, number, self._options).batches()


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
