"""Reads the records of a question: from a data folder, a history table, or both."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ...runtime.common.errors import StartError
from ...runtime.disk.disk import Disk, file_size
from ...runtime.log.manifest import log_files
from ...runtime.log.reading.partition_reader import partition_folders
from ..history.opening import open_table
from ..history.states import read_log_partitions
from ..history.states import records as records_of_history


def records(
    spark: SparkSession,
    data: str | Path | None = None,
    history: str | Path | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> DataFrame:
    """The records between two times. Without a history, only those that compaction has not removed.

    ``history``: a folder or a URL. With both, the table's records and those that are not in it yet. Raises ValueError
    if neither is given, StartError for an invalid folder.
    """
    if data is None and history is None:
        raise ValueError("found neither data nor history, expected a data folder, a table, or both")
    if history is not None:
        rows = records_of_history(spark, open_table(history), data)
    else:
        rows = read_log_partitions(
            spark, {number: (folder, 0) for number, folder in log_partitions(data or "").items()}
        )
    if since is not None:
        rows = rows.where(F.col("timestamp") >= F.lit(since))
    return rows if until is None else rows.where(F.col("timestamp") <= F.lit(until))


def log_partitions(data: str | Path) -> dict[int, Path]:
    """The log partitions of a data folder, Callboard's or Kafka's. Raises StartError."""
    try:
        return partition_folders(Path(data).absolute())
    except FileNotFoundError as error:
        raise StartError(str(error)) from None


def log_bytes(data: str | Path) -> int:
    """The current size of the log's files."""
    disk = Disk()
    return sum(
        file_size(disk, file.path)
        for partition in log_partitions(data).values()
        for file in log_files(disk, partition).files
    )
