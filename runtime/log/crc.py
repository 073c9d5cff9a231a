"""The checksum of batches and journal frames: CRC-32C (Castagnoli), as Kafka's format demands it.

The ``crc32c`` package is used because kio needs it anyway and because it takes any buffer without copying it.
"""

from __future__ import annotations

from crc32c import crc32c as _crc32c


def crc32c(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """CRC-32C of ``data``, continued from ``value`` (the checksum of what came before it)."""
    return _crc32c(data, value)
