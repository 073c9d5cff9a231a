"""Reads and compacts the log of a cluster with Spark's local-cluster mode. The arguments: URL, master. Prints JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout, suppress
from io import StringIO

from callboard.runtime.cli import compact
from callboard.spark.offsets import read_offsets
from callboard.spark.session import session
from callboard.spark.source import register


def working_folder(_numbers: Iterable[int]) -> Iterator[str]:
    """That of the executor which runs this task."""
    yield os.getcwd()


def compact_cluster(url: str) -> str:
    """The output of ``callboard compact``, in the running session."""
    output = StringIO()
    with redirect_stdout(output), suppress(SystemExit):
        compact.main(["--cluster", url, "--spark", "--json"])
    return output.getvalue()


def main(url: str, master: str) -> None:
    # Executors do not read SPARK_SUBMIT_OPTS: they get the options of the other Java processes of the tests.
    settings = {"spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", "")}
    with session("test", master, settings) as spark:
        register(spark)
        log = spark.read.format("callboard").option("cluster", url).load()
        before = log.count()
        report = compact_cluster(url)
        after = log.count()
        live = read_offsets(spark, cluster=url).count()
        folders = spark.sparkContext.parallelize(range(8), 8).mapPartitions(working_folder).distinct().collect()
    result = {"before": before, "report": report, "after": after, "live": live, "folders": folders}
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
