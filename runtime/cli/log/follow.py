"""``callboard log dump --follow``: the records of a log while a server appends more of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ...disk.disk import Disk
from ...log.format.errors import Damage
from ...log.manifest import LogFile, log_files
from ...log.reading.damage_scan import scan_past_damage
from .scan import LoggedRecord, LogPartition, Unreadable, read_records, record_decoder

POLL_S = 0.25
"""A server writes its partition files about as often."""


Item = LoggedRecord | Damage | Unreadable


def follow_partitions(find: Callable[[], Iterable[LogPartition]], show: Callable[[Item], object]) -> None:
    """Show all records, then new ones as they are written, until an exception such as KeyboardInterrupt.

    ``find`` returns the partitions that exist now: a server creates the folder of a partition with its first record.
    """
    followers: dict[Path, PartitionFollower] = {}
    while True:
        for partition in find():
            follower = followers.setdefault(partition.folder, PartitionFollower(partition, Disk()))
            for item in follower.new_items():
                show(item)
        sys.stdout.flush()
        time.sleep(POLL_S)


class PartitionFollower:
    """Reads what was appended to one partition since the last call of ``new_items``. It reads no byte twice."""

    def __init__(self, partition: LogPartition, disk: Disk) -> None:
        self._partition = partition
        self._disk = disk
        self._decode = record_decoder(partition)
        self._next_offset = 0
        self._file: LogFile | None = None  # the one that was read last, up to ``_position``
        self._position = 0

    def new_items(self) -> Iterator[Item]:
        """The new records, oldest first, and damage between them. The end of the newest file may be incomplete.

        Nothing if a file was compacted meanwhile: the next call continues. Raises OSError, ManifestError.
        """
        try:
            files = log_files(self._disk, self._partition.folder).files
            for file, following in zip(files, (*files[1:], None), strict=True):
                if following is None:
                    yield from self._new_in(file, is_newest=True)
                elif following.base > self._next_offset:
                    yield from self._new_in(file, is_newest=False)
                    self._next_offset = max(self._next_offset, following.base)
        except FileNotFoundError:
            return

    def _new_in(self, file: LogFile, *, is_newest: bool) -> Iterator[Item]:
        if self._file is None or file.path != self._file.path:
            self._file, self._position = file, 0
        base = self._next_offset if self._position else file.base
        for item in scan_past_damage(self._disk, file.path, base, position=self._position):
            if isinstance(item, Damage):
                if is_newest and item.offset_after is None:
                    return  # a batch that is being written
                yield item
                continue
            for record in read_records(self._partition, file, item, self._decode):
                if record.offset >= self._next_offset:
                    yield record
            self._position = item.position + item.size
            self._next_offset = max(self._next_offset, item.last_offset + 1)
