"""Writes a data folder, as one that a server has stopped cleanly."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from ...disk.disk import Disk, replace_file, write_all
from ...log.compaction.defaults import SEGMENT_BYTES
from ...log.folder import TOPICS_NAME, create_data_folder
from ...log.format.batch import read_batches
from ...log.partition_counts import PartitionCounts
from ...log.partitions import Partitions
from ...log.reading.segment import segment_name
from ...log.recovery.clean_stop import write_note
from ...security.document import SecurityDocument
from ...security.store import FILE_NAME as SECURITY_NAME
from ...security.store import encode_security
from ...settings.dynamic import FILE_NAME as SETTINGS_NAME
from ...topics.end_slots import FIRST_SLOT
from ...topics.ends import create_file
from ...topics.opening import ENDS_NAME
from ...topics.setting_values import Overrides
from ...topics.store import TopicRow, TopicsFile, save_table


class StoredTopic(NamedTuple):
    """``end``: the offset after the last one that any of its partitions has had."""

    name: str
    topic_id: UUID
    partitions: int
    end: int
    settings: Overrides


class FolderWriter:
    """Creates the folder. Call ``finish`` last."""

    def __init__(self, root: Path, cluster_id: str, counts: PartitionCounts, disk: Disk) -> None:
        self._root = root
        self._counts = counts
        self._disk = disk
        create_data_folder(root, counts, disk, lambda: cluster_id)

    def write_partition(self, name: str, batches: Iterable[bytes]) -> None:
        """``batches``: values of one or more batches, in order. A file ends only where the next offset follows."""
        folder = self._root / name
        fd, size, end = -1, 0, 0
        try:
            for base, next_end, data in _runs(batches):
                if fd < 0 or (size >= SEGMENT_BYTES and base == end):
                    self._finish_file(fd)
                    self._disk.make_folder(folder)
                    path = folder / segment_name(base if fd >= 0 else 0)
                    fd, size = self._disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), 0
                write_all(self._disk, fd, data, size)
                size, end = size + len(data), next_end
        finally:
            self._finish_file(fd)
        if fd >= 0:
            self._disk.sync_folder(folder)

    def _finish_file(self, fd: int) -> None:
        if fd >= 0:
            self._disk.sync(fd)
            self._disk.close(fd)

    def write_topics(self, topics: Sequence[StoredTopic], offsets_topic_id: UUID, next_producer_id: int) -> None:
        rows, ends = [], [0] * FIRST_SLOT
        for topic in topics:
            rows.append(TopicRow(topic.name, topic.topic_id, topic.partitions, len(ends), topic.settings))
            ends += [topic.end] * topic.partitions
        save_table(self._root / TOPICS_NAME, TopicsFile(offsets_topic_id, next_producer_id, tuple(rows)), self._disk)
        create_file(self._root / ENDS_NAME, ends, self._disk)

    def write_settings(self, content: bytes) -> None:
        replace_file(self._disk, self._root / SETTINGS_NAME, content)

    def write_security(self, document: SecurityDocument) -> None:
        replace_file(self._disk, self._root / SECURITY_NAME, encode_security(document), is_private=True)

    def finish(self) -> None:
        """Open the log as a start does, and write the note of a clean stop. Raises OSError, StartError."""
        partitions = Partitions(self._disk, self._root, self._counts.offsets, SEGMENT_BYTES, self._counts.transactions)
        try:
            with redirect_stdout(sys.stderr):  # the recovery prints what it finds
                partitions.open({})
            write_note(self._disk, self._root, partitions.clean_stop_note())
        finally:
            partitions.close()
        self._disk.sync_folder(self._root)


def _runs(batches: Iterable[bytes]) -> Iterator[tuple[int, int, bytes]]:
    """First offset, the offset after the last one, and the bytes."""
    for data in batches:
        offsets = [(batch.base_offset, batch.last_offset) for batch in read_batches(data)]
        yield offsets[0][0], offsets[-1][1] + 1, data
