"""Hostile record contents: bytes that look like the log's own batches and journal frames.

The attacker guesses offsets correctly and has a copy of the current journal, but does not know the salt of a file that
is being written.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

from callboard.actors.records import OffsetRecord, OffsetValue
from callboard.runtime.disk.disk import read_file
from callboard.runtime.log.format.batch import encode_batch
from callboard.runtime.log.format.encoder import RecordEncoder
from callboard.runtime.log.journal import journal_names, journal_salt, scan_journal
from callboard.runtime.log.journal_frames import FRAME_HEAD_BYTES, encode_frame
from callboard.runtime.testing.disk.faulty import FaultyDisk

FORGED = "forged"
AHEAD_MAX = 3
BATCHES_MAX = 4


def forged_batch(base_offset: int) -> bytes:
    """A batch with a forged commit."""
    record = OffsetRecord(FORGED, "t", 0, OffsetValue(666, -1, "", 5))
    return encode_batch(base_offset, 1, 1, [RecordEncoder().frame(record, 0)])


class HostilePayloads:
    """``journal``: the folder of the journal."""

    def __init__(self, random: Random, journal: Path) -> None:
        self._random = random
        self._journal = journal

    def payload(self, disk: FaultyDisk, ends: Sequence[int]) -> bytes:
        """Bytes for a client's field. ``ends``: the end offset of each partition."""
        make = self._random.choice((self._batches, self._frames, self._frames))
        copied_frame = self._copied_frame(disk) if self._random.random() < 0.3 else b""
        return copied_frame or make(ends)

    def _batches(self, ends: Sequence[int]) -> bytes:
        count = self._random.randint(1, BATCHES_MAX)
        return b"".join(self._batch(ends)[1] for _ in range(count))

    def _frames(self, ends: Sequence[int]) -> bytes:
        return b"".join(encode_frame([self._batch(ends)]) for _ in range(self._random.randint(1, BATCHES_MAX)))

    def _batch(self, ends: Sequence[int]) -> tuple[int, bytes]:
        partition = self._random.randrange(len(ends))
        return partition, forged_batch(ends[partition] + self._random.randint(0, AHEAD_MAX))

    def _copied_frame(self, disk: FaultyDisk) -> bytes:
        """A copy of a frame in one of the journal files; empty if there is none."""
        try:
            frames = self._frames_on(disk)
        except OSError:  # a fault that was injected for the log
            frames = []
        return self._random.choice(frames) if frames else b""

    def _frames_on(self, disk: FaultyDisk) -> list[bytes]:
        frames: list[bytes] = []
        for name in journal_names(disk.names(self._journal)):
            data = read_file(disk, self._journal / name)
            scan = scan_journal(data, journal_salt(name))
            frames += [data[start - FRAME_HEAD_BYTES : end] for start, end in scan.rounds]
        return frames
