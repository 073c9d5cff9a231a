"""What happens when a log is opened: torn tails are cut, the journal is laid in, everything is synced.

All of it may be interrupted and done again: a batch in the journal carries its partition and its base offset, so what
is already in a partition is passed over. Journal files go only after the sync of what they held.

Damage never keeps a log from starting, and costs only what lies in it. A journal file whose middle is damaged is laid
in round by round as far as it is good; where the offsets of a partition then have a hole, that is told and the log
goes on behind it. Such a file is renamed instead of removed. What keeps a log from starting is what a person can mend,
and would lose by going on: a partition whose files are all gone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from ...common.errors import StartError
from ...common.logs import get_logger
from ...disk.disk import Disk, is_full, read_file
from ...disk.threads import Threads
from ..checkpoint import remove_journals, sync_partitions
from ..counts import refuse_other_counts, repair_command
from ..format.batch import CRC_FROM, LOG_OFFSET_MAX, offsets_of
from ..format.errors import UNKNOWN_OFFSET, Damage
from ..journal import (
    FOLDER,
    Extent,
    FileHeader,
    Journal,
    journal_names,
    journal_number,
    journal_salt,
    lacks_salt,
    measure,
    random_salt,
    read_rounds,
)
from ..journal_frames import encode_frame
from ..manifest import log_files
from ..partition import Partition, no_room_to_start
from ..partitions import Partitions
from ..reading.segment import segment_name
from .clean_stop import NAME as NOTE
from .clean_stop import leave_note
from .quarantine import DAMAGED, free_name, put_aside
from .tail import Tail
from .unrecognized import look_round

CRC_BYTES = 4
BEGINNING_BYTES = 64  # of a file: enough for the head of its first frame and the mark

KEPT_BYTES = 144 * 1024 * 1024
"""So much of the journal is kept in memory from when it is measured until it is laid in: the two files of a checkpoint.

