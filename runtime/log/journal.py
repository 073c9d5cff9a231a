"""The journal: one write and one sync make a round durable for all partitions together.

Fifty partition files would be fifty syncs; one file is one (ten times the commits a second). A file is frames::

    each frame   length uint32, CRC-32C uint32, then its content
    the first    a mark, then for each partition with records: partition int32, its end offset int64
    every other  a round, for each batch: partition int32, size uint32, the batch with its final offset

The first says from which offsets on this file holds everything, and it is synced before the file is used. So recovery
knows what the partition files may have lost and get back, even when rounds were lost with them.

The files are ``journal/%020d.journal``. A file is filled with zeros ahead of the frames, because a sync after
overwriting costs a third to a half less than one after growing (ext4: 105 against 160 us), and because a length of
zero marks the end. What a torn write leaves there does not check out, and that is the end as well, unless good frames
follow: then the file was damaged. Only where rounds are answered before they are synced, which the mark says, a loss
of power leaves the newest file so, because the system writes in an order of its own. There the first flaw is the end:
what was not synced may be lost from the end, but nothing may be there that came behind something lost.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Literal, NamedTuple, NoReturn

from .batch import HEADER_BYTES, PREFIX_BYTES, read_size
from .crc import crc32c
from .disk import Disk, NoRoom, is_full, read_at, write_all
from .search import CANDIDATE_BYTES, EFFORT, EFFORT_MIN_BYTES, SearchGivenUp

FOLDER = "journal"
SyncPolicy = Literal["always", "interval", "none"]
MARKS: Mapping[bytes, SyncPolicy] = {b"CBJ1": "always", b"CBJi": "interval", b"CBJn": "none"}
"""How a file begins, which also keeps the first frame of an empty log from being empty, and how its rounds are synced.

A file of a version that knew one mark only is taken for one of "always": then what is good in it counts, all of it.
"""

MARK_BYTES = 4
ZEROS = bytes(Disk.ahead_bytes)  # a millisecond is all that a round ever waits for a step
RESERVE = 1 / 16
"""Of a step so much is never used: on a disk that is full to the last byte it makes room for the head of the next file.

