"""The journal: one write and one sync make a round durable for all partitions.

Fifty partition files would need fifty syncs; the journal needs one (ten times as many commits per second). A file is a
sequence of frames, see ``journal_frames``. Their contents are::

    first frame    magic, the numbers of offsets and transactions partitions uint32, then for each partition with
                   records: partition int32, its end offset int64
    other frames   a round, for each batch: partition int32, size uint32, the batch with its final offset

The first frame (the header) states the offsets from which this file has all batches. It is synced before the file is
used. So recovery can tell what the partition files may lack, even if rounds were lost too. The header also repeats the
numbers of partitions: they decide which partition a group belongs to, so a start compares them with the folder's.

Files are named ``journal/%020d-<salt>.journal``, with the salt as 16 hex digits. The salt is in the name and not in the
file, so that a damaged first frame does not make the others unreadable. Files of format 2 and older are named
``journal/%020d.journal`` and have no salt and no numbers of partitions; they are read, but never written.

A file is filled with zeros ahead of the frames, because a sync after overwriting takes a third to a half less time than
one after growing (ext4: 105 against 160 us), and because a length of zero marks the end. A torn write fails its
checksum and also marks the end, unless valid frames follow: then the file is damaged. There is one exception. If rounds
are acknowledged before they are synced, as the magic tells, a power failure can leave the newest file in this state,
because the operating system writes its pages in any order. Then the first flaw is the end: unsynced rounds may be lost
from the end, but no round may survive that follows a lost one.
"""

from __future__ import annotations

import errno
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from struct import Struct
from typing import Literal, NamedTuple, NoReturn

from ..disk.disk import Disk, NoSpace, is_full, read_at, write_all
from ..disk.threads import Then, Threads
from .journal_frames import (
    FRAME_HEAD_BYTES,
    SALT_BYTES,
    Frames,
    TaggedFrames,
    UntaggedFrames,
    content_frame,
    frame_batches,
)
from .partition_counts import PartitionCounts
from .reading.search import SearchAborted

FOLDER = "journal"
SyncPolicy = Literal["always", "interval", "none"]
POLICY_BY_MAGIC: Mapping[bytes, SyncPolicy] = {b"CBK1": "always", b"CBKi": "interval", b"CBKn": "none"}
"""The first bytes of a file's header, and the sync policy of its rounds."""

UNTAGGED_POLICY_BY_MAGIC: Mapping[bytes, SyncPolicy] = {b"CBJ1": "always", b"CBJi": "interval", b"CBJn": "none"}
"""The same for files of format 2 and older.

The oldest versions had one magic for all policies. It is read as "always", so that all valid rounds count.
"""

MAGIC_BYTES = 4
ZEROS = bytes(Disk.ahead_bytes)  # one step of zeros; writing it delays a round by a millisecond at most
RESERVED_FRACTION = 1 / 16
"""The fraction of a step that is never used. On a full disk it makes room for the header of the next file.

Then a checkpoint is possible, which removes this file. 64 KiB have room for the end offsets of 5,000 partitions.
"""

SHORT_FRAME_BYTES = 256 * 1024  # written to the page cache in about 50 us

_START = Struct(">iq")
_COUNTS = Struct(">II")
_NAME = re.compile(r"([0-9]{20})(?:-([0-9a-f]{16}))?\.journal")


class FileHeader(NamedTuple):
    """The content of a journal file's first frame.

    ``start_offsets``: the offset from which on the file has all batches, by partition; 0 for a partition that is not in
    it. ``sync``: the policy of its rounds; only "always" syncs each before it is acknowledged. ``counts``: None in
    files of format 2.
    """

    start_offsets: Mapping[int, int]
    sync: SyncPolicy
    counts: PartitionCounts | None


def random_salt(draw: Callable[[], uuid.UUID] = uuid.uuid4) -> bytes:
    """A salt for a new file. It is a hash, because six bits of a random UUID are constant."""
    return blake2b(draw().bytes, digest_size=SALT_BYTES).digest()


