"""The journal: one write and one sync make a round durable for all partitions together.

Fifty partition files would be fifty syncs; one file is one (ten times the commits a second). A file is frames, see
``journal_frames``; their contents::

    the first    a mark, the numbers of offsets and transactions partitions uint32, then for each partition with
                 records: partition int32, its end offset int64
    every other  a round, for each batch: partition int32, size uint32, the batch with its final offset

The first says from which offsets on this file holds everything, and it is synced before the file is used. So recovery
knows what the partition files may have lost and get back, even when rounds were lost with them. It also repeats the
numbers of partitions: which partition a group lies in depends on them, so a start compares them with the folder's.

The files are ``journal/%020d-<salt>.journal``, the salt as 16 hex digits. It stands in the name and not in the file, so
that a damaged first frame costs only itself. Files of format 2 and older are ``journal/%020d.journal``, without the
salt and the numbers of partitions; they are read, and never written.

A file is filled with zeros ahead of the frames, because a sync after
overwriting costs a third to a half less than one after growing (ext4: 105 against 160 us), and because a length of
zero marks the end. What a torn write leaves there does not check out, and that is the end as well, unless good frames
follow: then the file was damaged. Only where rounds are answered before they are synced, which the mark says, a loss
of power leaves the newest file so, because the system writes in an order of its own. There the first flaw is the end:
what was not synced may be lost from the end, but nothing may be there that came behind something lost.
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

from ..disk.disk import Disk, NoRoom, is_full, read_at, write_all
from .counts import Counts
from .journal_frames import FRAME_HEAD_BYTES, SALT_BYTES, Frames, OldFrames, TaggedFrames, batches_in, frame_of
from .reading.search import SearchAborted

FOLDER = "journal"
SyncPolicy = Literal["always", "interval", "none"]
MARKS: Mapping[bytes, SyncPolicy] = {b"CBK1": "always", b"CBKi": "interval", b"CBKn": "none"}
"""How a file begins, and how its rounds are synced."""

OLD_MARKS: Mapping[bytes, SyncPolicy] = {b"CBJ1": "always", b"CBJi": "interval", b"CBJn": "none"}
"""The same in files of format 2 and older.

A file of a version that knew one mark only is taken for one of "always": then what is good in it counts, all of it.
"""

MARK_BYTES = 4
ZEROS = bytes(Disk.ahead_bytes)  # a millisecond is all that a round ever waits for a step
RESERVE = 1 / 16
"""Of a step so much is never used: on a disk that is full to the last byte it makes room for the head of the next file.

With that a checkpoint can be made, which drops this one. 64 KiB hold the ends of 5,000 partitions.
"""

_START = Struct(">iq")
_COUNTS = Struct(">II")
_NAME = re.compile(r"(\d{20})(?:-([0-9a-f]{16}))?\.journal")


class FileHeader(NamedTuple):
    """What the first frame of a journal file says.

    ``starts``: from which offset on the file holds everything, by partition, 0 for one that is not named. ``sync``:
    when its rounds are synced; only with "always" each is before it is answered. ``counts``: None in files of format 2.
    """

    starts: Mapping[int, int]
    sync: SyncPolicy
    counts: Counts | None


def random_salt(draw: Callable[[], uuid.UUID] = uuid.uuid4) -> bytes:
    """A salt for a new file. A hash, because six bits of a random UUID are not random."""
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
    """Those of the names that are a journal file's, the oldest first."""
    return sorted(name for name in names if journal_number(name) is not None)


class Stretch(NamedTuple):
    """Bytes of a journal file that are no frame, with good frames behind them."""

    position: int
    size: int
    reason: str


class Extent(NamedTuple):
    """What a journal file holds.

    ``starts``: from which offset on, by partition, 0 for one that is not named; None when its first frame is not good.
    ``rounds``: where the content of each good round begins and ends. Between them may lie ``damaged`` stretches; behind
    ``good_bytes`` are ``torn_bytes`` of something else, and nothing good. ``late``: the policy of a file whose rounds
    may not be synced; then it ends at its first flaw, and what lies behind is torn, ``late_rounds`` good ones too.
    ``counts``: the numbers of partitions; None when its first frame is not good, or of format 2.
    """

    starts: Mapping[int, int] | None
    rounds: list[tuple[int, int]]
    good_bytes: int
    torn_bytes: int
    damaged: list[Stretch]
    late: SyncPolicy | None = None
    late_rounds: int = 0
    counts: Counts | None = None

    @property
    def is_used(self) -> bool:
        """Whether it ever held anything: else the process died while the file was made."""
        return self.starts is not None or bool(self.rounds)


