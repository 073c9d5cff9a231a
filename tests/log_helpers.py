"""Helpers for tests of the log: short entries, synchronous appends, and disks that fail, trace or simulate crashes."""

from __future__ import annotations

import importlib
import os
import random
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from callboard.actors.ports import Appended, Entry
from callboard.actors.records import OffsetRecord, OffsetValue
from callboard.runtime.disk.crc import crc32c
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.format.batch import CRC_FROM
from callboard.runtime.log.journal import (
    FileHeader,
    Journal,
    JournalScan,
    SyncPolicy,
    journal_name,
    journal_salt,
    scan_journal,
)
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.log.partition_counts import PartitionCounts

WAIT_TIMEOUT_S = 240  # timeout of waits in tests
# A transactional commit, written by Kafka's record builder.
TRANSACTIONAL = bytes.fromhex(
    "00000000000000000000005dffffffff0276ae80240010000000000000018bcfe568000000018bcfe5680000000000000003e80002"
    "00000000000000015600000018000100016700017400000000320003000000000000002a000000030001780000018bcfe5680000"
)
BLOCK_BYTES = 64  # after a power loss, each block has its old or its new content


SALT = bytes(range(8))
"""The salt of all journal files in tests that use their names."""

COUNTS = PartitionCounts(5, 0)


def fixed_salt() -> bytes:
    return SALT


def journal_file_name(number: int) -> str:
    """The name of a journal file with the salt of these tests."""
    return journal_name(number, SALT)


def new_journal(
    disk: Disk,
    folder: Path,
    number: int,
    starts: dict[int, int],
    sync: SyncPolicy = "always",
    counts: PartitionCounts = COUNTS,
) -> Journal:
    return Journal(disk, folder, number, FileHeader(starts, sync, counts), SALT)


def scan_journal_file(path: Path) -> JournalScan:
    """The scan of a journal file."""
    return scan_journal(path.read_bytes(), journal_salt(path.name))


def offset(group: str, value: int, metadata: str = "", topic: str = "t", partition: int = 0) -> OffsetRecord:
    return OffsetRecord(group, topic, partition, OffsetValue(value, -1, metadata, 5))


def entry(partition: int, value: int, metadata: str = "") -> Entry:
    return Entry(partition, (offset("g", value, metadata),))


def append(log: OffsetsLog, entries: Sequence[Entry], timestamp_ms: int = 1) -> list[Appended]:
    """Append one round and wait for its outcomes."""
    outcomes: list[Appended] = []
    is_done = threading.Event()

    def done(results: Sequence[Appended]) -> None:
        outcomes.extend(results)
        is_done.set()

    log.append(entries, timestamp_ms, done)
    assert is_done.wait(WAIT_TIMEOUT_S)
    return outcomes


def offsets_in(log: OffsetsLog, partition: int) -> list[int]:
    """The committed offsets of a partition, in the order of the log; the log's own offsets must be 0, 1, 2, ..."""
    offsets = []
    for expected, (log_offset, _, record) in enumerate(log.read(partition)):
        assert log_offset == expected
        assert isinstance(record, OffsetRecord) and record.value is not None
        offsets.append(record.value.offset)
    return offsets


def with_attributes(batch: bytes, attributes: int) -> bytes:
    """The batch with other attributes and the matching checksum."""
    inside = attributes.to_bytes(2, "big") + batch[CRC_FROM + 2 :]
    return batch[:17] + crc32c(inside).to_bytes(4, "big") + inside


