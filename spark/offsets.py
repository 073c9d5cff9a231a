"""The live state of a data folder as DataFrames: what every group has committed, and what every group is.

Two views of the data source (``source``) for the two questions that are asked most.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from .columns import GROUP, OFFSET
from .files import find_log
from .options import LIVE, PERMISSIVE
from .source import NAME, register

OFFSETS = {**OFFSET, "log_partition": "int", "log_offset": "bigint"}
GROUPS = {"group": "string", **GROUP, "log_partition": "int", "log_offset": "bigint"}

_UNKNOWN = "DATA_SOURCE_NOT_FOUND"


def read_offsets(spark: SparkSession, data: str | Path) -> DataFrame:
    """The committed offsets that are live in the data folder ``data``: the newest of each key, without deleted ones.

    The columns are those of ``OFFSETS``; -1 in the log, which means that there is none, is null here. ``log_partition``
    and ``log_offset`` say which record a row comes from. Every action reads the files anew, and every worker must see
    them under the same path. While a server runs they may be a quarter of a second behind what it has acknowledged,
    which its journal holds; after a clean stop they are exact.

    FileNotFoundError when ``data`` is no data folder. Damage in a file costs the records that lie in it, as in a
    server, and a line of the worker names file and byte; a compressed batch that cannot be read fails the action.
    """
    return _live(spark, data, "offset", OFFSETS)


def read_groups(spark: SparkSession, data: str | Path) -> DataFrame:
    """The groups that are live in the data folder ``data``, with their members; columns as in ``GROUPS``.

    A group that only commits offsets and has no members never had such a record. All else as for ``read_offsets``.
    """
    return _live(spark, data, "group", GROUPS)


def _live(spark: SparkSession, data: str | Path, kind: str, columns: dict[str, str]) -> DataFrame:
    path = str(data)
    if "://" not in path:
        path = str(Path(path).absolute())  # for Spark itself has another working folder
    find_log(path)
    options = {"mode": LIVE, "kind": kind, "columns": ",".join(columns), "damage": PERMISSIVE}
    return load(spark, path, options)


def load(spark: SparkSession, path: str, options: dict[str, str]) -> DataFrame:
    """A DataFrame of the data source, also where Spark has not found it by itself, as in a checkout."""
    reader = spark.read.format(NAME).options(**options)
    try:
        return reader.load(path)
    except AnalysisException as error:
        if error.getCondition() != _UNKNOWN:
            raise
    register(spark)
    return reader.load(path)
