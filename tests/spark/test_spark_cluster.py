"""The data source on the store of a cluster: what tasks read there, streams, and refused options."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path
from typing import Any

import pytest
from log_helpers import offset
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from spark_helpers import rows_of

from callboard.actors.ports import Entry
from callboard.runtime.cluster.engines import open_store
from callboard.runtime.cluster.manifest import Manifest, Segment, create_manifest, newest_manifest
from callboard.runtime.cluster.patient_store import PatientStore
from callboard.runtime.cluster.register_log import RegisterLog
from callboard.runtime.cluster.segments import SegmentDamaged
from callboard.runtime.cluster.session_environment import SessionEnvironment, random_token
from callboard.runtime.disk.crc import crc32c
from callboard.runtime.disk.disk import Disk, read_file
from callboard.runtime.disk.threads import InlineThreads
from callboard.runtime.log.compaction.swap import CompactionSettings, compact
from callboard.runtime.log.folder import DataFolder
from callboard.runtime.log.manifest import log_files
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.log.partition import folder_name
from callboard.runtime.log.partition_counts import PartitionCounts
from callboard.runtime.log.reading.segment import scan
from callboard.spark.options import parse_options
from callboard.spark.source import BatchReader, CallboardSource, ClusterBatchReader
from callboard.spark.stream import ClusterStreamReader

COUNTS = PartitionCounts(2, 1)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with two partitions; the first one is compacted up to some point."""
    root = tmp_path / "data"
    DataFolder(root, 2).close()
    log = OffsetsLog(root, 2, threads=InlineThreads(), segment_bytes=300, checkpoint_bytes=600)
    log.open()
    for number in range(30):
        for partition in (0, 1):
            log.append([Entry(partition, (offset(f"g{number % 5}", number),))], 5, lambda _: None)
        if number == 12:
            assert compact(Disk(), root / folder_name(0), CompactionSettings(5, "test", -1.0)) is not None
    log.close()
    return root


async def copy_to_store(data: Path, url: str) -> None:
    """A cluster whose partitions have the files of a data folder as segments."""
    store = PatientStore(open_store(url, "test"))
    await RegisterLog(store, SessionEnvironment()).create(COUNTS)
    for number in range(COUNTS.offsets):
        folder = data / folder_name(number)
        segments = []
        for index, file in enumerate(log_files(Disk(), folder).files):
            content = read_file(Disk(), file.path)
            if content:
                key = f"seg/{number:05d}/0000000001-{index:016x}"
                await store.put(key, content)
                end = max(batch.last_offset for batch in scan(Disk(), file.path)) + 1
                segments.append(Segment(key, file.base, end, len(content), crc32c(content), file.is_compacted))
        following = zip(segments, [segment.base for segment in segments[1:]] + [segments[-1].end], strict=True)
        contiguous = tuple(segment._replace(end=end) for segment, end in following)
        assert await create_manifest(store, Manifest(number, 1, random_token().hex(), 0, contiguous))
    await store.close()


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
