"""A run: several lives of one log on one disk, each of which ends in a crash, a kill or a stop; a seed says how.

Everything happens on one thread, in an order that the seed chooses: rounds, the work that they leave behind, the
checkpoint's jobs. The power goes at a change of the disk that the seed chooses too, opening and closing included.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from structlog.testing import capture_logs

from callboard.actors.ports import Appended, Entry
from callboard.runtime.disk.faulty import FaultyDisk, PowerLoss
from callboard.runtime.disk.threads import Inline
from callboard.runtime.log import journal
from callboard.runtime.log.journal import SyncPolicy
from callboard.runtime.log.journal_frames import SALT_BYTES
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.log.partition import TRANSACTIONS_TOPIC, folder_name

from .compacting import Compaction, read_plain_names
from .entries import EntryGenerator
from .hostile import HostilePayloads
from .model import LogRecord, ModelViolation, PartitionModel, SentEntry
from .trouble import DiskFaults

ROOT = Path("/data")
FLUSH_INTERVAL_MS = 1000
CHECKPOINT_INTERVAL_MS = 60000
SECONDS = (0.01, 0.3, 2.0, 70.0, 7200.0, 200_000.0)
"""Nothing is due, laying in, a flush, a checkpoint, publishing what was compacted, collecting what a crash has left."""

START_MS = 1_700_000_000_000
LIVES_MAX = 5
ACTIONS_MAX = 25
CRASH_SHARE = 0.8  # of the lives; the others come to their end
KILL_SHARE = 0.25  # of the ends
EARLY, LATE = 40, 200  # changes of the disk until the power goes
TROUBLE_SHARE = 0.3  # of the lives that meet errors
IMAGES = 1  # outcomes of a loss of power that are looked at, besides the one that is lived on


class RunPlan(NamedTuple):
    """What a seed chooses for a whole run."""

    sync: SyncPolicy
    offsets: int
    transactions: int
    segment_bytes: int
    segment_ms: int
    checkpoint_bytes: int
    max_message_bytes: int
    step_bytes: int
    sector_bytes: int
    compactions: int  # how often there is one, against 17 other things

    @classmethod
    def chosen(cls, random: Random) -> RunPlan:
        return cls(
            random.choices(("always", "interval", "none"), (6, 2, 2))[0],
            random.randint(1, 3),
            random.randint(0, 2),
            random.choice((1, 300, 600, 1500, 100_000)),
            random.choice((1000, 60_000, 604_800_000)),
            random.choice((1, 500, 2000, 100_000)),
            random.choice((700, 1500, 100_000)),
            random.choice((64, 512, 4096)),
            random.choice((16, 64, 512, 4096)),
            random.choice((0, 4, 20)),
        )


class CrashRun:
    """The lives of one seed. ``story`` is what happened, line by line."""

    def __init__(self, seed: int) -> None:
        self.story: list[str] = []
        self._random = Random(seed)
        self._salts = Random(seed)  # of its own: they depend on how often a log is opened, and on nothing else
        self.plan = plan = RunPlan.chosen(self._random)
        self._hostile = HostilePayloads(self._random, ROOT / journal.FOLDER)
        self._entries = EntryGenerator(self._random, plan.offsets, plan.transactions, self._hostile_bytes)
        self._models = [PartitionModel(number) for number in range(plan.offsets + plan.transactions)]
        self._folders = [ROOT / folder_name(number) for number in range(plan.offsets)]
        self._folders += [ROOT / folder_name(number, TRANSACTIONS_TOPIC) for number in range(plan.transactions)]
        self._disk = FaultyDisk(seed, sector_bytes=plan.sector_bytes, wall_ms=self._wall_ms)
        self._disk.watch = lambda operation, path: self.story.append(f"    {operation} {path}")
        self._disk.make_folder(ROOT)
        self._disk.sync_folder(ROOT.parent)  # as DataFolder does
        self._is_intact = True  # no loss of power since what the models know was appended
        self._now_s = 0.0
        self._timestamp_ms = 0
        self._log: OffsetsLog
        self._threads: Inline
        self._compaction: Compaction
        self._trouble: DiskFaults

    def run(self) -> None:
        """``ModelViolation``, or what the log raises, when something is amiss."""
        self._tell(str(self.plan))
        with capture_logs(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(journal, "ZEROS", bytes(self.plan.step_bytes))
            for number in range(self._random.randint(2, LIVES_MAX)):
                self._tell(f"life {number}")
                self._life()
            self._tell("the end")
            self._check(self._disk, self._models, self._is_intact)

    def _life(self) -> None:
        if self._random.random() < CRASH_SHARE:
            self._disk.crash_at(self._random.randint(1, self._random.choice((EARLY, LATE))))
        self._compaction = Compaction(self._random, self._disk, self._models, self._folders)
        self._trouble = DiskFaults(self._random, self._disk, TROUBLE_SHARE)
        try:
            self._open()
            for _ in range(self._random.randrange(ACTIONS_MAX)):
                self._act()
            if self._random.random() < 0.5:
                self._close()
        except PowerLoss:
            self._tell("the power goes")
        self._end()

    # Actions ---------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self._log, self._threads = self._opened(self._disk, Inline(self._random.randrange))
        settle(self._log, self._models, self._is_intact)
        self._is_intact = True
        self._tell(f"opened with {[len(model.settled) for model in self._models]} records")

    def _opened(self, disk: FaultyDisk, threads: Inline) -> tuple[OffsetsLog, Inline]:
        log = OffsetsLog(
            ROOT,
            self.plan.offsets,
            transactions_partitions=self.plan.transactions,
            sync=self.plan.sync,
            segment_bytes=self.plan.segment_bytes,
            segment_ms=self.plan.segment_ms,
            max_message_bytes=self.plan.max_message_bytes,
            flush_interval_ms=FLUSH_INTERVAL_MS,
            checkpoint_bytes=self.plan.checkpoint_bytes,
            checkpoint_interval_ms=CHECKPOINT_INTERVAL_MS,
            disk=disk,
            clock=lambda: self._now_s,
            threads=threads,
            new_salt=lambda: self._salts.randbytes(SALT_BYTES),
        )
        with power_loss_when_off(disk):
            log.open()
        if log.quarantined():
            raise ModelViolation(f"a crash is no damage, but the log says so: {log.quarantined()}")
        return log, threads

    def _act(self) -> None:
        if came := self._trouble.inject():
            self._tell(came)
        (action,) = self._random.choices(
            (self._append, self._pass_time, self._drain, self._read, self._compact),
            (12, 3, 1, 1, self.plan.compactions),
        )
        with power_loss_when_off(self._disk):
            action()

    def _append(self) -> None:
        self._timestamp_ms = max(self._timestamp_ms + 1, self._wall_ms())
        entries = [self._entries.next() for _ in range(self._random.randint(1, 4))]
        entries = list({(entry.partition, entry.records[0]): entry for entry in entries}.values())
        self._tell(f"append {self._timestamp_ms}: {[(entry.partition, len(entry.records)) for entry in entries]}")
        sent = [self._sent(entry) for entry in entries]
        self._log.append(entries, self._timestamp_ms, lambda outcomes: self._done(sent, outcomes))
        for _ in range(self._random.choice((0, 1, 2, 10))):
            self._threads.step()

    def _hostile_bytes(self) -> bytes:
        ends = [self._log.end_offset(model.number) for model in self._models]
        return self._hostile.payload(self._disk, ends)

    def _sent(self, entry: Entry) -> tuple[PartitionModel, SentEntry]:
        model = self._models[entry.partition]
        model.sent.append(SentEntry(self._timestamp_ms, entry.records))
        return model, model.sent[-1]

    def _done(self, sent: Sequence[tuple[PartitionModel, SentEntry]], outcomes: Sequence[Appended]) -> None:
        """What is said after the power has gone reaches nobody."""
        if self._disk.is_off:
            return
        self._tell(f"answered {sent[0][1].timestamp_ms}: {[(each.error.name, each.base_offset) for each in outcomes]}")
        for (model, one), outcome in zip(sent, outcomes, strict=True):
            model.answered(one, outcome, self.plan.sync == "always")

    def _pass_time(self) -> None:
        """What was answered a flush interval ago is safe by the policy ``interval``, if the log has had its turns."""
        self._drain()
        seconds = self._random.choice(SECONDS)
        self._tell(f"{seconds} s pass")
        self._now_s += seconds
        self._drain()
        if self.plan.sync == "interval" and seconds * 1000 >= FLUSH_INTERVAL_MS and not self._trouble.has_occurred:
            self._all_safe()

    def _drain(self) -> None:
        while self._threads.step():
            pass

    def _read(self) -> None:
        for model in self._models:
            try:
                found = [LogRecord(*each) for each in self._log.read(model.number)]
            except OSError:
                if self._trouble.has_occurred:
                    continue
                raise
            if not self._disk.is_off:
                model.check_read(found)

    def _close(self) -> None:
        self._tell("closes")
        with power_loss_when_off(self._disk):
            self._log.close()
        if not self._trouble.has_occurred:
            self._all_safe()
        self._tell("closed")

    def _all_safe(self) -> None:
        for model in self._models:
            model.mark_safe()

    # Ends ------------------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """A process that was killed leaves everything that it wrote, but that is not durable for it."""
        self._disk.capacity_bytes = inf
        if self._random.random() < KILL_SHARE:
            self._tell("killed")
            self._disk = self._disk.kill()
            return
        for number in range(IMAGES):
            self._tell(f"image {number}")
            self._check(self._disk.crash(), [model.copy() for model in self._models], False)
        self._tell("the image to live on")
        self._disk = self._disk.crash()
        self._is_intact = False

    def _check(self, disk: FaultyDisk, models: list[PartitionModel], is_intact: bool) -> None:
        log, _ = self._opened(disk, Inline())
        settle(log, models, is_intact)
        for model, folder in zip(models, self._folders, strict=True):
            if model.compacted_end:
                model.check_read(list(read_plain_names(disk, folder)))

    def _compact(self) -> None:
        if came := self._compaction.step(self._wall_ms(), self._trouble.has_occurred):
            self._tell(came)

    def _wall_ms(self) -> int:
        return START_MS + round(self._now_s * 1000)

    def _tell(self, line: str) -> None:
        self.story.append(line)


def settle(log: OffsetsLog, models: list[PartitionModel], is_intact: bool) -> None:
    for model in models:
        model.settle([LogRecord(*found) for found in log.read(model.number)], is_intact)


@contextmanager
def power_loss_when_off(disk: FaultyDisk) -> Iterator[None]:
    """Whatever became of the error that the log was given: a process without power does nothing more."""
    try:
        yield
    except Exception:
        if disk.is_off:
            raise PowerLoss from None
        raise
    if disk.is_off:
        raise PowerLoss