def journal_name(number: int, salt: bytes | None) -> str:
    """The name of a journal file; ``salt`` is None for one of format 2 or older."""
    return f"{number:020d}.journal" if salt is None else f"{number:020d}-{salt.hex()}.journal"


def journal_number(name: str) -> int | None:
    """The number in a file name, with or without a salt; None when it is not the name of a journal."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def journal_salt(name: str) -> bytes | None:
    """The salt in a file name; None when it has none."""
    match = _NAME.fullmatch(name)
    return bytes.fromhex(match[2]) if match and match[2] else None


def journal_names(names: Iterable[str]) -> list[str]:
    """The names that are a journal file's, oldest first."""
    return sorted(name for name in names if journal_number(name) is not None)


class DamagedRange(NamedTuple):
    """Bytes of a journal file that are not a valid frame, with valid frames after them."""

    position: int
    size: int
    reason: str


class JournalScan(NamedTuple):
    """The content of a journal file.

    ``start_offsets``: as in ``FileHeader``; None when the first frame is invalid. ``rounds``: begin and end of the
    content of each valid round. ``damaged``: the ranges between them that are not valid. After ``valid_bytes`` there
    are ``torn_bytes`` without a valid frame. ``unsynced_policy``: the policy of a file whose rounds may be unsynced,
    else None. Such a file ends at its first flaw, and everything after that is torn, including ``unsynced_rounds``
    valid rounds. ``counts``: the numbers of partitions; None when the first frame is invalid, or of format 2.
    """

    start_offsets: Mapping[int, int] | None
    rounds: list[tuple[int, int]]
    valid_bytes: int
    torn_bytes: int
    damaged: list[DamagedRange]
    unsynced_policy: SyncPolicy | None = None
    unsynced_rounds: int = 0
    counts: PartitionCounts | None = None

    @property
    def is_used(self) -> bool:
        """Whether the file has a header or rounds; else the process died while it created the file."""
        return self.start_offsets is not None or bool(self.rounds)


def scan_journal(data: bytes, salt: bytes | None, is_newest: bool = False) -> JournalScan:
    """Find the valid frames of a journal file's content. An invalid frame is skipped if a valid one follows.

    ``salt``: from the file's name. ``is_newest``: there is no later file, so this one may not have been synced.
    """
    frames = _frames(salt)
    used = len(data.rstrip(b"\0"))
    header, header_end = _header(memoryview(data), frames)
    rounds, damaged, valid_bytes = _rounds(data, frames, header_end, used)
    start_offsets, counts, unsynced_policy = None, None, None
    if header is not None:
        start_offsets, counts = header.start_offsets, header.counts
        unsynced_policy = header.sync if is_newest and header.sync != "always" else None
    scan = JournalScan(
        start_offsets, rounds, valid_bytes, max(0, used - valid_bytes), damaged, unsynced_policy, counts=counts
    )
    return _end_at_flaw(scan) if unsynced_policy and damaged else scan


def _frames(salt: bytes | None) -> Frames:
    return UntaggedFrames() if salt is None else TaggedFrames(salt)


def _header(view: memoryview, frames: Frames) -> tuple[FileHeader | None, int]:
    """The content and end of the first frame; None and 0 when it is invalid."""
    end = frames.end(view, 0) or 0
    content = view[frames.head_bytes : end]
    is_old = isinstance(frames, UntaggedFrames)
    sync = (UNTAGGED_POLICY_BY_MAGIC if is_old else POLICY_BY_MAGIC).get(bytes(content[:MAGIC_BYTES]))
    fields_at = MAGIC_BYTES + (0 if is_old else _COUNTS.size)
    if sync is None or len(content) < fields_at or (len(content) - fields_at) % _START.size:
        return None, 0
    counts = None if is_old else PartitionCounts(*_COUNTS.unpack_from(content, MAGIC_BYTES))
    return FileHeader(dict(_START.iter_unpack(content[fields_at:])), sync, counts), end