def kafka_python_batches(data: bytes) -> Iterator[Any]:
    """The batches as read by kafka-python, with checked checksums. Its DeprecationWarning at the import is ignored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        memory_records = importlib.import_module("kafka.record").MemoryRecords(data)
    while (batch := memory_records.next_batch()) is not None:
        assert batch.validate_crc()
        yield batch


class LazyDisk(Disk):
    """The real disk without syncs, for tests that do not check durability."""

    def sync(self, fd: int) -> None:
        pass

    def sync_folder(self, path: Path) -> None:
        pass


class TraceDisk(Disk):
    """The real disk, which records every change as (operation, file name) and can fail or write short."""

    def __init__(self) -> None:
        self.trace: list[tuple[str, str]] = []
        self.fails: Callable[[str, str], bool] = lambda operation, name: False
        self.most_bytes: int | None = None
        self._names: dict[int, str] = {}
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)

    def open(self, path: Path, flags: int) -> int:
        if flags & os.O_CREAT:
            self._note("create", path.name)
        fd = super().open(path, flags)
        self._names[fd] = path.name
        return fd

    def duplicate(self, fd: int) -> int:
        copy = super().duplicate(fd)
        self._names[copy] = self._names[fd]
        return copy

    def write(self, fd: int, data: bytes | memoryview, position: int) -> int:
        self._note("write", self._names[fd])
        return super().write(fd, memoryview(data)[: self.most_bytes], position)

    def sync(self, fd: int) -> None:
        self._note("sync", self._names[fd])
        super().sync(fd)

    def sync_folder(self, path: Path) -> None:
        self._note("sync_folder", path.name)
        super().sync_folder(path)

    def remove(self, path: Path) -> None:
        self._note("remove", path.name)
        super().remove(path)

    def wait_for(self, operation: str, name: str) -> None:
        """Wait until the operation has begun."""
        with self._changed:
            assert self._changed.wait_for(lambda: (operation, name) in self.trace, WAIT_TIMEOUT_S)

    def _note(self, operation: str, name: str) -> None:
        with self._changed:
            self.trace.append((operation, name))
            self._changed.notify_all()
        if self.fails(operation, name):
            raise OSError(5, f"made to fail: {operation} {name}")


class Synced(NamedTuple):
    """The synced state of a disk: contents by path, and names by folder."""

    contents: dict[str, bytes]
    names: dict[str, frozenset[str]]


class DiskSnapshot(NamedTuple):
    """The disk after a crash: file contents by path from the root, and the number of acknowledged rounds.

    ``synced``: its synced part; None when everything is synced.
    """

    files: dict[str, bytes]
    answered: int
    synced: Synced | None = None

    def restore(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        for name, content in self.files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)


class CrashDisk(Disk):
    """The real disk. At every change it takes a snapshot of the state after a crash.

    ``snapshots_after_kill`` have all written data. ``snapshots_after_power_loss`` have the synced data, and every other
    block and name is old or new, by the seed.
    """

    def __init__(self, root: Path, seed: int = 0, synced: Synced | None = None) -> None:
        """``synced``: the synced part of the existing files; by default all."""
        self.root = root
        self.snapshots_after_kill: list[DiskSnapshot] = []
        self.snapshots_after_power_loss: list[DiskSnapshot] = []
        self.answered = 0
        self._random = random.Random(seed)
        self._lock = threading.RLock()
        self._paths: dict[int, Path] = {}
        start = synced or self._everything()
        self._contents = {root / name: content for name, content in start.contents.items()}
        self._names = {root / name: set(names) for name, names in start.names.items()}

    def open(self, path: Path, flags: int) -> int:
        with self._lock:
            fd = super().open(path, flags)
            self._paths[fd] = path
            if flags & os.O_CREAT:
                self._take_snapshot()
            return fd

    def duplicate(self, fd: int) -> int:
        with self._lock:
            copy = super().duplicate(fd)
            self._paths[copy] = self._paths[fd]
            return copy

    def write(self, fd: int, data: bytes | memoryview, position: int) -> int:
        with self._lock:
            half = len(data) // 2
            super().write(fd, memoryview(data)[:half], position)
            self._take_snapshot()
            super().write(fd, memoryview(data)[half:], position + half)
            self._take_snapshot()
            return len(data)

    def truncate(self, fd: int, size: int) -> None:
        with self._lock:
            super().truncate(fd, size)
            self._take_snapshot()

    def sync(self, fd: int) -> None:
        with self._lock:
            self._contents[self._paths[fd]] = self._paths[fd].read_bytes()
            self._take_snapshot()

    def sync_folder(self, path: Path) -> None:
        with self._lock:
            self._names[path] = set(os.listdir(path))
            self._take_snapshot()

    def make_folder(self, path: Path) -> None:
        with self._lock:
            super().make_folder(path)
            self._take_snapshot()

    def remove(self, path: Path) -> None:
        with self._lock:
            super().remove(path)
            self._take_snapshot()

    def _take_snapshot(self) -> None:
        """``answered`` is read first: these rounds were durable before they were acknowledged."""
        answered = self.answered
        current = {path: path.read_bytes() for path in self.root.rglob("*") if path.is_file()}
        synced = Synced(
            {self._name(path): content for path, content in self._contents.items()},
            {self._name(folder): frozenset(names) for folder, names in self._names.items()},
        )
        self.snapshots_after_kill.append(
            DiskSnapshot({self._name(path): content for path, content in current.items()}, answered, synced)
        )
        self.snapshots_after_power_loss.append(DiskSnapshot(self._after_power_loss(current), answered))

    def _everything(self) -> Synced:
        paths = list(self.root.rglob("*"))
        contents = {self._name(path): path.read_bytes() for path in paths if path.is_file()}
        folders = [self.root, *(path for path in paths if path.is_dir())]
        return Synced(contents, {self._name(path): frozenset(os.listdir(path)) for path in folders if path.exists()})

    def _after_power_loss(self, current: dict[Path, bytes]) -> dict[str, bytes]:
        files: dict[str, bytes] = {}
        surviving_folders = {
            folder: self._survives(folder) for folder in {path.parent for path in (*current, *self._contents)}
        }
        for path in sorted({*current, *self._contents}):
            if surviving_folders[path.parent] and self._survives(path):
                synced = self._contents.get(path, b"")
                files[self._name(path)] = self._mixed(synced, current.get(path, synced))
        return files

    def _survives(self, path: Path) -> bool:
        """Whether a name survives: always if it is synced and exists, by chance if only one of these is true."""
        if path == self.root:
            return True
        is_synced, exists = path.name in self._names.get(path.parent, set()), path.exists()
        return exists if is_synced == exists else self._random.random() < 0.5

    def _mixed(self, old: bytes, new: bytes) -> bytes:
        if old == new:
            return new
        size = self._random.choice((len(old), len(new)))
        blocks = []
        for start in range(0, size, BLOCK_BYTES):
            block = self._random.choice((old, new))[start : start + BLOCK_BYTES]
            blocks.append(block.ljust(min(BLOCK_BYTES, size - start), b"\0"))
        return b"".join(blocks)[:size]

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self.root))