There are more where a partition's file has failed for long. They are read one after the other then, for each step anew.
"""

log = get_logger("callboard.log")


class _Content(NamedTuple):
    data: bytes
    extent: Extent


class _File:
    """A journal file. ``extent`` is without its rounds, which are as large as the file; ``content`` has them."""

    def __init__(self, disk: Disk, path: Path, is_newest: bool) -> None:
        self.path = path
        self._disk = disk
        self._is_newest = is_newest
        self.too_large: dict[int, Damage] = {}  # by position: batches with offsets beyond LOG_OFFSET_MAX
        self.kept: _Content | None = None
        self.kept = self.content()
        self.size = len(self.kept.data)
        self.beginning = self.kept.data[:BEGINNING_BYTES]
        self.extent = self.kept.extent._replace(rounds=self.kept.extent.rounds[:1])

    def content(self) -> _Content:
        if self.kept is not None:
            return self.kept
        data = read_file(self._disk, self.path)
        return _Content(data, _possible(measure(data, journal_salt(self.path.name), self._is_newest)))

    @property
    def is_damaged(self) -> bool:
        return bool(self.extent.damaged or self.too_large)


class _Piece(NamedTuple):
    """A batch in a journal file; ``position`` is that of its round."""

    first: int
    last: int
    batch: memoryview
    file: Path
    position: int


class Recovery:
    """Opens the partitions of a log from what a run before left in its folder."""

    def __init__(
        self,
        disk: Disk,
        root: Path,
        partitions: Partitions,
        threads: Threads,
        new_salt: Callable[[], bytes] = random_salt,
    ) -> None:
        self._disk = disk
        self._new_salt = new_salt
        self._threads = threads
        self._folder = root / FOLDER
        self._partitions = partitions
        self._files: list[_File] = []
        self._zone: dict[int, int] = {}
        self._next_number = 0
        self._salvaged: Journal | None = None
        self._laid_in = 0
        self._passed_over = 0
        self._late_batches = 0

    def run(self) -> int:
        """Open everything; the number for the next journal file. StartError when the folder does not fit together."""
        names = journal_names(self._disk.names(self._folder))
        self._next_number = 1 + (journal_number(names[-1]) or 0) if names else 0
        for name in names:
            self._measure(self._folder / name, name == names[-1])
        self._refuse_other_counts()
        look_round(self._disk, self._folder, self._partitions, any(file.extent.is_used for file in self._files))
        self._zone = self._journal_from()
        self._partitions.open(self._zone, self._salvage)
        self._read_salvaged()
        self._refuse_lost_partitions()
        if self._files:
            self._tell_stretches()
            self._lay_in()
            self._make_durable()
        return self._next_number

    def _refuse_other_counts(self) -> None:
        """A journal file repeats the numbers of partitions: with wrong ones groups would be looked for where they are
        not, and their commits go to partitions that others read."""
        for file in self._files:
            self._refuse_lacking_salt(file)
            counts = file.extent.counts
            if counts is not None:
                refuse_other_counts(self._folder.parent, self._partitions.counts, file.path, counts)

    def _refuse_lacking_salt(self, file: _File) -> None:
        if lacks_salt(file.beginning, file.path.name):
            raise StartError(
                f"{file.path}: found a journal file without the salt in its name, expected"
                f" {file.path.stem}-<16 hex digits>.journal; without it none of the file can be read: give it back the"
                " name that it had"
            )

    def _measure(self, path: Path, is_newest: bool = False) -> None:
        self._files.append(_File(self._disk, path, is_newest))
        if not self._is_kept:
            for file in self._files:
                file.kept = None

    @property
    def _is_kept(self) -> bool:
        """Whether all that was measured may stay in memory."""
        return sum(file.size for file in self._files) <= KEPT_BYTES

    def _journal_from(self) -> dict[int, int]:
        """From which offset on the oldest journal file holds everything, for the partitions of which that is known."""
        oldest = next((file for file in self._files if file.extent.is_used), None)
        if oldest is None:
            return {}
        if oldest.extent.starts is not None:
            return {partition.number: oldest.extent.starts.get(partition.number, 0) for partition in self._partitions}
        found: dict[int, int] = {}
        for number, piece in _pieces(oldest):
            found[number] = min(piece.first, found.get(number, piece.first))
        return found

    # Good batches that lie where a partition file is cut -------------------------------------------------------------

    def _salvage(self, number: int, tail: Tail, batches: Iterator[tuple[int, bytes]]) -> None:
        """Put those that the journal has lost into a journal file of their own, durably.

        As far as the journal says what lies in the file, it has lost nothing. A good batch that is found there, and is
        none of the journal's, lies in the value of a record, where a client has put it, and came to light because the
        page with the head of the outer batch is missing.

        A batch that was not synced is none that anybody was promised, but what came behind must not be there.
        """
        pieces = [piece for file in self._files for of, piece in _pieces(file) if of == number]
        known = {_identity(piece.batch) for piece in pieces}
        known_bytes = _known_bytes(tail, pieces)
        lost = [batch for at, batch in batches if at >= known_bytes and _identity(memoryview(batch)) not in known]
        if not lost:
            return
        if self._files and self._files[-1].extent.late:
            self._late_batches += len(lost)
            return
        if self._salvaged is None:
            header = FileHeader(self._zone, "always", self._partitions.counts)
            self._salvaged = Journal(self._disk, self._folder, self._next_number, header, self._new_salt())
            self._next_number += 1
        for batch in lost:
            self._salvaged.write(encode_frame([(number, batch)]))
        self._salvaged.sync()

    def _read_salvaged(self) -> None:
        if self._salvaged is not None:
            self._salvaged.close()
            self._measure(self._salvaged.path)

    # The journal -----------------------------------------------------------------------------------------------------

    def _refuse_lost_partitions(self) -> None:
        """What lay in the partition files when the oldest journal began was synced: it must be there."""
        for partition in self._partitions:
            start = self._zone.get(partition.number, 0)
            if partition.end_offset < start:
                raise _lost(partition, partition.end_offset, start, self._files[0].path)

    def _tell_stretches(self) -> None:
        """A torn end is none, in an older file neither: a full disk may have taken back a round there, unsynced.

        Whether something is missing there is seen where the next file begins.
        """
        for file in self._files:
            for position, size, reason in file.extent.damaged:
                self._tell_damage(Damage(file.path, position, size, reason, UNKNOWN_OFFSET, None))

    def _lay_in(self) -> None:
        """File by file, unless all are in memory anyway."""
        between = _Between()
        if self._is_kept:
            self._lay_in_pieces(_by_partition(self._files))
        else:
            for file in self._in_order(between):
                by_partition = _by_partition([file])
                for number, pieces in by_partition.items():
                    pieces += between.take_below(number, pieces[-1].last)
                self._lay_in_pieces(by_partition)
            self._lay_in_pieces(between.by_partition)
        for file in self._files:
            for damage in file.too_large.values():
                self._tell_damage(damage)
        for partition in self._partitions:
            self._tell_lost_end(partition)

    def _in_order(self, between: _Between) -> Iterator[_File]:
        """The files whose batches follow one another; those of the others, which were salvaged, go ``between``."""
        ends: dict[int, int] = {}
        others = set()
        for file in self._files:
            spans = _spans(file)
            if any(first < ends.get(number, 0) for number, (first, _) in spans.items()):
                others.add(file)
                between.add(file)
            else:
                ends |= {number: end for number, (_, end) in spans.items()}
        return (file for file in self._files if file not in others)

    def _lay_in_pieces(self, by_partition: Mapping[int, list[_Piece]]) -> None:
        for number, pieces in by_partition.items():
            if not pieces:
                continue
            pieces.sort(key=lambda piece: piece.first)  # those that were salvaged lie between others
            missing = list(self._missing(self._partition(number, pieces[0].file), pieces))
            self._partitions.gather((number, bytes(piece.batch)) for piece in missing)
            self._laid_in += len(missing)
            self._passed_over += len(pieces) - len(missing)
        no_room = self._partitions.lay_in()
        if no_room:
            self._give_back()
            no_room = self._partitions.lay_in()
        self._refuse_failure(no_room)

    def _give_back(self) -> None:
        """Free the zeros at the end of the journal files: whole files go only when all is in the partition files."""
        for file in self._files:
            extent = file.extent
            if not extent.damaged and not extent.torn_bytes and extent.good_bytes < file.size:
                fd = self._disk.open(file.path, os.O_RDWR)
                try:
                    self._disk.truncate(fd, extent.good_bytes)
                finally:
                    self._disk.close(fd)

    def _partition(self, number: int, path: Path) -> Partition:
        if number >= len(self._partitions):
            raise StartError(
                f"{path}: found a batch of partition {number}, expected 0 to {len(self._partitions) - 1};"
                f" {repair_command(self._folder.parent)} checks the numbers and writes them"
            )
        return self._partitions[number]

    def _missing(self, partition: Partition, pieces: list[_Piece]) -> Iterator[_Piece]:
        """The batches that belong behind the partition's end, in order."""
        end = partition.end_offset
        for piece in pieces:
            if piece.last < end:
                continue
            if piece.first != end:
                self._tell_hole(partition, piece, end)
            if piece.first >= end:
                yield piece
                end = piece.last + 1

    def _tell_hole(self, partition: Partition, piece: _Piece, end: int) -> None:
        reason = f"{partition.folder.name} ends at offset {end}, and here come offsets {piece.first} to {piece.last}"
        after = max(piece.first, end)
        self._tell_damage(Damage(piece.file, piece.position, 0, reason, end, after))

    def _tell_lost_end(self, partition: Partition) -> None:
        """A later journal file may know that a partition went on further than all before it say."""
        for file in self._files:
            start = (file.extent.starts or {}).get(partition.number, 0)
            if start > partition.end_offset:
                reason = f"it says that {partition.folder.name} went on to offset {start}"
                self._tell_damage(Damage(file.path, 0, 0, reason, partition.end_offset, start))

    def _tell_damage(self, damage: Damage) -> None:
        self._partitions.quarantine.add(damage)

    # The end ---------------------------------------------------------------------------------------------------------

    def _make_durable(self) -> None:
        """Sync every partition, even an unchanged one: the run before may have died before it could."""
        for partition in self._partitions:
            partition.distrust()
        self._refuse_failure(sync_partitions(self._disk, self._threads, self._partitions))
        note = self._partitions.clean_ends()
        is_noted = leave_note(self._disk, self._folder.parent, note)
        for file in self._files:
            self._keep(file)
        remove_journals(self._disk, [file.path for file in self._files if not file.is_damaged])
        if not is_noted:
            leave_note(self._disk, self._folder.parent, note)  # the journal files have made room
        self._tell()

    def _keep(self, file: _File) -> None:
        """What of a journal file is not in the partitions now: all of a damaged one, and a torn end."""
        extent = file.extent
        if file.is_damaged:
            self._disk.rename(file.path, free_name(self._disk, file.path, DAMAGED))
            self._disk.sync_folder(self._folder)
        elif extent.torn_bytes:
            good = extent.good_bytes
            try:
                put_aside(self._disk, file.path, good, good + extent.torn_bytes, good)
            except OSError as error:
                if is_full(error):
                    purpose = "to keep its torn end beside it"
                    raise no_room_to_start(file.path, extent.torn_bytes, purpose, error) from error
                raise

    def _refuse_failure(self, no_room: str) -> None:
        failures = [partition.failure for partition in self._partitions if partition.failure]
        if failures:
            raise StartError(
                f"{self._folder.parent}: {failures[0]} while the journal is replayed; nothing is lost: check the disk,"
                " and start again"
            )
        if no_room:
            missing = self._partitions.missing_bytes()
            raise StartError(
                f"{self._folder.parent}: found no room to replay the journal ({no_room}); "
                + (f"{missing} bytes are missing: " if missing else "")
                + "make room and start again, nothing is lost"
            )

    def _tell(self) -> None:
        torn = sum(file.extent.torn_bytes for file in self._files)
        if torn or self._laid_in or self._passed_over:
            tell = log.warning if torn else log.info
            tell(
                "journal laid in", batches=self._laid_in, already_there=self._passed_over, torn_bytes=torn,
                files=len(self._files),
            )  # fmt: skip
        for file in self._files:
            if file.extent.late and (file.extent.late_rounds or self._late_batches):
                self._tell_late(file.extent)

    def _tell_late(self, extent: Extent) -> None:
        log.warning(
            "the last rounds were not synced when the power went",
            sync=extent.late,
            rounds=extent.late_rounds,
            batches=self._late_batches,
            consequence="each partition ends where the first of them is missing; with this policy that is no damage",
            kept="in files with .torn- in their names",
        )


