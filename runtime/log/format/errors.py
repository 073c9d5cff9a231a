"""What can be wrong with the bytes of a log. Each error says where and why."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

UNKNOWN_OFFSET = -1


class Damage(NamedTuple):
    """A stretch of a file that is not what was written there. It is left as it is, and what follows it counts.

    ``position`` and ``size`` in bytes; a size of 0 says that something is missing there. Every offset below
    ``offset_before`` was read, if it exists; ``offset_after`` is the first that can be read again, None when nothing
    follows. What lies between may be lost, in a compacted log only in part. In a journal ``offset_before`` may be
    UNKNOWN_OFFSET: several partitions are concerned. Not ``is_certain``: there may be something good in it, because
    the search for it took too long, or because it holds a whole batch with impossible offsets. It must not be cut.
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
        """The offsets that may be lost, in words."""
        if self.offset_before == UNKNOWN_OFFSET:
            return "of several partitions"
        if self.offset_after is None:
            return f"from {self.offset_before} on"
        if self.offset_after <= self.offset_before:
            return "none"
        return f"{self.offset_before} to {self.offset_after - 1}"

    def __str__(self) -> str:
        return f"{self.path}: {self.size} damaged bytes at byte {self.position} ({self.reason}), offsets {self.lost}"


class DamagedBatch(ValueError):
    """A batch that is cut off or does not check out. ``position`` is its first byte in ``source``."""

    def __init__(self, position: int, reason: str, source: str = "buffer") -> None:
        super().__init__(f"{source}: damaged batch at byte {position}: {reason}")
        self.position = position
        self.reason = reason


class OffsetTooLarge(DamagedBatch):
    """A batch whose size and checksum are right, and whose offsets are beyond ``batch.LOG_OFFSET_MAX``."""


class DamagedRecord(ValueError):
    """A record whose bytes are not what its schema demands. ``position`` counts from the start of ``part``."""

    def __init__(self, part: str, position: int, reason: str) -> None:
        super().__init__(f"damaged record {part} at byte {position}: {reason}")
        self.part = part
        self.position = position
        self.reason = reason


class UnsupportedCompression(ValueError):
    """A batch whose records are compressed with what is not known, or not installed here. Its bytes may be right."""

    def __init__(self, codec: str, position: int, source: str) -> None:
        super().__init__(
            f"{source}: batch at byte {position} is compressed with {codec}, expected none, gzip, snappy, lz4 or zstd;"
            " the last three need a package: pip install 'callboard[compression]'"
        )
        self.codec = codec
        self.position = position


class UnwritableRecord(ValueError):
    """A record whose values do not fit Kafka's schema: a string of more than 32767 bytes, a number too large."""


class NeedsOwnBatch(ValueError):
    """A record that cannot share a batch with others: it belongs to a transaction, or ends one."""
