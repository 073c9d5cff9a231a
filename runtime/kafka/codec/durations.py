"""Durations that Kafka accepts and kio does not: of more than 292,000 years, such as 2**63 - 1 ms.

Only OffsetCommit v2-v4 has a duration of 64 bits, the retention. If kio fails to decode it, it is decoded again with
the longest duration that kio accepts. (Kafka adds it to the wall clock; if that overflows, the offset expires at once.)
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from .validation import Reader, SkipValue, skip_before_field

MAX_DURATION_MS = (2**63 - 1) // 1000  # kio uses microseconds of 64 bits
INT64 = 8


def duration_reader(entity_type: Any, read: Reader) -> Reader:
    """Return a reader of a request that accepts durations of any length. Durations of 32 bits always fit."""
    for field in fields(entity_type):
        if field.metadata.get("kafka_type") == "timedelta_i64":
            return _reader(skip_before_field(entity_type, field.name), read)
    return read


def _reader(skip: SkipValue, read: Reader) -> Reader:
    def read_shortened(buffer: Any, position: int) -> tuple[Any, int]:
        try:
            return read(buffer, position)
        except ValueError:
            start = skip(buffer, position)
            value = int.from_bytes(buffer[start : start + INT64], "big", signed=True)
            if abs(value) <= MAX_DURATION_MS:
                raise  # another field is invalid
            return read(_replace_int64(buffer, start, MAX_DURATION_MS if value > 0 else -MAX_DURATION_MS), position)

    return read_shortened


def _replace_int64(buffer: bytes, start: int, value: int) -> bytes:
    return buffer[:start] + value.to_bytes(INT64, "big", signed=True) + buffer[start + INT64 :]
