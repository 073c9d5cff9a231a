"""What a compaction may remove: one key, one producer, the owner's checkpoints, and compactors that are not the owner.

Each compactor reads the closed segments, cleans them as the kernel does, and creates the next manifest if those
segments still come first. A reader that follows the log learns of each deletion, if it reads at least once in the time
for which a tombstone stays. Time is counted in ticks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .mistakes import Mistake
from .search import Step, replaced

RETENTION = 1
"""Ticks for which a tombstone stays after the first compaction that reads it."""
COMPACTORS = 2
VALUE, TOMBSTONE, PENDING, COMMIT, ABORT = range(5)
NAMES = ("a value", "a tombstone", "a value in a transaction", "a commit", "an abort")
TOMBSTONES_REMOVED = (Mistake.TOMBSTONE_AT_ONCE, Mistake.OLDER_SEGMENTS_LEFT)
NOTHING = 0
"""No record: offsets begin at 1."""


class Record(NamedTuple):
    """``horizon``: the tick from which on a tombstone may be removed; 0: no compaction has read it."""

    offset: int
    kind: int
    horizon: int = 0


class Segment(NamedTuple):
    is_compacted: bool
    records: tuple[Record, ...]


class Content(NamedTuple):
    """What a reader has found. ``live`` and ``newest``: offsets of the value, and of the newest decided record."""

    live: int = NOTHING
    newest: int = NOTHING
    pending: int = NOTHING

    def with_record(self, record: Record) -> Content:
        if record.kind == PENDING:
            return self._replace(pending=record.offset)
        if record.kind in (COMMIT, ABORT):
            decided = self._replace(pending=NOTHING)
            if record.kind == COMMIT and self.pending > self.newest:
                return decided._replace(live=self.pending, newest=self.pending)
            return decided
        live = record.offset if record.kind == VALUE else NOTHING
        return self._replace(live=live, newest=record.offset)


class Reader(NamedTuple):
    """``offset``: the next one. ``read``: the tick of its last read."""

    offset: int
    read: int
    content: Content


class Compaction(NamedTuple):
    """``read``: the segments that were read. ``cleaned``: what replaces them."""

    read: tuple[Segment, ...] = ()
    cleaned: Segment = Segment(True, ())


class Budgets(NamedTuple):
    appends: int
    checkpoints: int
    compactions: int
    ticks: int


class CleaningState(NamedTuple):
    """``content``: of all records that were ever appended. ``wal``: those in no segment."""

    segments: tuple[Segment, ...]
    wal: tuple[Record, ...]
    content: Content
    end: int
    tick: int
    reader: Reader
    compactions: tuple[Compaction, ...]
    budgets: Budgets

    def spent(self, budget: str) -> CleaningState:
        return self._replace(budgets=self.budgets._replace(**{budget: getattr(self.budgets, budget) - 1}))


class CleaningModel:
    def __init__(
        self,
        mistake: Mistake | None = None,
        appends: int = 3,
        checkpoints: int = 2,
        compactions: int = 2,
        ticks: int = 2,
    ) -> None:
        self._mistake = mistake
        self._budgets = Budgets(appends, checkpoints, compactions, ticks)

    def first_state(self) -> CleaningState:
        reader = Reader(0, 0, Content())
        return CleaningState((), (), Content(), 1, 0, reader, (Compaction(),) * COMPACTORS, self._budgets)

    def violation(self, state: CleaningState) -> str:
        found, end = Content(), 0
        for record in (*records_of(state.segments), *state.wal):
            if record.offset < end:
                return "I5: a record is twice in the log"
            found, end = found.with_record(record), record.offset + 1
        if (found.live, found.pending) != (state.content.live, state.content.pending):
            return "I1: who loads the partition finds other offsets than were acknowledged"
        return ""

    def stuck(self, state: CleaningState) -> str:
        """Not asked here."""
        return ""

    def steps(self, state: CleaningState) -> Iterator[Step]:
        if state.budgets.appends:
            yield from self._appends(state)
        if state.budgets.checkpoints and state.wal:
            yield self._checkpoint(state)
        for compactor, compaction in enumerate(state.compactions):
            if compaction.read:
                yield self._create(state, compactor)
            elif state.budgets.compactions:
                yield from self._read(state, compactor)
        if state.budgets.ticks:
            yield Step(("time passes",), state.spent("ticks")._replace(tick=state.tick + 1))
        if state.reader.offset < self._stored_end(state):
            yield self._follow(state)

    # The owner -------------------------------------------------------------------------------------------------------

    def _appends(self, state: CleaningState) -> Iterator[Step]:
        is_open = state.content.pending != NOTHING
        for kind in (VALUE, TOMBSTONE, *((COMMIT, ABORT) if is_open else (PENDING,))):
            record = Record(state.end, kind)
            following = state.spent("appends")._replace(
                wal=(*state.wal, record), content=state.content.with_record(record), end=state.end + 1
            )
            yield Step((f"the owner appends {NAMES[kind]} at {{}}", state.end), following)

    def _checkpoint(self, state: CleaningState) -> Step:
        segment = Segment(False, state.wal)
        following = state.spent("checkpoints")._replace(segments=(*state.segments, segment), wal=())
        return Step(("the owner's checkpoint: segment {}", len(state.segments)), following)

    # Compactors ------------------------------------------------------------------------------------------------------

    def _read(self, state: CleaningState, compactor: int) -> Iterator[Step]:
        """The segments below the first open transaction, all from the first one on."""
        segments = state.segments
        if self._mistake is not Mistake.OPEN_TRANSACTION_COMPACTED:
            segments = below_open_transaction(segments)
        if not segments:
            return
        cleaned = segments
        if self._mistake is Mistake.OLDER_SEGMENTS_LEFT:
            cleaned = tuple(segment for segment in segments if not segment.is_compacted)
        outcomes = outcomes_of(state.segments)
        records = records_of(cleaned)
        if self._mistake is Mistake.WAL_COMPACTED and len(segments) == len(state.segments):
            records += state.wal
        kept = self._cleaned(records, outcomes, state.tick)
        left = records_of(segments[: len(segments) - len(cleaned)])
        compaction = Compaction(segments, Segment(True, (*left, *kept)))
        following = state.spent("compactions")._replace(compactions=replaced(state.compactions, compactor, compaction))
        yield Step(("compactor {}: reads and cleans {} segments", compactor, len(segments)), following)

    def _cleaned(self, records: tuple[Record, ...], outcomes: dict[int, bool], tick: int) -> tuple[Record, ...]:
        """From the newest to the oldest, as the kernel does."""
        kept: list[Record] = []
        is_seen = False
        for record in reversed(records):
            if record.kind in (COMMIT, ABORT):
                kept.append(record)
                continue
            is_aborted = record.kind == PENDING and not outcomes.get(record.offset, False)
            if is_seen or (is_aborted and self._mistake is not Mistake.ABORTED_RECORD_COUNTS):
                continue
            is_seen = True
            if record.kind != TOMBSTONE:
                kept.append(record)
            elif not record.horizon and self._mistake not in TOMBSTONES_REMOVED:
                kept.append(record._replace(horizon=tick + RETENTION + 1))
            elif record.horizon > tick:
                kept.append(record)
        return tuple(reversed(kept))

    def _create(self, state: CleaningState, compactor: int) -> Step:
        """Also on top of a checkpoint that was faster, but not of another compaction."""
        read, cleaned = state.compactions[compactor]
        ended = state._replace(compactions=replaced(state.compactions, compactor, Compaction()))
        count = len(read)
        if state.segments[:count] != read and self._mistake is not Mistake.REPLACED_BY_NUMBER:
            return Step(("compactor {}: another compaction was faster", compactor), ended)
        following = ended._replace(segments=(cleaned, *state.segments[count:]))
        return Step(("compactor {}: creates the next manifest", compactor), following)

    # A reader that follows -------------------------------------------------------------------------------------------

    @staticmethod
    def _stored_end(state: CleaningState) -> int:
        records = records_of(state.segments)
        return records[-1].offset + 1 if records else 0

    def _follow(self, state: CleaningState) -> Step:
        """A reader that came too late begins at the first record."""
        offset, read, content = state.reader
        is_late = state.tick > read + RETENTION
        first, found = (0, Content()) if is_late else (offset, content)
        for record in records_of(state.segments):
            if record.offset >= first:
                found = found.with_record(record)
        reader = Reader(self._stored_end(state), state.tick, found)
        whole = Content()
        for record in records_of(state.segments):
            whole = whole.with_record(record)
        return Step(
            ("the reader reads on from {}", first),
            state._replace(reader=reader),
            "" if found.live == whole.live else "I7: a reader that follows the log has a key that was deleted",
        )


def records_of(segments: tuple[Segment, ...]) -> tuple[Record, ...]:
    return tuple(record for segment in segments for record in segment.records)


def outcomes_of(segments: tuple[Segment, ...]) -> dict[int, bool]:
    """Whether the transaction of a record was committed, by the record's offset."""
    outcomes, pending = dict[int, bool](), NOTHING
    for record in records_of(segments):
        if record.kind == PENDING:
            pending = record.offset
        elif record.kind in (COMMIT, ABORT) and pending != NOTHING:
            outcomes[pending], pending = record.kind == COMMIT, NOTHING
    return outcomes


def below_open_transaction(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    outcomes = outcomes_of(segments)
    for index, segment in enumerate(segments):
        if any(record.kind == PENDING and record.offset not in outcomes for record in segment.records):
            return segments[:index]
    return segments