def _identity(batch: memoryview) -> bytes:
    """All of a batch that a checksum covers, and that: its base offset may be what is damaged. As a hash, for many."""
    return blake2b(batch[CRC_FROM - CRC_BYTES :], digest_size=16).digest()


def _known_bytes(tail: Tail, pieces: Iterable[_Piece]) -> int:
    """Up to where the journal says what lies in a segment behind its flaw: its batches, one after the other."""
    if tail.go_on_at is not None:
        return 0  # where the first of them begins is not known
    position, offset = tail.good_bytes, tail.end_offset
    for piece in sorted(pieces, key=lambda piece: piece.first):
        if piece.first > offset:
            break
        if piece.first == offset:
            position += len(piece.batch)
            offset = piece.last + 1
    return position


def refuse_removed(disk: Disk, root: Path, partitions: Partitions) -> None:
    """After a clean stop there is no journal that knows how far a partition went; the note of the stop does.

    StartError for a partition of which no file is there, or none but what was compacted.
    """
    for partition in partitions:
        end = partition.clean_end
        if end is None or end.end_offset == 0:
            continue
        manifest, files = log_files(disk, partition.folder)
        is_open_there = bool(files) and not files[-1].is_closed  # else what was compacted is all that there is
        if not is_open_there and manifest.clean_end < end.end_offset:
            raise _lost(partition, manifest.clean_end, end.end_offset, root / NOTE)


