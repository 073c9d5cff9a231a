"""The offsets log: what the writer actor appends to and what a coordinator loads from.

``append`` encodes on the caller's thread and returns; a thread of the log's own writes one journal frame, syncs it and
calls ``done``; the partition files get the same batches a little later, and a sync at the next checkpoint. Opening
lays into them what the journal holds and they do not.

With ``threads=InlineThreads()`` everything happens on the caller's thread and in the same order every time; with
``InlineThreads(choose)`` only when ``step`` is called. So tests and simulations need no second thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from ...actors.ports import Entry
from ...actors.records import Record
from ..common.errors import StartError
from ..disk.disk import Disk, is_full, is_symlink_error
from ..disk.threads import OwnThreads, Threads
from .counts import Counts, refuse_other_counts
from .folder import FolderLock
from .folder_watch import FolderWatch
from .format.errors import Damage
from .journal import SyncPolicy, random_salt
from .journal_files import Settings
from .partition import SEGMENT_MS
from .partitions import Partitions
from .recovery.clean_stop import NAME as NOTE
from .recovery.clean_stop import read_note
from .recovery.recovery import Recovery, refuse_removed
from .rounds import Done, RoundEncoder, failed
from .stats import LogStats
from .writer import RoundWork


class OffsetsLog:
    """All partitions of one data folder, opened and closed once; ``append`` and ``close`` on one thread.

    Partition numbers from ``first_transactions_partition`` on are those of ``__transaction_state``, the others are of
    ``__consumer_offsets``.

    ``sync``: ``done`` is called after a sync ("always"), or after a write that is synced within ``flush_interval_ms``
    ("interval") or when the system likes ("none"). Sizes are bytes; Kafka's names and defaults. ``new_salt`` gives 8
    random bytes for each journal file, which no client may know.
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
        """``lock``: that of the folder, which is looked at now and then; ``on_lost`` is called in the log's thread."""
        self._disk = disk or Disk()
        self._folder = folder
        self.first_transactions_partition = partitions
        self._partitions = Partitions(
            self._disk, folder, partitions, segment_bytes, transactions_partitions, segment_ms=segment_ms
        )
        settings = Settings(sync, flush_interval_ms / 1000, checkpoint_bytes, checkpoint_interval_ms / 1000)
        self._threads = threads or OwnThreads()
        self._watch = FolderWatch(self._disk, folder, lock, on_lost)
        self._new_salt = new_salt
        self._work = RoundWork(
            self._disk, folder, self._partitions, settings, clock, self._threads, new_salt, self._watch
        )
        self._end_offsets = [0] * len(self._partitions)
        durability = "synced" if sync == "always" else "written"
        self._encoder = RoundEncoder(self._end_offsets, max_message_bytes, durability)
        self._is_open = self._was_opened = False

    def open(self) -> None:
        """Recover what is there and make ready for rounds. Blocks. StartError when that is not possible."""
        try:
            self._disk.make_folder(self._folder)
            self._read_note()
            refuse_removed(self._disk, self._folder, self._partitions)
            recovery = Recovery(self._disk, self._folder, self._partitions, self._threads, self._new_salt)
            self._work.begin_journal(recovery.run())
            self._work.start()
        except OSError as error:
            self._give_up()
            if is_symlink_error(error):
                raise StartError(str(error.strerror)) from error
            advice = "change its owner" if isinstance(error, PermissionError) else "check the disk"
            if is_full(error):
                advice = "make room and start again; nothing is lost"
            raise StartError(f"{self._folder}: {error}, expected a folder to read and write; {advice}") from error
        except StartError:
            self._give_up()
            raise
        self._end_offsets[:] = [partition.end_offset for partition in self._partitions]
        self._is_open = self._was_opened = True

    def _read_note(self) -> None:
        note = read_note(self._disk, self._folder)
        if note.counts is not None:
            refuse_other_counts(self._folder, self._partitions.counts, self._folder / NOTE, note.counts)
        self._partitions.expect(note.ends)

    def _give_up(self) -> None:
        self._watch.close()
        self._partitions.close()
        self._threads.close()

    def append(self, entries: Sequence[Entry], timestamp_ms: int, done: Done) -> None:
        """See ``actors.ports.Log``. Entries of one partition keep their order; none is split between two batches.

        Outcomes: MESSAGE_TOO_LARGE for an entry that alone exceeds ``max_message_bytes``, UNKNOWN_SERVER_ERROR for
        one that Kafka's schema cannot hold, COORDINATOR_NOT_AVAILABLE for all while the disk is full,
        KAFKA_STORAGE_ERROR for all once the journal has failed or after ``close``.
        """
        self._encoder.begin_anew(*self._work.reset)
        item = self._encoder.encode(entries, timestamp_ms, done)
        if self._is_open:
            self._work.put(item)
        else:
            done(failed(item.outcomes))

    def read(self, partition: int) -> Iterator[tuple[int, int, Record]]:
        """Offset, timestamp in ms and record of everything answered so far, oldest first.

        Waits for the log's thread, so not from within ``done``. OSError when the partition's file has failed, or the
        disk is full and some of it is not there.
        """
        read = partial(self._partitions.read, partition)
        return self._work.call_settled(read) if self._is_open else read()

    @property
    def counts(self) -> Counts:
        """How many partitions both topics have."""
        return self._partitions.counts

    def partitions_with_data(self) -> list[int]:
        """The offsets partitions that hold, or are about to hold, at least one record."""
        return [number for number in self._with_data() if number < self.first_transactions_partition]

    def transactions_with_data(self) -> list[int]:
        """The same for the partitions of transactions."""
        return [number for number in self._with_data() if number >= self.first_transactions_partition]

    def _with_data(self) -> Iterator[int]:
        return (number for number, end_offset in enumerate(self._end_offsets) if end_offset > 0)

    def end_offset(self, partition: int) -> int:
        """The offset that the partition's next record will get."""
        return self._end_offsets[partition]

    def stats(self) -> LogStats:
        """What it has done and how it is, from any thread; nothing yet before it is open."""
        return self._work.stats() if self._was_opened else LogStats()

    def may_write_folder(self) -> bool:
        """Whether the data folder is still there, and no other process can be writing to it."""
        return not self._was_opened or self._watch.is_writable()

    def note_damage(self, damage: Damage) -> None:
        """Somebody who read the log's files beside it has found this."""
        self._partitions.quarantine.add(damage)

    def quarantined(self) -> list[Damage]:
        """The damages that were found since the log was opened, by file and position. From any thread."""
        return self._partitions.quarantine.damages()

    def close(self) -> None:
        """Finish what was appended and make it durable in the partition files. A second call does nothing."""
        if self._is_open:
            self._is_open = False
            self._work.close()

    def halt(self) -> None:
        """As if the process died now: what was not answered yet may be lost, and the next start has to recover."""
        if self._is_open:
            self._is_open = False
            self._work.halt()
