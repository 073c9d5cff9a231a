"""The checksum of batches and journal frames: CRC-32C (Castagnoli), as in Kafka's format.

``crc32c(data, value=0)`` continues from ``value``, the checksum of the preceding bytes. The ``crc32c`` package is used
because kio requires it anyway and because it accepts any buffer without a copy.
"""

from __future__ import annotations

from crc32c import crc32c

__all__ = ["crc32c"]