With that a checkpoint can be made, which drops this one. 64 KiB hold the ends of 5,000 partitions.
"""

_FRAME = Struct(">II")
_START = Struct(">iq")
_BATCH = Struct(">iI")
_NAME = re.compile(r"(\d{20})\.journal")

_MAGIC_AT = _FRAME.size + _BATCH.size + 16  # of a frame's first batch
_LENGTHS = (0, 12, 24)  # of the frame, of its first batch, and as the batch itself has it
# Magic 2, and in front of it: the frame's length (below 64 MiB) and checksum, a partition, the batch's size, and the
# batch's own base offset and length.
_HEAD = re.compile(
    rb"\x02(?<=[\x00-\x03][\x00-\xff]{7}\x00[\x00-\xff]{3}[\x00-\x03][\x00-\xff]{3}"
    rb"[\x00-\x7f][\x00-\xff]{7}[\x00-\x03][\x00-\xff]{7}\x02)(?=[\x00-\xff]{4}\x00)"
)


def journal_name(number: int) -> str:
    return f"{number:020d}.journal"


def journal_number(name: str) -> int | None:
    """The number in a file name; None when it is not the name of a journal."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def encode_frame(batches: Sequence[tuple[int, bytes]]) -> bytes:
    """The frame of one round's (partition, batch) pairs; not empty."""
    parts: list[bytes] = []
    for partition, batch in batches:
        parts.append(_BATCH.pack(partition, len(batch)))
        parts.append(batch)
    return _frame(b"".join(parts))


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
    """

    starts: dict[int, int] | None
    rounds: list[tuple[int, int]]
    good_bytes: int
    torn_bytes: int
    damaged: list[Stretch]
    late: SyncPolicy | None = None
    late_rounds: int = 0

    @property
    def is_used(self) -> bool:
        """Whether it ever held anything: else the process died while the file was made."""
        return self.starts is not None or bool(self.rounds)


def measure(data: bytes, is_newest: bool = False) -> Extent:
    """Find the good frames. One that does not check out is passed over if a good one follows.

    ``is_newest``: no file was begun behind this one, so it may not have been synced.
    """
    view = memoryview(data)
    used = len(data.rstrip(b"\0"))
    starts_at = _FRAME.size + MARK_BYTES
    sync = MARKS.get(bytes(view[_FRAME.size : starts_at]))
    at = good = (_frame_end(view, 0) or 0) if sync else 0
    late = sync if is_newest and at and sync != "always" else None
    starts = dict(_START.iter_unpack(view[starts_at:at])) if at else None
    rounds: list[tuple[int, int]] = []
    damaged: list[Stretch] = []
    while at < used:
        end = _frame_end(view, at) if at else None
        if end is not None:
            rounds.append((at + _FRAME.size, end))
            at = good = end
            continue
        try:
            follows = _next_frame(data, at, used)
        except SearchGivenUp as error:
            damaged.append(Stretch(at, used - at, str(error)))
            good = used
            break
        if follows is None:
            break
        damaged.append(Stretch(at, follows - at, "a frame that does not check out, and good ones behind it"))
        at = follows
    extent = Extent(starts, rounds, good, max(0, used - good), damaged, late)
    return _up_to_flaw(extent) if late and damaged else extent


def read_starts(disk: Disk, path: Path) -> dict[int, int] | None:
    """What the first frame says; None when it is not good. OSError."""
    fd = disk.open(path, os.O_RDONLY)
    try:
        head = read_at(disk, fd, _FRAME.size, 0)
        length = int.from_bytes(head[:4], "big")
        return measure(head + read_at(disk, fd, min(length, disk.size(fd)), _FRAME.size)).starts
    finally:
        disk.close(fd)


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
        yield list(_batches(view[start:end]))


def _frame(content: bytes) -> bytes:
    return _FRAME.pack(len(content), crc32c(content)) + content


def _frame_end(view: memoryview, at: int) -> int | None:
    if at + _FRAME.size > len(view):
        return None
    length, crc = _FRAME.unpack_from(view, at)
    start = at + _FRAME.size
    end = start + int(length)
    if length == 0 or end > len(view) or crc32c(view[start:end]) != crc:
        return None
    return end


def _next_frame(data: bytes, at: int, used: int) -> int | None:
    """Where behind ``at``, where a frame is bad, a good one begins; None when there is none, SearchGivenUp.

    A bad frame whose batches fit its length is believed about that: what lies within is not looked at, because the
    bytes of a client may look like a frame, too.
    """
    view = memoryview(data)
    claimed = _claimed_end(view, at, used)
    start = at + 1 if claimed is None else claimed
    if claimed is not None and _frame_end(view, claimed) is not None:
        return claimed
    effort = max(EFFORT_MIN_BYTES, EFFORT * (used - at))
    for match in _HEAD.finditer(data, start, min(len(data), used + _MAGIC_AT + 1)):
        found = match.start() - _MAGIC_AT
        length, size, batch_length = (int.from_bytes(view[found + i : found + i + 4], "big") for i in _LENGTHS)
        fits = size == batch_length + PREFIX_BYTES and HEADER_BYTES <= size <= length - _BATCH.size
        if found < start or not fits or found + _FRAME.size + length > len(view):
            continue
        effort -= max(length, CANDIDATE_BYTES)
        if effort < 0:
            raise SearchGivenUp(found)
        if _frame_end(view, found) is not None:
            return found
    return None


def _claimed_end(view: memoryview, at: int, used: int) -> int | None:
    """Where a bad frame says that it ends, if its batches say so, too, as far as they were written."""
    if at + _FRAME.size > len(view):
        return None
    end = at + _FRAME.size + int(_FRAME.unpack_from(view, at)[0])
    at += _FRAME.size
    while at < end:
        head = at + _BATCH.size
        if head + PREFIX_BYTES > used:
            break
        partition, size = _BATCH.unpack_from(view, at)
        at = head + size
        if partition < 0 or size < HEADER_BYTES or at > end or read_size(view, head) != size:
            return None
    return end


def _batches(payload: memoryview) -> Iterator[tuple[int, memoryview]]:
    at = 0
    while at < len(payload):
        partition, size = _BATCH.unpack_from(payload, at)
        at += _BATCH.size
        yield partition, payload[at : at + size]
        at += size


class Journal:
    """A journal file that is being written, by one thread."""

    def __init__(
        self, disk: Disk, folder: Path, number: int, starts: dict[int, int], sync: SyncPolicy = "always"
    ) -> None:
        """Create the file, which must not exist, with its first frame, durable. OSError when that fails.

        ``sync``: when what is written will be synced; only with "always" each round is before it is answered.

        What was made of it is gone then, or the OSError is that of its removal: a file behind one that is still
        written would make a torn end of that one look like damage.
        """
        self.path = folder / journal_name(number)
        self.number = number
        self.position = 0
        self._disk = disk
        self._allocated = 0
        self._reserve = int(RESERVE * min(len(ZEROS), disk.ahead_bytes))
        self._fd = disk.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            with suppress(NoRoom):  # the first frame alone may fit, and all that this file replaces can go then
                self._allocate()
            mark = next(mark for mark, policy in MARKS.items() if policy == sync)
            self._write(_frame(mark + b"".join(_START.pack(*start) for start in starts.items())))
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
        """Append a frame, not synced. NoRoom when the disk is full; it may be tried again.

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
        zeros = ZEROS[: self._disk.ahead_bytes]
        try:
            write_all(self._disk, self._fd, zeros, self._allocated)
        except OSError as error:
            self._cut(error, self._allocated)
        self._allocated += len(zeros)

    def _write(self, frame: bytes) -> None:
        try:
            write_all(self._disk, self._fd, frame, self.position)
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

    def content(self) -> bytes:
        """All that was written, from the open file, which need not have a name any more. OSError."""
        return read_at(self._disk, self._fd, self.position, 0)

    def close(self) -> None:
        if self._fd != -1:
            self._disk.close(self._fd)
            self._fd = -1
