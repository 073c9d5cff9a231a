"""Power losses while clients send bytes with the format of the log: these never become records.

The power is lost while a round is written or synced. Its pages, and the unsynced pages of partition files, reach the
disk in any order: the page with the header of a frame or a batch may be missing while those with a client's bytes are
there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from structlog.testing import capture_logs

from callboard.actors.ports import Appended, Entry
from callboard.actors.records import GroupRecord, GroupValue, MemberValue, OffsetRecord, Record
from callboard.runtime.disk.threads import InlineThreads
from callboard.runtime.log import journal
from callboard.runtime.log.journal_frames import SALT_BYTES
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.testing.disk.faulty import FaultyDisk, PowerLoss

from .hostile import FORGED, HostilePayloads

ROOT = Path("/data")
PARTITIONS = 2
ROUNDS_MAX = 8
IMAGES = 6  # checked outcomes of one power loss
STEP_BYTES = 4096
FLUSH_S, CHECKPOINT_S = 0.3, 70.0


class HostileRun:
    """One log until a power loss, by a seed; ``check`` checks the outcomes."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._disk = FaultyDisk(seed, sector_bytes=self._random.choice((16, 64, 512)))
        self._disk.make_folder(ROOT)
        self._disk.sync_folder(ROOT.parent)
        self._hostile = HostilePayloads(self._random, ROOT / journal.FOLDER)
        self._now_s = 0.0
        self._threads = InlineThreads()
        self._log = self._opened(self._disk)
        self._sent: dict[int, list[Record]] = {number: [] for number in range(PARTITIONS)}
        self._answered: dict[int, list[Record]] = {number: [] for number in range(PARTITIONS)}

    def _opened(self, disk: FaultyDisk) -> OffsetsLog:
        log = OffsetsLog(
            ROOT,
            PARTITIONS,
            disk=disk,
            clock=lambda: self._now_s,
            threads=InlineThreads(),
            new_salt=lambda: self._random.randbytes(SALT_BYTES),
        )
        log.open()
        return log

    def run(self) -> None:
        for _ in range(self._random.randint(1, ROUNDS_MAX)):
            self._append()
            if self._random.random() < 0.3:
                self._now_s += self._random.choice((FLUSH_S, FLUSH_S, CHECKPOINT_S))
        self._disk.faults.crash_at(self._random.randint(1, 3))
        try:
            while True:
                self._append()
                self._now_s += FLUSH_S
        except PowerLoss:
            pass

    def check(self) -> None:
        for image in range(IMAGES):
            image_disk = self._disk.crash()
            log = self._opened(image_disk)
            assert log.damages() == [], f"image {image}: a power loss must not cause damage"
            for number in range(PARTITIONS):
                records = [record for _, _, record in log.read(number)]
                forged = [
                    record for record in records if isinstance(record, OffsetRecord) and record.group_id == FORGED
                ]
                assert forged == [], f"image {image}: a client forged a record of partition {number}"
                assert records[: len(self._answered[number])] == self._answered[number], f"image {image}"
                assert records == self._sent[number][: len(records)], f"image {image}"

    def _append(self) -> None:
        entries = [self._entry(number) for number in range(PARTITIONS) if number == 0 or self._random.random() < 0.5]
        for entry in entries:
            self._sent[entry.partition] += entry.records

        def done(outcomes: Sequence[Appended]) -> None:
            if not self._disk.faults.is_off:
                for entry in entries:
                    self._answered[entry.partition] += entry.records

        self._log.append(entries, 1, done)
        if self._disk.faults.is_off:
            raise PowerLoss

    def _entry(self, partition: int) -> Entry:
        ends = [self._log.end_offset(number) for number in range(PARTITIONS)]
        payload = b"".join(self._hostile.payload(self._disk, ends) for _ in range(self._random.randint(1, 3)))
        member = MemberValue("m", None, "c", "h", 1, 1, b"s", payload)
        return Entry(partition, (GroupRecord("g", GroupValue("consumer", 1, "range", "m", 5, (member,))),))


def failure(seed: int) -> str | None:
    """The error of a run; None if it passes."""
    with capture_logs(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "ZEROS", bytes(STEP_BYTES))
        run = HostileRun(seed)
        run.run()
        try:
            run.check()
        except AssertionError as error:
            return f"seed {seed}: {error}"
    return None


if __name__ == "__main__":
    sys.exit(failure(int(sys.argv[1])))
