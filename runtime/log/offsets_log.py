"""The offsets log: the writer actor appends to it, and a coordinator loads from it.

``append`` encodes on the caller's thread and returns. The log's own thread writes one journal frame, syncs it and
calls ``done``. The same batches are written to the partition files a little later, and synced at the next checkpoint.
Opening the log replays the journal: batches that the partition files lack are written to them.

With ``threads=InlineThreads()`` everything runs on the caller's thread, always in the same order. With
``InlineThreads(choose)`` it runs only when ``step`` is called. So tests and simulations need no second thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from ...actors.ports import NO_EPOCHS, Entry
from ...actors.records import Record
from ...actors.steps import Steps
from ..common.errors import StartError
from ..disk.disk import Disk, advice_for, is_full, is_no_file_error
from ..disk.threads import OwnThreads, Threads
from .folder import FolderLock
from .folder_watch import FolderWatch
from .format.errors import Damage
from .journal import SyncPolicy, random_salt
from .journal_files import JournalSettings
from .partition import SEGMENT_MS
from .partition_counts import PartitionCounts, refuse_different_counts
from .partitions import Partitions
from .recovery.clean_stop import NOTE_NAME, read_note
from .recovery.recovery import Recovery, refuse_removed
from .rounds import DoneCallback, Round, RoundEncoder, failed_outcomes
from .stats import LogStats
from .writer import RoundWriter


class OffsetsLog:
    """All partitions of one data folder. Opened and closed once; ``append`` and ``close`` are called on one thread.

    Partition numbers from ``first_transactions_partition`` on belong to ``__transaction_state``, lower ones to
    ``__consumer_offsets``.

    ``sync``: ``done`` is called after a sync ("always"), or after a write that is synced within ``flush_interval_ms``
    ("interval") or at any later time by the operating system ("none"). Sizes are in bytes; names and defaults are
    Kafka's. ``new_salt`` returns 8 random bytes for each journal file; clients must not learn them.
    """

    def __init__(
        self,
        folder: Path,
        partitions: int,
        *,
        transactions_partitions: int = 0,
        sync: SyncPolicy = "always",
        segment_bytes: int = 104857600,
        segment_ms: int = SEGMENT_MS,
        max_message_bytes: int = 1048588,
        flush_interval_ms: int = 1000,
        checkpoint_bytes: int = 67108864,
        checkpoint_interval_ms: int = 60000,
        disk: Disk | None = None,
        clock: Callable[[], float] = time.monotonic,
        threads: Threads | None = None,
        new_salt: Callable[[], bytes] = random_salt,
        lock: FolderLock | None = None,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        """``lock``: the folder's lock, which is checked periodically. ``on_lost`` is called in the log's thread."""
        self._disk = disk or Disk()
        self._folder = folder
        self.first_transactions_partition = partitions
        self._partitions = Partitions(
            self._disk, folder, partitions, segment_bytes, transactions_partitions, segment_ms=segment_ms
        )
        settings = JournalSettings(sync, flush_interval_ms / 1000, checkpoint_bytes, checkpoint_interval_ms / 1000)
        self._threads = threads or OwnThreads()
        self._watch = FolderWatch(self._disk, folder, lock, on_lost)
        self._new_salt = new_salt
        self._work = RoundWriter(
            self._disk, folder, self._partitions, settings, clock, self._threads, new_salt, self._watch
        )
        self._end_offsets = [0] * len(self._partitions)
        durability = "synced" if sync == "always" else "written"
        self._encoder = RoundEncoder(self._end_offsets, max_message_bytes, durability)
        self._is_open = self._was_opened = False

    def open(self) -> None:
        """Recover the folder's content and accept rounds from now on. Blocks. Raises StartError when that fails."""
        try:
            self._disk.make_folder(self._folder)
            self._read_note()
            refuse_removed(self._disk, self._folder, self._partitions)
            recovery = Recovery(self._disk, self._folder, self._partitions, self._threads, self._new_salt)
            self._work.create_journal(recovery.run())
            self._work.start()
        except OSError as error:
            self._release()
            if is_no_file_error(error):
                raise StartError(str(error.strerror)) from error
            advice = advice_for(error) + ("; nothing is lost" if is_full(error) else "")
            raise StartError(f"{self._folder}: {error}, expected a folder to read and write; {advice}") from error
        except StartError:
            self._release()
            raise
        self._end_offsets[:] = [partition.end_offset for partition in self._partitions]
        self._is_open = self._was_opened = True

    def _read_note(self) -> None:
        note = read_note(self._disk, self._folder)
        if note.counts is not None:
            refuse_different_counts(self._folder, self._partitions.counts, self._folder / NOTE_NAME, note.counts)
        self._partitions.expect_ends(note.ends)

    def _release(self) -> None:
        self._watch.close()
        self._partitions.close()
        self._threads.close()

    def append(
        self,
        entries: Sequence[Entry],
        timestamp_ms: int,
        done: DoneCallback,
        _epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> None:
        """See ``actors.ports.Log``. No other node writes these files, so epochs do not matter.

        Entries of one partition keep their order; no entry is split between two batches.

        Outcomes: MESSAGE_TOO_LARGE for an entry that alone exceeds ``max_message_bytes``, UNKNOWN_SERVER_ERROR for
        one that does not fit Kafka's schema, COORDINATOR_NOT_AVAILABLE for all entries while the disk is full,
        KAFKA_STORAGE_ERROR for all entries once the journal has failed or after ``close``.
        """
        self._encoder.restart_at(*self._work.reset)
        self._put(self._encoder.encode(entries, timestamp_ms, done))

    def append_in_steps(
        self,
        entries: Sequence[Entry],
        timestamp_ms: int,
        done: DoneCallback,
        _epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> Steps[None]:
        """See ``actors.ports.Log`` and ``append``."""
        self._encoder.restart_at(*self._work.reset)
        self._put((yield from self._encoder.encode_in_steps(entries, timestamp_ms, done)))

    def _put(self, round_: Round) -> None:
        if self._is_open:
            self._work.put(round_)
        else:
            round_.done(failed_outcomes(round_.outcomes))

    def read(self, partition: int) -> Iterator[tuple[int, int, Record]]:
        """Offset, timestamp in ms and record of everything acknowledged so far, oldest first.

        Waits for the log's thread, so it must not be called from ``done``. Raises OSError when the partition's file
        has failed, or when it is incomplete because the disk is full.
        """
        read = partial(self._partitions.read, partition)
        return self._work.call_after_flush(read) if self._is_open else read()

    @property
    def counts(self) -> PartitionCounts:
        """The number of partitions of each topic."""
        return self._partitions.counts

    def offsets_partitions_with_data(self) -> list[int]:
        """The partitions of ``__consumer_offsets`` that have at least one record, written or in progress."""
        return [number for number in self._numbers_with_data() if number < self.first_transactions_partition]

    def transactions_partitions_with_data(self) -> list[int]:
        """The partitions of ``__transaction_state`` that have at least one record, written or in progress."""
        return [number for number in self._numbers_with_data() if number >= self.first_transactions_partition]

    def _numbers_with_data(self) -> Iterator[int]:
        return (number for number, end_offset in enumerate(self._end_offsets) if end_offset > 0)

    def end_offset(self, partition: int) -> int:
        """The offset that the partition's next record will get."""
        return self._end_offsets[partition]

    def stats(self) -> LogStats:
        """Counts and state, from any thread; all zero before the log is opened."""
        return self._work.stats() if self._was_opened else LogStats()

    def may_write_folder(self) -> bool:
        """Whether the data folder is still at its path, and no other process can be writing to it."""
        return not self._was_opened or self._watch.is_writable()

    def add_damage(self, damage: Damage) -> None:
        """Register damage that was found by another reader of the log's files."""
        self._partitions.damage_registry.add(damage)

    def damages(self) -> list[Damage]:
        """The damage found since the log was opened, by file and position. From any thread."""
        return self._partitions.damage_registry.damages()

    def check(self) -> None:
        """Assert the invariants of an open log, while no work runs: for tests. Does not touch the files."""
        if self._is_open:
            self._work.check()

    def close(self) -> None:
        """Finish all appended rounds and make them durable in the partition files. A second call does nothing."""
        if self._is_open:
            self._is_open = False
            self._work.close()

    def halt(self) -> None:
        """Stop as if the process died now: unacknowledged rounds may be lost, and the next start has to recover."""
        if self._is_open:
            self._is_open = False
            self._work.halt()
