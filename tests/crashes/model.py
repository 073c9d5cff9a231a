"""What a log must hold after a crash: the judge of the crash tests.

Acknowledged is there, in order and at its offset; what was never appended is not; what was not acknowledged is there
whole or not at all. A policy that syncs later than it answers may lose what was answered since, but only from the end.
What a start has found stays for ever: clients have been told of it.
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
    """A record as the log gives it."""

    offset: int
    timestamp_ms: int
    record: Record


@dataclass(slots=True, eq=False)
class SentEntry:
    """An entry that was appended. ``offset``: where the log says that it is, None until it says so.

    ``is_safe``: no loss of power may take it any more.
    """

    timestamp_ms: int
    records: tuple[Record, ...]
    offset: int | None = None
    is_safe: bool = False

    def at(self, offset: int) -> list[LogRecord]:
        return [LogRecord(offset + index, self.timestamp_ms, record) for index, record in enumerate(self.records)]


class ModelViolation(AssertionError):
    """The log does not hold what it must."""


class PartitionModel:
    """One partition: what is in it for sure, by offset, and what was appended since.

    ``compacted_end``: below it records may be missing, if only the meaning of all is the same.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.settled: list[LogRecord] = []
        self.sent: list[SentEntry] = []
        self.compacted_end = 0

    def copy(self) -> PartitionModel:
        """For another outcome of the same crash."""
        copy = PartitionModel(self.number)
        copy.settled, copy.sent = self.settled.copy(), self.sent.copy()
        copy.compacted_end = self.compacted_end
        return copy

    def answered(self, sent: SentEntry, outcome: Appended, is_safe: bool) -> None:
        """The log has answered for an entry."""
        if outcome.error in REFUSED_FOR_GOOD:
            self.sent.remove(sent)
        elif outcome.error is ErrorCode.NONE:
            sent.offset = outcome.base_offset
            sent.is_safe = is_safe

    def mark_safe(self) -> None:
        """All that was answered is durable from now on."""
        for sent in self.sent:
            sent.is_safe = sent.offset is not None

    def is_safe_below(self, end: int) -> bool:
        """Whether all that lies below an offset is durable by the policy; else it may be lost, compacted or not."""
        return all(sent.is_safe for sent in self.sent if sent.offset is not None and sent.offset < end)

    def compacted(self, end: int) -> None:
        """What lies below an offset is being compacted."""
        self.compacted_end = max(self.compacted_end, end)
        covered = [index for index, sent in enumerate(self.sent) if sent.offset is not None and sent.offset < end]
        behind = covered[-1] + 1 if covered else 0
        for sent in self.sent[:behind]:
            if sent.offset is not None:  # else it was refused, as those behind it were answered
                self.settled += sent.at(sent.offset)
        del self.sent[:behind]

    def check_read(self, found: Sequence[LogRecord]) -> None:
        """Judge what a read gives while the log runs: all that was answered, or what compaction has made of it."""
        answered = [record for sent in self.sent if sent.offset is not None for record in sent.at(sent.offset)]
        rest = self._without_settled(found)
        if rest != answered:
            raise ModelViolation(
                f"partition {self.number}: read {rest[:3]} of {len(rest)}, answered were {answered[:3]}"
            )
        self._check_meaning(found, self.settled + answered)

    def settle(self, found: Sequence[LogRecord], is_intact: bool) -> None:
        """Check what a start has found, which becomes the state of the model. Raises ModelViolation.

        ``is_intact``: the power has not gone since, so all that was answered must be there, whatever the policy.
        """
        rest = self._without_settled(found)
        expected = self.settled.copy()
        self._settle_sent(rest, is_intact)
        self._check_meaning(found, expected + self.settled[len(expected) :])

    def _settle_sent(self, rest: list[LogRecord], is_intact: bool) -> None:
        """Judge what was found behind all that is settled, entry by entry."""
        lost: SentEntry | None = None
        for sent in self.sent:
            size = len(sent.records)
            if rest[:size] == sent.at(len(self.settled)):
                if lost is not None:
                    raise ModelViolation(f"partition {self.number}: lost {lost}, and {sent} behind it is there")
                if sent.offset not in (None, len(self.settled)):
                    raise ModelViolation(f"partition {self.number}: {sent} lies at offset {len(self.settled)}")
                self.settled += rest[:size]
                del rest[:size]
            elif sent.is_safe or (is_intact and sent.offset is not None):
                raise ModelViolation(
                    f"partition {self.number}: lost {sent}, found {rest[:3]} from offset {len(self.settled)} on"
                )
            elif sent.offset is not None:
                lost = lost or sent
        if rest:
            raise ModelViolation(
                f"partition {self.number}: nobody has appended {rest[:3]} (of {len(rest)}) as it is there"
            )
        self.sent.clear()

    def _without_settled(self, found: Sequence[LogRecord]) -> list[LogRecord]:
        """What was found behind what is settled, which must be there as it is, or as compaction may have left it."""
        end = len(self.settled)
        offsets = [record.offset for record in found]
        if offsets != sorted(set(offsets)):
            raise ModelViolation(f"partition {self.number}: offsets go back in {offsets}")
        known = [record for record in found if record.offset < end]
        for record in known:
            if self.settled[record.offset] != record:
                raise ModelViolation(f"partition {self.number}: found {record}, expected {self.settled[record.offset]}")
        missing = set(range(min(self.compacted_end, end), end)) - set(offsets)
        if missing:
            raise ModelViolation(
                f"partition {self.number}: lost {self.settled[min(missing)]} and {len(missing) - 1} more"
            )
        return list(found[len(known) :])

    def _check_meaning(self, found: Sequence[LogRecord], expected: Sequence[LogRecord]) -> None:
        if not self.compacted_end:
            return
        left, right = (live((each.offset, each.record) for each in records) for records in (found, expected))
        if left != right:
            wrong = {key: (left.get(key), right.get(key)) for key in left | right if left.get(key) != right.get(key)}
            raise ModelViolation(f"partition {self.number}: compaction has changed (found, expected) {wrong}")