def lacks_salt(data: bytes, name: str) -> bool:
    """Whether a file was written with a salt but its name has none, because it was renamed."""
    is_old = data[UntaggedFrames.head_bytes :][:MAGIC_BYTES] in UNTAGGED_POLICY_BY_MAGIC
    return journal_salt(name) is None and not is_old and data[FRAME_HEAD_BYTES:][:MAGIC_BYTES] in POLICY_BY_MAGIC


def _header_content(header: FileHeader) -> bytes:
    assert header.counts is not None
    mark = next(mark for mark, policy in POLICY_BY_MAGIC.items() if policy == header.sync)
    start_offsets = b"".join(_START.pack(*start) for start in header.start_offsets.items())
    return mark + _COUNTS.pack(*header.counts) + start_offsets


def _rounds(
    data: bytes, frames: Frames, position: int, used: int
) -> tuple[list[tuple[int, int]], list[DamagedRange], int]:
    """The ranges of valid rounds from ``position`` on, the damaged ranges between them, and the end of the last round.

    A ``position`` of 0 means that the first frame is invalid.
    """
    view = memoryview(data)
    rounds: list[tuple[int, int]] = []
    damaged: list[DamagedRange] = []
    at = valid_end = position
    while at < used:
        end = frames.end(view, at) if at else None
        if end is not None:
            rounds.append((at + frames.head_bytes, end))
            at = valid_end = end
            continue
        try:
            next_at = frames.next(data, at, used)
        except SearchAborted as error:
            damaged.append(DamagedRange(at, used - at, str(error)))
            return rounds, damaged, used
        if next_at is None:
            break
        damaged.append(DamagedRange(at, next_at - at, "an invalid frame, followed by valid ones"))
        at = next_at
    return rounds, damaged, valid_end


def read_header(disk: Disk, path: Path) -> FileHeader | None:
    """The content of a journal file's first frame; None when it is invalid. Raises OSError."""
    salt = journal_salt(path.name)
    fd = disk.open(path, os.O_RDONLY)
    try:
        length = int.from_bytes(read_at(disk, fd, MAGIC_BYTES, 0), "big")
        head = read_at(disk, fd, min(FRAME_HEAD_BYTES + length, disk.size(fd)), 0)
    finally:
        disk.close(fd)
    return _header(memoryview(head), _frames(salt))[0]


def _end_at_flaw(scan: JournalScan) -> JournalScan:
    """Truncate the result for a file whose rounds were not synced: everything after the first flaw is torn."""
    flaw = scan.damaged[0].position
    rounds = [span for span in scan.rounds if span[0] < flaw]
    torn = scan.valid_bytes + scan.torn_bytes - flaw
    unsynced_rounds = len(scan.rounds) - len(rounds)
    return scan._replace(rounds=rounds, valid_bytes=flaw, torn_bytes=torn, damaged=[], unsynced_rounds=unsynced_rounds)


def read_rounds(data: bytes, scan: JournalScan) -> Iterator[list[tuple[int, memoryview]]]:
    """The (partition, batch) pairs of each valid round, in order."""
    view = memoryview(data)
    for start, end in scan.rounds:
        yield list(frame_batches(view[start:end]))


