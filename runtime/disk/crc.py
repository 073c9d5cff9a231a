"""The checksum of batches and journal frames: CRC-32C (Castagnoli), as Kafka's format demands it.

``crc32c(data, value=0)`` continues from ``value``, the checksum of what came before. The ``crc32c`` package is used
because kio needs it anyway and because it takes any buffer without copying it.
"""

from __future__ import annotations

from crc32c import crc32c

__all__ = ["crc32c"]
