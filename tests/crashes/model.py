"""The model of the crash tests: the records that a log must have after a crash.

Acknowledged entries are present, in order and at their offsets. Entries that were never appended are absent. An entry
that was not acknowledged is present completely or absent. With a policy that syncs after the acknowledgement, entries
since the last sync may be lost, but only from the end. Records that a start has recovered must stay, because clients
may have read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from callboard.actors.errors import ErrorCode
from callboard.actors.ports import Appended
from callboard.actors.records import Record

from .replay import live

REFUSED_FOR_GOOD = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR)


class LogRecord(NamedTuple):
    """A record as read from the log."""

    offset: int
    timestamp_ms: int
    record: Record


@dataclass(slots=True, eq=False)
class SentEntry:
    """An entry that was appended. ``offset``: its acknowledged base offset; None before it is acknowledged.

    ``is_safe``: it must survive a power loss.
    """

    timestamp_ms: int
    records: tuple[Record, ...]
    offset: int | None = None
    is_safe: bool = False

    def at(self, offset: int) -> list[LogRecord]:
        return [LogRecord(offset + index, self.timestamp_ms, record) for index, record in enumerate(self.records)]


class ModelViolation(AssertionError):
    """The log violates the model."""


class PartitionModel:
    """One partition. ``settled``: its records since the last start, by offset; ``sent``: entries appended since.

    ``compacted_end``: below it, compaction may have dropped records, but the replayed state must be the same.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.settled: list[LogRecord] = []
        self.sent: list[SentEntry] = []
        self.compacted_end = 0

    def copy(self) -> PartitionModel:
        """A copy for another outcome of the same crash."""
        copy = type(self)(self.number)
        copy.settled, copy.sent = self.settled.copy(), self.sent.copy()
        copy.compacted_end = self.compacted_end
        return copy

    def handle_outcome(self, entry: SentEntry, outcome: Appended, is_safe: bool) -> None:
        """Handle the log's outcome for an entry."""
        if outcome.error in REFUSED_FOR_GOOD:
            self.sent.remove(entry)
        elif outcome.error is ErrorCode.NONE:
            entry.offset = outcome.base_offset
            entry.is_safe = is_safe

    def mark_safe(self) -> None:
        """Mark all acknowledged entries as durable."""
        for entry in self.sent:
            entry.is_safe = entry.offset is not None

    def is_safe_below(self, end: int) -> bool:
        """Whether the policy makes all entries below ``end`` durable; others may be lost, compacted or not."""
        return all(entry.is_safe for entry in self.sent if entry.offset is not None and entry.offset < end)

    def mark_compacted(self, end: int) -> None:
        """Record that compaction up to ``end`` is being committed."""
        self.compacted_end = max(self.compacted_end, end)
        covered = [index for index, entry in enumerate(self.sent) if entry.offset is not None and entry.offset < end]
        covered_count = covered[-1] + 1 if covered else 0
        for entry in self.sent[:covered_count]:
            if entry.offset is not None:  # otherwise it was refused, because later entries were acknowledged
                self.settled += entry.at(entry.offset)
        del self.sent[:covered_count]

    def check_read(self, read_records: Sequence[LogRecord]) -> None:
        """Check that the running log has all acknowledged records, except those that compaction may remove."""
        acknowledged = [record for sent in self.sent if sent.offset is not None for record in sent.at(sent.offset)]
        remaining = self._without_settled(read_records)
        if remaining != acknowledged:
            raise ModelViolation(
                f"partition {self.number}: read {remaining[:3]} of {len(remaining)}, acknowledged {acknowledged[:3]}"
            )
        self.check_meaning(read_records, self.settled + acknowledged)

    def settle(self, recovered: Sequence[LogRecord], is_intact: bool) -> None:
        """Check the records that a start has recovered; they become the settled records. Raises ModelViolation.

        ``is_intact``: no power loss since the last start, so all acknowledged entries must be present with any policy.
        """
        remaining = self._without_settled(recovered)
        expected = self.settled.copy()
        self._settle_sent(remaining, is_intact)
        self.check_meaning(recovered, expected + self.settled[len(expected) :])

    def _settle_sent(self, remaining: list[LogRecord], is_intact: bool) -> None:
        """Check the records after the settled ones, entry by entry."""
        first_lost: SentEntry | None = None
        for entry in self.sent:
            record_count = len(entry.records)
            if remaining[:record_count] == entry.at(len(self.settled)):
                if first_lost is not None:
                    raise ModelViolation(
                        f"partition {self.number}: lost {first_lost}, but the later {entry} is present"
                    )
                if entry.offset not in (None, len(self.settled)):
                    raise ModelViolation(f"partition {self.number}: {entry} is at offset {len(self.settled)}")
                self.settled += remaining[:record_count]
                del remaining[:record_count]
            elif entry.is_safe or (is_intact and entry.offset is not None):
                raise ModelViolation(
                    f"partition {self.number}: lost {entry}, found {remaining[:3]} from offset {len(self.settled)} on"
                )
            elif entry.offset is not None:
                first_lost = first_lost or entry
        if remaining:
            raise ModelViolation(f"partition {self.number}: never appended: {remaining[:3]} (of {len(remaining)})")
        self.sent.clear()

    def _without_settled(self, records: Sequence[LogRecord]) -> list[LogRecord]:
        """Return the records after the settled ones. Check the settled ones; compaction may have removed some."""
        end = len(self.settled)
        offsets = [record.offset for record in records]
        if offsets != sorted(set(offsets)):
            raise ModelViolation(f"partition {self.number}: offsets decrease in {offsets}")
        settled_records = [record for record in records if record.offset < end]
        for record in settled_records:
            if self.settled[record.offset] != record:
                raise ModelViolation(f"partition {self.number}: found {record}, expected {self.settled[record.offset]}")
        missing = set(range(min(self.compacted_end, end), end)) - set(offsets)
        if missing:
            raise ModelViolation(
                f"partition {self.number}: lost {self.settled[min(missing)]} and {len(missing) - 1} more"
            )
        return list(records[len(settled_records) :])

    def check_meaning(self, actual: Sequence[LogRecord], expected: Sequence[LogRecord]) -> None:
        """Check that compaction has kept the newest record of each key."""
        if not self.compacted_end:
            return
        actual_state, expected_state = (
            live((record.offset, record.record) for record in side) for side in (actual, expected)
        )
        if actual_state != expected_state:
            differences = {
                key: (actual_state.get(key), expected_state.get(key))
                for key in actual_state | expected_state
                if actual_state.get(key) != expected_state.get(key)
            }
            raise ModelViolation(f"partition {self.number}: compaction has changed (actual, expected) {differences}")
