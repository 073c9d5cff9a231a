"""Spark data source: ``spark.read.format("callboard").load(DIR)`` reads an offsets log as a DataFrame or a stream.

A task reads whole log partitions, since all records of a key are in one partition. It lists their files when it
starts, so every action on a DataFrame reads the current log. Tasks are sized by the files that exist when Spark plans.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, MutableMapping, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.types import StructType

from ..runtime.disk.disk import file_size
from ..runtime.log.manifest import log_files
from .cluster_log import ClusterLog
from .columns import spark_schema
from .files import LogLocation, find_log
from .options import PUSHED, Options, parse_options
from .pushdown import narrowed
from .scan import PartitionScan
from .sent_files import SentLimit, copy_partitions
from .tasks import TASK_BYTES, distribute, freeze_gc_once, selected_numbers, selected_partitions

NAME = "callboard"


class CallboardSource(DataSource):
    """The data source ``callboard``. Its options are those of ``options.Options``."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = parse_options(options)

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        # Reports a wrong path when the DataFrame is created, not in the first query.
        if self._options.cluster:
            ClusterLog(self._options.cluster).check()
        else:
            find_log(self._options.path)
        return spark_schema(self._options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        _refuse_other_schema(schema, self._options)
        if self._options.filters == PUSHED:
            return (ClusterPushingReader if self._options.cluster else PushingReader)(self._options)
        return (ClusterBatchReader if self._options.cluster else BatchReader)(self._options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from .stream import ClusterStreamReader, StreamReader  # not needed by a batch job

        _refuse_other_schema(schema, self._options)
        if self._options.cluster:
            return ClusterStreamReader(self._options)
        return StreamReader(self._options)


def register(spark: SparkSession) -> None:
    """Register the data source in a session. Needed only if Spark does not find the module ``pyspark_callboard``."""
    spark.dataSource.register(CallboardSource)


class TaskPartitions(InputPartition):
    """The log partitions of one task. ``sent``: their files, if the driver has read them."""

    def __init__(self, numbers: Sequence[int], sent: LogLocation | None = None) -> None:
        super().__init__(tuple(numbers))
        self.numbers = tuple(numbers)
        self.sent = sent


class BatchReader(DataSourceReader):
    """Plans the tasks on the driver and reads in the tasks."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def log_partitions(self) -> Collection[int]:
        """Those of the log, also if the options do not select them."""
        return find_log(self._options.path).partition_numbers(None, None)

    def partitions(self) -> list[InputPartition]:
        location = find_log(self._options.path)
        sizes = {number: _partition_bytes(location, number) for number in selected_partitions(location, self._options)}
        tasks = distribute(sizes, -(-sum(sizes.values()) // TASK_BYTES))
        if not self._options.sends_files:
            return [TaskPartitions(numbers) for numbers in tasks]
        SentLimit(self._options.shown_path).add(sum(sizes.values()))  # before anything is read
        return [TaskPartitions(numbers, copy_partitions(location, numbers)) for numbers in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        freeze_gc_once()
        if isinstance(partition, TaskPartitions):
            location = partition.sent or find_log(self._options.path)
            for number in partition.numbers:
                if (folder := location.folder(number)) is not None:
                    yield from PartitionScan(location.disk, folder, number, self._options).batches()


class ClusterBatchReader(DataSourceReader):
    """Plans by the manifests in the store of a cluster. The tasks read the segments, one partition at a time."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def log_partitions(self) -> Collection[int]:
        """As of ``BatchReader``."""
        return ClusterLog(self._options.cluster).sizes().keys()

    def partitions(self) -> list[InputPartition]:
        sizes = ClusterLog(self._options.cluster).sizes()
        selected = {number: sizes[number] for number in selected_numbers(sizes, len(sizes), self._options)}
        return [TaskPartitions(numbers) for numbers in distribute(selected, -(-sum(selected.values()) // TASK_BYTES))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        freeze_gc_once()
        if isinstance(partition, TaskPartitions):
            for number in partition.numbers:
                disk, folders, _ = ClusterLog(self._options.cluster).partition(number)
                yield from PartitionScan(disk, folders[number], number, self._options).batches()


class PushingReader(BatchReader):
    """Reads only what the filters of the query leave. Spark refuses it if the session does not push filters down."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._options = narrowed(self._options, filters, self.log_partitions)
        return filters


class ClusterPushingReader(ClusterBatchReader):
    """The same for a cluster."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._options = narrowed(self._options, filters, self.log_partitions)
        return filters


def _partition_bytes(location: LogLocation, number: int) -> int:
    """The current size of a partition's files. An estimate: 0 if compaction removes a file meanwhile."""
    if (folder := location.folder(number)) is None:
        return 0
    try:
        return sum(file_size(location.disk, file.path) for file in log_files(location.disk, folder).files)
    except FileNotFoundError:
        return 0


def _refuse_other_schema(schema: StructType, options: Options) -> None:
    if tuple(schema.names) != options.columns:
        raise ValueError(
            f"found a schema with columns {schema.names[:5]}, expected none: the source defines its own columns; select"
            " some with the option columns=..., or with select"
        )
