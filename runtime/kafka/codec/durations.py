"""Durations that Kafka takes and kio does not: of more than 292,000 years, "for ever" among them.

Only OffsetCommit v2-v4 has one that a client chooses: the retention. Where kio fails to read it, it is read again with
the longest that kio takes. (Kafka adds it to the time of day, and if that overflows the offset expires at once.)
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from .strict import Reader, Walk, walk_before

LONGEST_MS = (2**63 - 1) // 1000  # kio reckons in microseconds of 64 bits
INT64 = 8


def duration_reader(entity_type: Any, read: Reader) -> Reader:
    """A reader of a request that never fails for a duration's length. Durations of 32 bits always fit."""
    for field in fields(entity_type):
        if field.metadata.get("kafka_type") == "timedelta_i64":
            return _reader(walk_before(entity_type, field.name), read)
    return read


def _reader(walk: Walk, read: Reader) -> Reader:
    def read_shortened(buffer: Any, position: int) -> tuple[Any, int]:
        try:
            return read(buffer, position)
        except ValueError:
            place = walk(buffer, position)
            value = int.from_bytes(buffer[place : place + INT64], "big", signed=True)
            if abs(value) <= LONGEST_MS:
                raise  # it was something else
            return read(_with(buffer, place, LONGEST_MS if value > 0 else -LONGEST_MS), position)

    return read_shortened


def _with(buffer: bytes, place: int, fitting: int) -> bytes:
    return buffer[:place] + fitting.to_bytes(INT64, "big", signed=True) + buffer[place + INT64 :]