class Journal:
    """A journal file that one thread writes."""

    def __init__(self, disk: Disk, folder: Path, number: int, header: FileHeader, salt: bytes) -> None:
        """Create the file, which must not exist, with its first frame, durably. Raises OSError.

        ``salt``: 8 random bytes, not used for any other file.

        After an error the file is removed again, or the OSError is that of the removal: a later file would make a torn
        end of the current one look like damage.
        """
        self.path = folder / journal_name(number, salt)
        self.number = number
        self.position = self._rounds_at = 0
        self._disk = disk
        self._frames = TaggedFrames(salt)
        self._allocated = 0
        self._reserve = int(RESERVED_FRACTION * min(len(ZEROS), disk.ahead_bytes))
        self._fd = disk.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            with suppress(NoSpace):  # the first frame alone may fit; then older files can be removed
                self._allocate()
            self._write(content_frame(_header_content(header)))
            self._rounds_at = self.position
            self.sync()
            disk.sync_folder(folder)
        except OSError:
            self.close()
            disk.remove(self.path)
            disk.sync_folder(folder)
            raise

    @property
    def has_rounds(self) -> bool:
        """Whether rounds were written to it."""
        return self.position > self._rounds_at

    def write(self, frame: bytes) -> None:
        """Append a frame of ``encode_frame``, without a sync. Raises NoSpace when the disk is full; it may be retried.

        After any other OSError the file must not be written any more, because its end is unknown.
        """
        end = self.position + len(frame) + self._reserve
        while end > self._allocated:
            self._allocate()
        self._write(frame)
        assert self.position <= self._allocated, "a frame ends in the allocated bytes: zeros mark the end of the file"

    def has_room(self, size: int) -> bool:
        """Whether a frame of this size can be written without allocating, and is not so large that it takes long."""
        return size <= SHORT_FRAME_BYTES and self.position + size + self._reserve <= self._allocated

    def check(self) -> None:
        """Assert what holds between two calls. Does not touch the file."""
        assert 0 <= self._rounds_at <= self.position <= self._allocated, (
            self._rounds_at,
            self.position,
            self._allocated,
        )

    def probe(self) -> None:
        """Check whether there is room again. Raises as ``write`` does."""
        self._allocate()

    def trim(self) -> None:
        """Free the allocated bytes that are not used. Raises OSError."""
        self._disk.truncate(self._fd, self.position)
        self._allocated = self.position

    def _allocate(self) -> None:
        """Write the next step of zeros. Without room for it, no round is accepted.

        The rest of the disk is then for the partition files and the next journal file, so that a checkpoint is still
        possible, which may make room.
        """
        truncation = self.truncation()
        if truncation:  # the zeros would hide it from the next check of the size
            raise OSError(errno.EIO, f"it was truncated while the log was open, {truncation}", str(self.path))
        zeros = ZEROS[: self._disk.ahead_bytes]
        try:
            write_all(self._disk, self._fd, zeros, self._allocated)
        except OSError as error:
            self._undo_short_write(error, self._allocated)
        self._allocated += len(zeros)

    def _write(self, frame: bytes) -> None:
        try:
            write_all(self._disk, self._fd, self._frames.tagged(frame, self.position), self.position)
        except OSError as error:
            self._undo_short_write(error, self.position)
        self.position += len(frame)
        self._allocated = max(self._allocated, self.position)

    def _undo_short_write(self, error: OSError, size: int) -> NoReturn:
        """Truncate to ``size`` on a full disk, so that no partial frame follows the next one. Else raise ``error``."""
        if not is_full(error):
            raise error
        self._disk.truncate(self._fd, size)
        self._allocated = min(self._allocated, size)
        raise NoSpace(error.errno, error.strerror, str(self.path)) from error

    def sync(self) -> None:
        """Make all writes durable. After an OSError it is unknown which of them are."""
        self._disk.sync(self._fd)

    def sync_by(self, threads: Threads, then: Then) -> None:
        """Let ``threads`` make all writes durable, see ``Threads.sync``."""
        threads.sync(self._disk, self._fd, then)

    def is_in_place(self) -> bool:
        """Whether the file still has its name. Raises OSError when that cannot be checked."""
        return self._disk.is_named(self._fd, self.path)

    def truncation(self) -> str:
        """How much the file was truncated by others; empty if it has its size. Raises OSError."""
        size = self._disk.size(self._fd)
        return f"found {size} bytes, expected {self._allocated}" if size < self._allocated else ""

    def content(self) -> bytes:
        """All that was written, read from the open file, which may have lost its name. Raises OSError."""
        return read_at(self._disk, self._fd, self.position, 0)

    def close(self) -> None:
        if self._fd != -1:
            self._disk.close(self._fd)
            self._fd = -1