def measure(data: bytes, salt: bytes | None, is_newest: bool = False) -> Extent:
    """Find the good frames. One that does not check out is passed over if a good one follows.

    ``salt``: that in the file's name. ``is_newest``: no file was begun behind this one, so it may not have been synced.
    """
    frames = _frames(salt)
    used = len(data.rstrip(b"\0"))
    header, header_end = _header(memoryview(data), frames)
    rounds, damaged, good = _rounds(data, frames, header_end, used)
    starts, counts, late = None, None, None
    if header is not None:
        starts, counts = header.starts, header.counts
        late = header.sync if is_newest and header.sync != "always" else None
    extent = Extent(starts, rounds, good, max(0, used - good), damaged, late, counts=counts)
    return _up_to_flaw(extent) if late and damaged else extent


def _frames(salt: bytes | None) -> Frames:
    return OldFrames() if salt is None else TaggedFrames(salt)


def _header(view: memoryview, frames: Frames) -> tuple[FileHeader | None, int]:
    """What the first frame says and where it ends; None and 0 when it is not good."""
    end = frames.end(view, 0) or 0
    content = view[frames.head_bytes : end]
    is_old = isinstance(frames, OldFrames)
    sync = (OLD_MARKS if is_old else MARKS).get(bytes(content[:MARK_BYTES]))
    fields_at = MARK_BYTES + (0 if is_old else _COUNTS.size)
    if sync is None or len(content) < fields_at or (len(content) - fields_at) % _START.size:
        return None, 0
    counts = None if is_old else Counts(*_COUNTS.unpack_from(content, MARK_BYTES))
    return FileHeader(dict(_START.iter_unpack(content[fields_at:])), sync, counts), end


def lacks_salt(data: bytes, name: str) -> bool:
    """Whether a file was written with a salt, and has a name without one: somebody has renamed it."""
    is_old = data[OldFrames.head_bytes :][:MARK_BYTES] in OLD_MARKS
    return journal_salt(name) is None and not is_old and data[FRAME_HEAD_BYTES:][:MARK_BYTES] in MARKS


def _header_content(header: FileHeader) -> bytes:
    assert header.counts is not None
    mark = next(mark for mark, policy in MARKS.items() if policy == header.sync)
    starts = b"".join(_START.pack(*start) for start in header.starts.items())
    return mark + _COUNTS.pack(*header.counts) + starts


def _rounds(data: bytes, frames: Frames, position: int, used: int) -> tuple[list[tuple[int, int]], list[Stretch], int]:
    """The contents of the good rounds from ``position`` on, what lies between them, and where the last one ends.

    A ``position`` of 0 means that the first frame is bad.
    """
    view = memoryview(data)
    rounds: list[tuple[int, int]] = []
    damaged: list[Stretch] = []
    at = good = position
    while at < used:
        end = frames.end(view, at) if at else None
        if end is not None:
            rounds.append((at + frames.head_bytes, end))
            at = good = end
            continue
        try:
            follows = frames.next(data, at, used)
        except SearchAborted as error:
            damaged.append(Stretch(at, used - at, str(error)))
            return rounds, damaged, used
        if follows is None:
            break
        damaged.append(Stretch(at, follows - at, "a frame that does not check out, and good ones behind it"))
        at = follows
    return rounds, damaged, good


def read_header(disk: Disk, path: Path) -> FileHeader | None:
    """What the first frame of a journal file says; None when it is not good. OSError."""
    salt = journal_salt(path.name)
    fd = disk.open(path, os.O_RDONLY)
    try:
        length = int.from_bytes(read_at(disk, fd, MARK_BYTES, 0), "big")
        head = read_at(disk, fd, min(FRAME_HEAD_BYTES + length, disk.size(fd)), 0)
    finally:
        disk.close(fd)
    return _header(memoryview(head), _frames(salt))[0]


