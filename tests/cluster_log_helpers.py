"""A log with two partitions, in a data folder and in the store of a cluster."""

from __future__ import annotations

from pathlib import Path

from log_helpers import offset

from callboard.actors.ports import Entry
from callboard.runtime.cluster.engines import open_store
from callboard.runtime.cluster.manifest import Manifest, Segment, create_manifest
from callboard.runtime.cluster.patient_store import PatientStore
from callboard.runtime.cluster.register_log import RegisterLog
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

COUNTS = PartitionCounts(2, 1)


def write_log(root: Path) -> None:
    """A data folder with two partitions; the first one is compacted up to some point."""
    DataFolder(root, 2).close()
    log = OffsetsLog(root, 2, threads=InlineThreads(), segment_bytes=300, checkpoint_bytes=600)
    log.open()
    for number in range(30):
        for partition in (0, 1):
            log.append([Entry(partition, (offset(f"g{number % 5}", number),))], 5, lambda _: None)
        if number == 12:
            assert compact(Disk(), root / folder_name(0), CompactionSettings(5, "test", -1.0)) is not None
    log.close()


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
