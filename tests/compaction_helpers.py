"""Small logs for tests of compaction: writes them to a disk, and reads their state."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st

from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.compaction.swap import CompactionSettings
from callboard.runtime.log.format.batch import Batch, Producer, encode_batch
from callboard.runtime.log.format.varint import encode_length, encode_signed
from callboard.runtime.log.manifest import log_files, write_file
from callboard.runtime.log.reading.segment import scan, segment_base, segment_name

FOLDER = Path("/data/__consumer_offsets-0")
"""For disks in memory; tests on a real disk use their own folder."""

START_MS = 1_700_000_000_000
DAY_MS = 86_400_000


class RecordSpec(NamedTuple):
    """A record. ``key`` None: no key; ``value`` None: a tombstone."""

    key: bytes | None
    value: bytes | None
    delay_ms: int = 0


class BatchSpec(NamedTuple):
    """A batch. ``kind``: plain, transaction, commit or abort; the last two have no records of their own."""

    records: tuple[RecordSpec, ...]
    kind: str = "plain"
    producer: int = 7


def encoded(batch: BatchSpec, base_offset: int, time_ms: int) -> bytes:
    if batch.kind in ("commit", "abort"):
        key = b"\0\0" + (1 if batch.kind == "commit" else 0).to_bytes(2, "big")
        batch = batch._replace(records=(RecordSpec(key, b"\0\0\0\0\0\0"),))
        records, producer = batch.records, Producer(batch.producer, 0, is_control=True)
    else:
        records, producer = batch.records, Producer(batch.producer, 0)
    framed = [_framed(record, delta) for delta, record in enumerate(records)]
    newest_ms = time_ms + max(record.delay_ms for record in records)
    return encode_batch(base_offset, time_ms, newest_ms, framed, None if batch.kind == "plain" else producer)


def _framed(record: RecordSpec, delta: int) -> bytes:
    parts = [b"\0", encode_signed(record.delay_ms), encode_length(delta)]
    for part in (record.key, record.value):
        parts.append(b"\1" if part is None else encode_length(len(part)) + part)
    body = b"".join([*parts, b"\0"])
    return encode_length(len(body)) + body


def write_files(disk: Disk, files: Iterable[Sequence[BatchSpec]], folder: Path = FOLDER, base: int = 0) -> int:
    """Write segments, the last one active; return the next offset."""
    disk.make_folder(folder)
    offset = base
    for batches in files:
        first, data = offset, b""
        for batch in batches:
            data += encoded(batch, offset, START_MS + offset)
            offset += len(batch.records) or 1
        write_file(disk, folder / segment_name(first), data)
    for path in (folder, folder.parent, folder.parent.parent):
        disk.sync_folder(path)
    return offset


class State(NamedTuple):
    """The state of a log: offset, time and value of each live key, the pending values of open transactions, its end."""

    live: dict[bytes, tuple[int, int, bytes]]
    pending: dict[int, dict[bytes, tuple[int, int, bytes | None]]]
    end: int


class Replay:
    """Replays batches. A committed value does not replace one that is later in the log."""

    def __init__(self) -> None:
        self.end = 0
        self._newest: dict[bytes, tuple[int, int, bytes | None]] = {}
        self._pending: dict[int, dict[bytes, tuple[int, int, bytes | None]]] = {}

    def batch(self, batch: Batch, from_offset: int = 0) -> None:
        for offset, time_ms, key, value in batch.records():
            if offset >= from_offset and key is not None:
                self._record(batch, key, (offset, time_ms, value))
        self.end = batch.last_offset + 1

    def _record(self, batch: Batch, key: bytes, newest: tuple[int, int, bytes | None]) -> None:
        if batch.is_control:
            for pending_key, pending in self._pending.pop(batch.producer_id, {}).items():
                if key[3] == 1 and self._newest.get(pending_key, (-1,))[0] < pending[0]:
                    self._newest[pending_key] = pending
        elif batch.is_transactional:
            self._pending.setdefault(batch.producer_id, {})[key] = newest
        else:
            self._newest[key] = newest

    def state(self) -> State:
        live = {key: (offset, ms, value) for key, (offset, ms, value) in self._newest.items() if value is not None}
        return State(live, self._pending, self.end)


def by_manifest(disk: Disk, folder: Path = FOLDER) -> State:
    """The state for a reader of the manifest. Checks that offsets increase and are in the range of their file."""
    replay = Replay()
    for file in log_files(disk, folder).files:
        assert file.base >= replay.end or not replay.end
        for batch in scan(disk, file.path):
            assert batch.base_offset >= max(replay.end, file.base)
            replay.batch(batch)
    return replay.state()


def by_plain_names(disk: Disk, folder: Path = FOLDER) -> State:
    """The state for a reader of Kafka's plain names that skips offsets below the next expected one."""
    replay = Replay()
    for name in disk.names(folder):
        if segment_base(name) is not None:
            for batch in scan(disk, folder / name):
                if batch.last_offset >= replay.end:
                    replay.batch(batch, replay.end)
    return replay.state()


def offsets(disk: Disk, folder: Path = FOLDER) -> list[int]:
    """The offsets of all records of the log, markers included."""
    result = [
        offset
        for file in log_files(disk, folder).files
        for batch in scan(disk, file.path)
        for offset, _, _, _ in batch.records()
    ]
    assert all(left < right for left, right in pairwise(result))
    return result


def contents(disk: Disk, folder: Path) -> dict[str, bytes]:
    """The files of a folder by name."""
    files = {}
    for name in disk.names(folder):
        fd = disk.open(folder / name, os.O_RDONLY)
        files[name] = disk.read(fd, disk.size(fd), 0)
        disk.close(fd)
    return files


NOW_MS = START_MS + 10_000_000
ALWAYS = CompactionSettings(NOW_MS, "test", -1.0)


def at(now_ms: int, **changed: Any) -> CompactionSettings:
    return ALWAYS._replace(now_ms=now_ms, **changed)


def plain_batch(*records: tuple[str, str | None]) -> BatchSpec:
    return BatchSpec(
        tuple(RecordSpec(key.encode(), None if value is None else value.encode()) for key, value in records)
    )


OPEN = (plain_batch(("open", "segment")),)


keys = st.sampled_from([b"a", b"b", b"c", b"dd", b"eeeeee"])
records = st.builds(
    RecordSpec, st.one_of(st.none(), keys), st.one_of(st.none(), st.binary(max_size=90)), st.integers(0, 300)
)
batches = st.one_of(
    st.builds(lambda specs: BatchSpec(tuple(specs)), st.lists(records, min_size=1, max_size=6)),
    st.builds(
        lambda specs, producer: BatchSpec(tuple(specs), "transaction", producer),
        st.lists(records, min_size=1, max_size=3),
        st.integers(1, 3),
    ),
    st.builds(
        lambda kind, producer: BatchSpec((), kind, producer), st.sampled_from(["commit", "abort"]), st.integers(1, 3)
    ),
)
logs = st.lists(st.lists(batches, min_size=1, max_size=5), min_size=2, max_size=5)
