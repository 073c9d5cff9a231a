"""The live state of a data folder as DataFrames: the committed offsets, and the groups with their members.

Both are views of the data source (``source``) for the two most common queries.
"""

from __future__ import annotations

from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from .columns import GROUP_COLUMNS, OFFSET_COLUMNS
from .files import find_log
from .options import LIVE, PERMISSIVE
from .source import NAME, register

OFFSETS = {**OFFSET_COLUMNS, "log_partition": "int", "log_offset": "bigint"}
GROUPS = {"group": "string", **GROUP_COLUMNS, "log_partition": "int", "log_offset": "bigint"}

_NOT_FOUND = "DATA_SOURCE_NOT_FOUND"


def read_offsets(spark: SparkSession, data: str | Path | None = None, *, cluster: str = "") -> DataFrame:
    """The committed offsets in the data folder ``data``: the newest of each key, without deleted ones.

    The columns are those of ``OFFSETS``; -1 in the log means "none" and is null here. ``log_partition`` and
    ``log_offset`` name the record of a row. Every action reads the files again, and every worker must see them under
    the same path. While a server runs, commits of up to the last 0.25 s may be in its journal only and are missing
    here; after a clean stop nothing is missing.

    ``cluster``: the URL of a cluster's store, instead of ``data``. Its nodes bring commits to segments every 10 s (in a
    bucket every 60 s), which are read here.

    Raises FileNotFoundError if ``data`` is not a data folder. Damage in a file loses the records in it, as in a server,
    and the worker logs the file and byte; a compressed batch that cannot be read fails the action.
    """
    return _live(spark, data, cluster, "offset", OFFSETS)


def read_groups(spark: SparkSession, data: str | Path | None = None, *, cluster: str = "") -> DataFrame:
    """The groups in the data folder ``data`` with their members; columns as in ``GROUPS``.

    A group that only commits offsets, and never had members, has no group record. Otherwise as ``read_offsets``.
    """
    return _live(spark, data, cluster, "group", GROUPS)


def _live(spark: SparkSession, data: str | Path | None, cluster: str, kind: str, columns: dict[str, str]) -> DataFrame:
    options = {"mode": LIVE, "kind": kind, "columns": ",".join(columns), "damage": PERMISSIVE}
    if cluster:
        return load(spark, None if data is None else str(data), options | {"cluster": cluster})
    if data is None:
        raise ValueError("found neither data nor cluster, expected a data folder or the URL of a cluster's store")
    path = str(data)
    if "://" not in path:
        path = str(Path(path).absolute())  # Spark's own working folder may differ
    find_log(path)
    return load(spark, path, options)


def load(spark: SparkSession, path: str | None, options: dict[str, str]) -> DataFrame:
    """A DataFrame of the data source. Registers the source if Spark does not find it, as in a checkout."""
    reader = spark.read.format(NAME).options(**options)
    try:
        return reader.load(path)
    except (AnalysisException, Py4JJavaError) as error:  # PySpark 4.3 does not convert the one for a missing source
        if _NOT_FOUND not in str(error):
            raise
    register(spark)
    return reader.load(path)
