"""Errors in the bytes of a log. Each tells where and why."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

UNKNOWN_OFFSET = -1


class Damage(NamedTuple):
    """A range of a file whose bytes are not those that were written. It is left unchanged, and readers skip it.

    ``position`` and ``size`` are in bytes; a size of 0 means that something is missing there. Every existing offset
    below ``offset_before`` was read. ``offset_after`` is the first offset that can be read again, None when nothing
    follows. Offsets between the two may be lost, in a compacted log only some of them. In a journal ``offset_before``
    may be UNKNOWN_OFFSET, because several partitions are concerned. If not ``is_certain``, the range may contain valid
    batches, because the search for them took too long, or because it has a complete batch with impossible offsets. Then
    it must not be cut.
    """

    path: Path
    position: int
    size: int
    reason: str
    offset_before: int
    offset_after: int | None
    is_certain: bool = True

    @property
    def lost(self) -> str:
        """The offsets that may be lost, as text."""
        if self.offset_before == UNKNOWN_OFFSET:
            return "of several partitions"
        if self.offset_after is None:
            return f"from {self.offset_before} on"
        if self.offset_after <= self.offset_before:
            return "none"
        return f"{self.offset_before} to {self.offset_after - 1}"

    def __str__(self) -> str:
        damaged = f"{self.size} damaged {'byte' if self.size == 1 else 'bytes'} at byte {self.position}"
        return f"{self.path}: {damaged} ({self.reason}), offsets {self.lost}"


class DamagedBatch(ValueError):
    """A batch that is truncated or invalid. ``position`` is its first byte in ``source``."""

    def __init__(self, position: int, reason: str, source: str = "buffer") -> None:
        super().__init__(f"{source}: damaged batch at byte {position}: {reason}")
        self.position = position
        self.reason = reason


class OffsetTooLarge(DamagedBatch):
    """A batch whose size and checksum are right, and whose offsets are beyond ``batch.LOG_OFFSET_MAX``."""


class DamagedRecord(ValueError):
    """A record whose bytes do not match its schema. ``position`` counts from the start of ``part``."""

    def __init__(self, part: str, position: int, reason: str) -> None:
        super().__init__(f"damaged record {part} at byte {position}: {reason}")
        self.part = part
        self.position = position
        self.reason = reason


class UnsupportedCompression(ValueError):
    """A batch whose codec is unknown, or not installed here. The batch itself may be valid."""

    def __init__(self, codec: str, position: int, source: str) -> None:
        super().__init__(
            f"{source}: batch at byte {position} is compressed with {codec}, expected none, gzip, snappy, lz4 or zstd;"
            " the last three need a package: pip install 'callboard[compression]'"
        )
        self.codec = codec
        self.position = position


class UnwritableRecord(ValueError):
    """A record whose values do not fit Kafka's schema, such as a string of more than 32767 bytes."""


class NeedsOwnBatch(ValueError):
    """A record that needs a batch of its own, because it belongs to a transaction or ends one."""
