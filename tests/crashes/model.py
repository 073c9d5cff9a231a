"""The model of the crash tests: the records that a log must have after a crash.

Acknowledged entries are there, in order and at their offsets. Entries that were never appended are not. Entries that
were not acknowledged are there as a whole or not at all. With a policy that syncs after acknowledging, entries since
the last sync may be lost, but only from the end. Records found by a start must stay, as clients may have seen them.
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
        copy = PartitionModel(self.number)
        copy.settled, copy.sent = self.settled.copy(), self.sent.copy()
        copy.compacted_end = self.compacted_end
        return copy

    def handle_outcome(self, sent: SentEntry, outcome: Appended, is_safe: bool) -> None:
        """Handle the log's outcome for an entry."""
        if outcome.error in REFUSED_FOR_GOOD:
            self.sent.remove(sent)
        elif outcome.error is ErrorCode.NONE:
            sent.offset = outcome.base_offset
            sent.is_safe = is_safe

    def mark_safe(self) -> None:
        """Mark all acknowledged entries as durable."""
        for sent in self.sent:
            sent.is_safe = sent.offset is not None

    def is_safe_below(self, end: int) -> bool:
        """Whether all entries below ``end`` are durable by the policy; others may be lost, compacted or not."""
        return all(sent.is_safe for sent in self.sent if sent.offset is not None and sent.offset < end)

    def mark_compacted(self, end: int) -> None:
        """Note that compaction up to ``end`` is being committed."""
        self.compacted_end = max(self.compacted_end, end)
        covered = [index for index, sent in enumerate(self.sent) if sent.offset is not None and sent.offset < end]
        behind = covered[-1] + 1 if covered else 0
        for sent in self.sent[:behind]:
            if sent.offset is not None:  # else it was refused, since later ones were acknowledged
                self.settled += sent.at(sent.offset)
        del self.sent[:behind]

    def check_read(self, found: Sequence[LogRecord]) -> None:
        """Check the records read from the running log: all acknowledged ones, possibly compacted."""
        answered = [record for sent in self.sent if sent.offset is not None for record in sent.at(sent.offset)]
        remaining = self._without_settled(found)
        if remaining != answered:
            raise ModelViolation(
                f"partition {self.number}: read {remaining[:3]} of {len(remaining)}, acknowledged {answered[:3]}"
            )
        self._check_meaning(found, self.settled + answered)

    def settle(self, found: Sequence[LogRecord], is_intact: bool) -> None:
        """Check what a start has found, which becomes the state of the model. Raises ModelViolation.

        ``is_intact``: no power loss since, so all acknowledged entries must be there, whatever the policy.
        """
        remaining = self._without_settled(found)
        expected = self.settled.copy()
        self._settle_sent(remaining, is_intact)
        self._check_meaning(found, expected + self.settled[len(expected) :])

    def _settle_sent(self, remaining: list[LogRecord], is_intact: bool) -> None:
        """Check the records after the settled ones, entry by entry."""
        first_lost: SentEntry | None = None
        for sent in self.sent:
            size = len(sent.records)
            if remaining[:size] == sent.at(len(self.settled)):
                if first_lost is not None:
                    raise ModelViolation(f"partition {self.number}: lost {first_lost}, but the later {sent} is there")
                if sent.offset not in (None, len(self.settled)):
                    raise ModelViolation(f"partition {self.number}: {sent} is at offset {len(self.settled)}")
                self.settled += remaining[:size]
                del remaining[:size]
            elif sent.is_safe or (is_intact and sent.offset is not None):
                raise ModelViolation(
                    f"partition {self.number}: lost {sent}, found {remaining[:3]} from offset {len(self.settled)} on"
                )
            elif sent.offset is not None:
                first_lost = first_lost or sent
        if remaining:
            raise ModelViolation(f"partition {self.number}: never appended: {remaining[:3]} (of {len(remaining)})")
        self.sent.clear()

    def _without_settled(self, found: Sequence[LogRecord]) -> list[LogRecord]:
        """The records after the settled ones. Checks that the settled ones are there, possibly compacted."""
        end = len(self.settled)
        offsets = [record.offset for record in found]
        if offsets != sorted(set(offsets)):
            raise ModelViolation(f"partition {self.number}: offsets decrease in {offsets}")
        known_records = [record for record in found if record.offset < end]
        for record in known_records:
            if self.settled[record.offset] != record:
                raise ModelViolation(f"partition {self.number}: found {record}, expected {self.settled[record.offset]}")
        missing = set(range(min(self.compacted_end, end), end)) - set(offsets)
        if missing:
            raise ModelViolation(
                f"partition {self.number}: lost {self.settled[min(missing)]} and {len(missing) - 1} more"
            )
        return list(found[len(known_records) :])

    def _check_meaning(self, found: Sequence[LogRecord], expected: Sequence[LogRecord]) -> None:
        if not self.compacted_end:
            return
        left, right = (live((each.offset, each.record) for each in records) for records in (found, expected))
        if left != right:
            wrong = {key: (left.get(key), right.get(key)) for key in left | right if left.get(key) != right.get(key)}
            raise ModelViolation(f"partition {self.number}: compaction has changed (found, expected) {wrong}")
