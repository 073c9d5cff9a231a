"""The data source on the store of a cluster: what tasks read there, streams, and refused options."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path
from typing import Any

import pytest
from cluster_log_helpers import copy_to_store, write_log
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from spark_helpers import rows_of

from callboard.runtime.cluster.engines import open_store
from callboard.runtime.cluster.manifest import newest_manifest
from callboard.runtime.cluster.segments import SegmentDamaged
from callboard.spark.options import parse_options
from callboard.spark.source import BatchReader, CallboardSource, ClusterBatchReader
from callboard.spark.stream import ClusterStreamReader


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_log(tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def url(data: Path, tmp_path: Path) -> str:
    (tmp_path / "store").mkdir()
    url = (tmp_path / "store").as_uri()
    asyncio.run(copy_to_store(data, url))
    return url


def read(reader: BatchReader | ClusterBatchReader) -> list[dict[str, Any]]:
    tasks = pickle.loads(pickle.dumps(reader.partitions()))
    return [row for task in tasks for batch in reader.read(task) for row in rows_of(batch)]


def cluster_rows(url: str, **options: str) -> list[dict[str, Any]]:
    return read(ClusterBatchReader(parse_options({"cluster": url, **options})))


@pytest.mark.parametrize(
    "options", [{}, {"mode": "live"}, {"partitions": "1"}, {"groups": "g1,g2"}, {"kind": "offset"}]
)
def test_rows_are_those_of_a_folder_with_the_same_log(data: Path, url: str, options: dict[str, str]) -> None:
    expected = read(BatchReader(parse_options({"path": str(data), **options})))
    assert len(expected) > 1
    assert cluster_rows(url, **options) == expected


def test_stream_delivers_each_record_once(data: Path, url: str) -> None:
    reader = ClusterStreamReader(parse_options({"cluster": url, "columns": "log_partition,log_offset,kind"}))
    start, found = reader.initialOffset(), []
    for limit in (ReadMaxRows(10), ReadMaxRows(7), ReadAllAvailable()):
        end = reader.latestOffset(start, limit)
        tasks = pickle.loads(pickle.dumps(reader.partitions(start, end)))
        found += [row for task in tasks for batch in reader.read(task) for row in rows_of(batch)]
        start = end
    records = [(row["log_partition"], row["log_offset"]) for row in found if row["kind"] != "gap"]
    expected = [(row["log_partition"], row["log_offset"]) for row in cluster_rows(url)]
    assert sorted(records) == sorted(expected)
    assert {row["log_partition"] for row in found if row["kind"] == "gap"} == {0}, "it was compacted before"
    assert reader.latestOffset(start, ReadAllAvailable()) == start


def test_missing_segment_fails_the_query_also_if_damage_is_permitted(url: str) -> None:
    async def delete_first() -> str:
        store = open_store(url, "test")
        key = (await newest_manifest(store, 1)).segments[0].key
        await store.delete([key])
        return key

    key = asyncio.run(delete_first())
    for damage in ("failfast", "permissive"):
        with pytest.raises(SegmentDamaged, match=f"{key} is missing in the store"):
            cluster_rows(url, damage=damage)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"cluster": "rain://x"}, "no store has a URL like 'rain://x'"),
        ({"cluster": "file:///x", "path": "./data"}, "found the path ./data and the option cluster"),
        ({"cluster": "file:///x", "files": "driver"}, "files=driver is for folders"),
        ({}, "or the option cluster with the URL of a cluster's store"),
    ],
)
def test_bad_options_are_refused(options: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_options(options)


def test_store_without_a_cluster_and_unknown_partitions_are_refused(url: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="has no cluster: no node has started with it yet"):
        CallboardSource({"cluster": (tmp_path / "empty").as_uri()}).schema()
    with pytest.raises(ValueError, match="has no partition 2, expected some of"):
        cluster_rows(url, partitions="2")


def test_password_is_in_no_message() -> None:
    options = parse_options({"cluster": "postgresql://ann:secret@host/db"})
    assert (options.path, options.cluster) == ("postgresql://ann:***@host/db", "postgresql://ann:secret@host/db")
