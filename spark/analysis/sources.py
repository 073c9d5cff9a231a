"""Where the records of a question come from: a data folder, a history, or a history and what it has not taken yet."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ...runtime.common.errors import StartError
from ...runtime.disk.disk import Disk, file_size
from ...runtime.log.manifest import log_files
from ...runtime.log.reading.partition_reader import partition_folders
from ..history.states import fresh
from ..history.states import records as records_of_history
from ..history.table import HistoryTable


def records(
    spark: SparkSession,
    data: str | Path | None = None,
    history: str | Path | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> DataFrame:
    """All records, or those from a time on and up to one. Without a history, what compaction has left.

    ValueError when neither is given; StartError for a folder that is not what it should be.
    """
    if data is None and history is None:
        raise ValueError("found neither data nor history, expected a data folder, a table, or both")
    if history is not None:
        found = records_of_history(spark, HistoryTable.open(history), data)
    else:
        found = fresh(spark, {number: (folder, 0) for number, folder in folders(data or "").items()})
    if since is not None:
        found = found.where(F.col("timestamp") >= F.lit(since))
    return found if until is None else found.where(F.col("timestamp") <= F.lit(until))


def folders(data: str | Path) -> dict[int, Path]:
    """The log partitions of a data folder of ours or of Kafka's. StartError."""
    try:
        return partition_folders(Path(data).absolute())
    except FileNotFoundError as error:
        raise StartError(str(error)) from None


def log_bytes(data: str | Path) -> int:
    """What the log takes now."""
    disk = Disk()
    return sum(file_size(disk, file.path) for each in folders(data).values() for file in log_files(disk, each).files)