def _lost(partition: Partition, found: int, start: int, witness: Path) -> StartError:
    return StartError(
        f"{partition.folder}: ends at offset {found}, expected {start} or more by {witness}; put back"
        " the partition's files as they were, or, to go on without what is lost, make the empty file"
        f" {partition.folder / segment_name(start)}"
    )


def _possible(extent: Extent) -> Extent:
    """Without ends of partitions that no log can have."""
    if extent.starts is None:
        return extent
    starts = {number: end for number, end in extent.starts.items() if 0 <= end <= LOG_OFFSET_MAX + 1}
    return extent._replace(starts=starts)


def _pieces(file: _File) -> Iterator[tuple[int, _Piece]]:
    """The batches of a journal file with their partitions; not those with impossible offsets, which are noted."""
    data, extent = file.content()
    for (start, _), batches in zip(extent.rounds, read_rounds(data, extent), strict=True):
        for number, batch in batches:
            first, last = offsets_of(batch)
            if 0 <= first <= last <= LOG_OFFSET_MAX:
                yield number, _Piece(first, last, batch, file.path, start)
            else:
                reason = f"a batch of partition {number} with offsets {first} to {last}, expected 0 to {LOG_OFFSET_MAX}"
                file.too_large[start] = Damage(file.path, start, len(batch), reason, UNKNOWN_OFFSET, None)


def _by_partition(files: Iterable[_File]) -> dict[int, list[_Piece]]:
    found: dict[int, list[_Piece]] = {}
    for file in files:
        for number, piece in _pieces(file):
            found.setdefault(number, []).append(piece)
    return found


def _spans(file: _File) -> dict[int, tuple[int, int]]:
    """From which offset to which a journal file has batches, by partition."""
    spans: dict[int, tuple[int, int]] = {}
    for number, piece in _pieces(file):
        first, end = spans.get(number, (piece.first, 0))
        spans[number] = min(first, piece.first), max(end, piece.last + 1)
    return spans


class _Between:
    """Batches that lie between those of the journal files before theirs, in order; few, so they stay in memory."""

    def __init__(self) -> None:
        self.by_partition: dict[int, list[_Piece]] = {}

    def add(self, file: _File) -> None:
        for number, pieces in _by_partition([file]).items():
            together = self.by_partition.setdefault(number, [])
            together += pieces
            together.sort(key=lambda piece: piece.first)

    def take_below(self, number: int, last: int) -> list[_Piece]:
        """Those that come before an offset, once."""
        pieces = self.by_partition.get(number, [])
        count = sum(piece.first <= last for piece in pieces)
        taken, pieces[:count] = pieces[:count], []
        return taken
