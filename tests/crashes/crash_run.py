"""A crash run: one log is opened several times on one disk; each time ends with a crash, a kill or a stop.

Everything runs on one thread, in an order chosen by the seed: rounds, their follow-up work, checkpoint jobs. The seed
also chooses the change of the disk at which the power is lost, which may be during opening or closing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from structlog.testing import capture_logs

from callboard.actors.ports import Appended, Entry
from callboard.runtime.disk.threads import InlineThreads
from callboard.runtime.log import journal
from callboard.runtime.log.journal import SyncPolicy
from callboard.runtime.log.journal_frames import SALT_BYTES
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.log.partition import TRANSACTIONS_TOPIC, folder_name
from callboard.runtime.log.stats import LogStats
from callboard.runtime.testing.disk.faulty import FaultyDisk, PowerLoss

from .compacting import Compaction, read_plain_names
from .disk_faults import DiskFaults
from .entries import EntryGenerator
from .hostile import HostilePayloads
from .model import LogRecord, ModelViolation, PartitionModel, SentEntry

ROOT = Path("/data")
FLUSH_INTERVAL_MS = 1000
CHECKPOINT_INTERVAL_MS = 60000
PASSED_SECONDS = (0.01, 0.3, 2.0, 70.0, 7200.0, 200_000.0)
"""Due after each, in addition: nothing, a flush, a sync, a checkpoint, publishing, removal of files of a crash."""

START_MS = 1_700_000_000_000
LIVES_MAX = 5
ACTIONS_MAX = 25
CRASH_SHARE = 0.8  # of the lives
KILL_SHARE = 0.25  # of the ends
EARLY_CRASH_MAX, LATE_CRASH_MAX = 40, 200  # changes of the disk until the power loss
FAULT_SHARE = 0.3  # of the lives
IMAGES = 1  # checked outcomes of a power loss, in addition to that with which the run continues


class RunPlan(NamedTuple):
    """The parameters of a whole run, chosen by the seed."""

    sync: SyncPolicy
    offsets: int
    transactions: int
    segment_bytes: int
    segment_ms: int
    checkpoint_bytes: int
    max_message_bytes: int
    step_bytes: int
    sector_bytes: int
    compactions: int  # relative weight; that of all other actions is 17

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
    """The run of one seed. ``story``: its events, line by line."""

    entries: type[EntryGenerator] = EntryGenerator
    model: type[PartitionModel] = PartitionModel

    def __init__(self, seed: int) -> None:
        self.story: list[str] = []
        self._random = Random(seed)
        self._salts = Random(seed)  # separate, so that salts depend only on the number of times a log is opened
        self.plan = plan = RunPlan.chosen(self._random)
        self._hostile = HostilePayloads(self._random, ROOT / journal.FOLDER)
        self._entries = self.entries(self._random, plan.offsets, plan.transactions, self._hostile_bytes)
        self._models = [self.model(number) for number in range(plan.offsets + plan.transactions)]
        self._folders = [ROOT / folder_name(number) for number in range(plan.offsets)]
        self._folders += [ROOT / folder_name(number, TRANSACTIONS_TOPIC) for number in range(plan.transactions)]
        self._disk = FaultyDisk(seed, sector_bytes=plan.sector_bytes)
        self._disk.faults.on_change = lambda operation, path: self.story.append(f"    {operation} {path}")
        self._disk.make_folder(ROOT)
        self._disk.sync_folder(ROOT.parent)  # as DataFolder does
        self._is_intact = True  # no power loss since the models' entries were appended
        self._now_s = 0.0
        self._timestamp_ms = 0
        self._log: OffsetsLog
        self._stats: Callable[[], LogStats] = LogStats  # those of the log, once it is open
        self._threads: InlineThreads
        self._compaction: Compaction
        self._faults: DiskFaults

    def run(self) -> None:
        """Raises ModelViolation, or an error of the log, if something is wrong."""
        self._add_to_story(str(self.plan))
        with capture_logs(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(journal, "ZEROS", bytes(self.plan.step_bytes))
            for number in range(self._random.randint(2, LIVES_MAX)):
                self._add_to_story(f"life {number}")
                self._run_life()
            self._add_to_story("the end")
            self._check(self._disk, self._models, self._is_intact)

    def _run_life(self) -> None:
        if self._random.random() < CRASH_SHARE:
            self._disk.faults.crash_at(self._random.randint(1, self._random.choice((EARLY_CRASH_MAX, LATE_CRASH_MAX))))
        self._compaction = Compaction(self._random, self._disk, self._models, self._folders)
        self._faults = DiskFaults(self._random, self._disk, FAULT_SHARE)
        try:
            self._open()
            for _ in range(self._random.randrange(ACTIONS_MAX)):
                self._do_action()
            if self._random.random() < 0.5:
                self._close()
        except PowerLoss:
            self._add_to_story("power loss")
        self._end()

    # Actions ---------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self._stats = LogStats
        self._log, self._threads = self._opened(self._disk, InlineThreads(self._random.randrange))
        self._stats = self._log.stats
        settle(self._log, self._models, self._is_intact)
        self._is_intact = True
        self._add_to_story(f"opened with {[len(model.settled) for model in self._models]} records")

    def _opened(self, disk: FaultyDisk, threads: InlineThreads) -> tuple[OffsetsLog, InlineThreads]:
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
        if log.damages():
            raise ModelViolation(f"a crash must not cause damage, but the log reports {log.damages()}")
        return log, threads

    def _do_action(self) -> None:
        if line := self._faults.inject():
            self._add_to_story(line)
        (action,) = self._random.choices(
            (self._append, self._pass_time, self._run_all_steps, self._read, self._compact),
            (12, 3, 1, 1, self.plan.compactions),
        )
        with power_loss_when_off(self._disk):
            action()
        self._log.check()

    def _append(self) -> None:
        self._timestamp_ms = max(self._timestamp_ms + 1, self._wall_ms())
        entries = [self._entries.next() for _ in range(self._random.randint(1, 4))]
        entries = list({(entry.partition, entry.records[0]): entry for entry in entries}.values())
        self._add_to_story(
            f"append {self._timestamp_ms}: {[(entry.partition, len(entry.records)) for entry in entries]}"
        )
        sent = [self._sent(entry) for entry in entries]
        self._log.append(entries, self._timestamp_ms, lambda outcomes: self._handle_outcomes(sent, outcomes))
        for _ in range(self._random.choice((0, 1, 2, 10))):
            self._threads.step()

    def _hostile_bytes(self) -> bytes:
        ends = [self._log.end_offset(model.number) for model in self._models]
        return self._hostile.payload(self._disk, ends)

    def _sent(self, entry: Entry) -> tuple[PartitionModel, SentEntry]:
        model = self._models[entry.partition]
        model.sent.append(SentEntry(self._timestamp_ms, entry.records))
        return model, model.sent[-1]

    def _handle_outcomes(self, sent: Sequence[tuple[PartitionModel, SentEntry]], outcomes: Sequence[Appended]) -> None:
        """Outcomes after a power loss are ignored, because they reach no client."""
        if self._disk.faults.is_off:
            return
        results = [(outcome.error.name, outcome.base_offset) for outcome in outcomes]
        self._add_to_story(f"acknowledged {sent[0][1].timestamp_ms}: {results}")
        for (model, entry), outcome in zip(sent, outcomes, strict=True):
            model.handle_outcome(entry, outcome, self.plan.sync == "always")

    def _pass_time(self) -> None:
        """With the policy ``interval``, acknowledged entries are safe after a flush interval and a run of the log."""
        self._run_all_steps()
        seconds = self._random.choice(PASSED_SECONDS)
        self._add_to_story(f"advance by {seconds} s")
        self._now_s += seconds
        self._run_all_steps()
        if self.plan.sync == "interval" and seconds * 1000 >= FLUSH_INTERVAL_MS and not self._faults.has_occurred:
            self._mark_all_safe()

    def _run_all_steps(self) -> None:
        while self._threads.step():
            pass

    def _read(self) -> None:
        for model in self._models:
            try:
                records = [LogRecord(*item) for item in self._log.read(model.number)]
            except OSError:
                if self._faults.has_occurred:
                    continue
                raise
            if not self._disk.faults.is_off:
                model.check_read(records)

    def _close(self) -> None:
        self._add_to_story("closes")
        with power_loss_when_off(self._disk):
            self._log.close()
        if not self._faults.has_occurred:
            self._mark_all_safe()
        self._add_to_story("closed")

    def _mark_all_safe(self) -> None:
        for model in self._models:
            model.mark_safe()

    # Ends ------------------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """A kill leaves all written data, durable or not; after a power loss only durable data is certain."""
        self._disk.capacity_bytes = inf
        if self._random.random() < KILL_SHARE:
            self._add_to_story("killed")
            self._disk = self._disk.kill()
            self._is_intact = self._is_intact and not self._has_lost_both_copies()
            return
        for number in range(IMAGES):
            self._add_to_story(f"image {number}")
            self._check(self._disk.crash(), [model.copy() for model in self._models], False)
        self._add_to_story("the image to continue with")
        self._disk = self._disk.crash()
        self._is_intact = False

    def _has_lost_both_copies(self) -> bool:
        """Whether only memory has some rounds: the journal has failed, and they are not in the partition files yet.

        A failed sync drops what it should have written. With the policy "always" a round is acknowledged after its
        sync, so the journal has it in any case.
        """
        stats = self._stats()
        is_partition_failed = any(partition.failure for partition in stats.partitions)
        return bool(stats.failure) and (stats.waiting_bytes > 0 or is_partition_failed)

    def _check(self, disk: FaultyDisk, models: list[PartitionModel], is_intact: bool) -> None:
        log, _ = self._opened(disk, InlineThreads())
        settle(log, models, is_intact)
        for model, folder in zip(models, self._folders, strict=True):
            if model.compacted_end:
                model.check_read(list(read_plain_names(disk, folder)))

    def _compact(self) -> None:
        if line := self._compaction.step(self._wall_ms(), self._faults.has_occurred):
            self._add_to_story(line)

    def _wall_ms(self) -> int:
        return START_MS + round(self._now_s * 1000)

    def _add_to_story(self, line: str) -> None:
        self.story.append(line)


def settle(log: OffsetsLog, models: list[PartitionModel], is_intact: bool) -> None:
    for model in models:
        model.settle([LogRecord(*records) for records in log.read(model.number)], is_intact)


@contextmanager
def power_loss_when_off(disk: FaultyDisk) -> Iterator[None]:
    """Raise PowerLoss if the disk is off, even if the log has handled the disk's error."""
    try:
        yield
    except Exception:
        if disk.faults.is_off:
            raise PowerLoss from None
        raise
    if disk.faults.is_off:
        raise PowerLoss
