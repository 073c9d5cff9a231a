"""Checks the timestamps of a producer's batch against the limits of its topic, as Kafka's LogValidator does. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.steps import Steps, pieces
from ..log.format.batch import CODEC_BITS, HEADER_BYTES, LOG_APPEND_TIME_BIT, attributes_of, read_batch
from ..log.format.errors import DamagedBatch
from ..settings.rows import LONG_MAX
from .batch import read_batch_info

NO_TIMESTAMP = -1


class TimestampLimits(NamedTuple):
    """How far the time of a record may differ from the time of the append, in ms. LONG_MAX: no limit.

    ``is_append_time``: the log gives records the time of the append, so the limits do not matter.
    """

    is_append_time: bool = False
    before_max_ms: int = LONG_MAX
    after_max_ms: int = LONG_MAX

    def allow(self, timestamp_ms: int, now_ms: int) -> bool:
        return timestamp_ms == NO_TIMESTAMP or -self.after_max_ms <= now_ms - timestamp_ms <= self.before_max_ms


class InvalidTime(NamedTuple):
    """A record whose time is refused. ``batch_index``: its number in the batch, from 0 on."""

    batch_index: int
    message: str


class InvalidTimestamps(CoordinatorError):
    """A batch is refused for the times of these records; none are named of a compressed batch."""

    def __init__(self, records: Sequence[InvalidTime]) -> None:
        super().__init__(ErrorCode.INVALID_TIMESTAMP, "One or more records have been rejected due to invalid timestamp")
        self.records = records


def find_invalid_times(
    records: bytes | None, limits: TimestampLimits, now_ms: int
) -> Steps[Sequence[InvalidTime] | None]:
    """The records of an unchecked batch whose times are refused; None if there are none, or no batch.

    The header has the newest time. So the records are read only if it is refused, or if there is a limit for old ones.
    Those of a compressed batch are not read: it is refused as a whole for the times in its header.
    """
    if records is None or len(records) < HEADER_BYTES:
        return None
    info, attributes = read_batch_info(records), attributes_of(records)
    is_marked = bool(attributes & LOG_APPEND_TIME_BIT)
    if limits.is_append_time:
        is_header_allowed = not is_marked
    else:
        is_header_allowed = all(limits.allow(time, now_ms) for time in (info.base_timestamp_ms, info.max_timestamp_ms))
    if is_header_allowed and (attributes & CODEC_BITS or limits.is_append_time or limits.before_max_ms == LONG_MAX):
        return None
    if attributes & CODEC_BITS:
        return ()
    found: list[InvalidTime] = []
    try:
        for piece in pieces(enumerate(_times(records))):
            found += [
                InvalidTime(index, message)
                for index, (offset, timestamp_ms) in piece
                if (message := _problem(offset, timestamp_ms, limits, now_ms, is_marked))
            ]
            yield
    except DamagedBatch:
        return None if is_header_allowed else ()
    return found or None


def _times(records: bytes) -> Iterator[tuple[int, int]]:
    """Offset and time of each record. Raises DamagedBatch."""
    for offset, timestamp_ms, _, _ in read_batch(memoryview(records)).records():
        yield offset, timestamp_ms


def _problem(offset: int, timestamp_ms: int, limits: TimestampLimits, now_ms: int, is_marked: bool) -> str:
    if limits.is_append_time:
        return (
            f"Invalid timestamp type in the message with offset {offset}."
            " Producer should not set timestamp type to LogAppendTime."
            if is_marked
            else ""
        )
    if limits.allow(timestamp_ms, now_ms):
        return ""
    return (
        f"Timestamp {timestamp_ms} of message with offset {offset} is out of range. The timestamp should be within"
        f" [{now_ms - limits.before_max_ms}, {now_ms + limits.after_max_ms}]"
    )