def _up_to_flaw(extent: Extent) -> Extent:
    """What counts of a file whose rounds were not synced: a flaw is where the power went."""
    flaw = extent.damaged[0].position
    rounds = [each for each in extent.rounds if each[0] < flaw]
    torn = extent.good_bytes + extent.torn_bytes - flaw
    late_rounds = len(extent.rounds) - len(rounds)
    return extent._replace(rounds=rounds, good_bytes=flaw, torn_bytes=torn, damaged=[], late_rounds=late_rounds)


def read_rounds(data: bytes, extent: Extent) -> Iterator[list[tuple[int, memoryview]]]:
    """The (partition, batch) pairs of each round that ``measure`` found good, in order."""
    view = memoryview(data)
    for start, end in extent.rounds:
        yield list(batches_in(view[start:end]))


class Journal:
    """A journal file that is being written, by one thread."""

    def __init__(self, disk: Disk, folder: Path, number: int, header: FileHeader, salt: bytes) -> None:
        """Create the file, which must not exist, with its first frame, durable. OSError when that fails.

        ``salt``: 8 random bytes, not used for any other file.

        What was made of it is gone then, or the OSError is that of its removal: a file behind one that is still
        written would make a torn end of that one look like damage.
        """
        self.path = folder / journal_name(number, salt)
        self.number = number
        self.position = 0
        self._disk = disk
        self._frames = TaggedFrames(salt)
        self._allocated = 0
        self._reserve = int(RESERVE * min(len(ZEROS), disk.ahead_bytes))
        self._fd = disk.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            with suppress(NoRoom):  # the first frame alone may fit, and all that this file replaces can go then
                self._allocate()
            self._write(frame_of(_header_content(header)))
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
        """Whether anything was written to it since it was made."""
        return self.position > self._rounds_at

    def write(self, frame: bytes) -> None:
        """Append a frame that ``encode_frame`` made, not synced. NoRoom when the disk is full; it may be tried again.

        After any other OSError nothing may be written any more: the end is unknown.
        """
        end = self.position + len(frame) + self._reserve
        while end > self._allocated:
            self._allocate()
        self._write(frame)

    def probe(self) -> None:
        """See whether there is room again. Raises as ``write`` does."""
        self._allocate()

    def give_back(self) -> None:
        """Leave to others what was allocated and is not used. OSError."""
        self._disk.truncate(self._fd, self.position)
        self._allocated = self.position

    def _allocate(self) -> None:
        """The next step of zeros. Without room for it there is none for a round.

        What then is left of the disk is for the partition files, and for the next journal file: with them a checkpoint
        can still be made, and that may make room.
        """
        cut = self.cut()
        if cut:  # the zeros would hide it from the next look at the size
            raise OSError(errno.EIO, f"it was cut while the log was open, {cut}", str(self.path))
        zeros = ZEROS[: self._disk.ahead_bytes]
        try:
            write_all(self._disk, self._fd, zeros, self._allocated)
        except OSError as error:
            self._cut(error, self._allocated)
        self._allocated += len(zeros)

    def _write(self, frame: bytes) -> None:
        try:
            write_all(self._disk, self._fd, self._frames.tagged(frame, self.position), self.position)
        except OSError as error:
            self._cut(error, self.position)
        self.position += len(frame)
        self._allocated = max(self._allocated, self.position)

    def _cut(self, error: OSError, size: int) -> NoReturn:
        """Take back what was written short: a next frame must not have the rest of this one behind it."""
        if not is_full(error):
            raise error
        self._disk.truncate(self._fd, size)
        self._allocated = min(self._allocated, size)
        raise NoRoom(error.errno, error.strerror, str(self.path)) from error

    def sync(self) -> None:
        """Make what was written durable. After an OSError nothing is known about any of it."""
        self._disk.sync(self._fd)

    def is_in_place(self) -> bool:
        """Whether the file can be found under its name. OSError when that cannot be seen."""
        return self._disk.is_named(self._fd, self.path)

    def cut(self) -> str:
        """How much shorter somebody has made the file; empty if it has its size. OSError."""
        size = self._disk.size(self._fd)
        return f"found {size} bytes, expected {self._allocated}" if size < self._allocated else ""

    def content(self) -> bytes:
        """All that was written, from the open file, which need not have a name any more. OSError."""
        return read_at(self._disk, self._fd, self.position, 0)

    def close(self) -> None:
        if self._fd != -1:
            self._disk.close(self._fd)
            self._fd = -1
