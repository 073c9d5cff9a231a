"""What can be wrong with the bytes of a log. Each error says where and why."""

from __future__ import annotations


class DamagedBatch(ValueError):
    """A batch that is cut off or does not check out. ``position`` is its first byte in ``source``."""

    def __init__(self, position: int, reason: str, source: str = "buffer") -> None:
        super().__init__(f"{source}: damaged batch at byte {position}: {reason}")
        self.position = position
        self.reason = reason


class DamagedRecord(ValueError):
    """A record whose bytes are not what its schema demands. ``position`` counts from the start of ``part``."""

    def __init__(self, part: str, position: int, reason: str) -> None:
        super().__init__(f"damaged record {part} at byte {position}: {reason}")
        self.part = part
        self.position = position
        self.reason = reason


class UnsupportedCompression(ValueError):
    """A batch whose records are compressed. Its bytes may be right; this version cannot look inside."""

    def __init__(self, codec: str, position: int, source: str) -> None:
        super().__init__(
            f"{source}: batch at byte {position} is compressed with {codec}, expected no compression; "
            "copy the partition with offsets.topic.compression.codec=0"
        )
        self.codec = codec
        self.position = position


class UnwritableRecord(ValueError):
    """A record whose values do not fit Kafka's schema: a string of more than 32767 bytes, a number too large."""


class NeedsOwnBatch(ValueError):
    """A record that cannot share a batch with others: it belongs to a transaction, or ends one."""
