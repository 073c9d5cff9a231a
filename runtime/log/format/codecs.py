"""Decompression of batches, which Kafka writes with ``offsets.topic.compression.codec``. They are read, never written.

``batch.inflate`` makes the same batch without its codec, so readers only see uncompressed records. gzip comes with
Python; snappy, lz4 and zstd with the ``cramjam`` package (``pip install 'callboard[compression]'``).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from struct import Struct
from typing import Any

from .errors import DamagedBatch, UnsupportedCompression

CODECS = ("none", "gzip", "snappy", "lz4", "zstd", "codec 5", "codec 6", "codec 7")
"""Names of the values of ``batch.CODEC_BITS``."""

INFLATED_MAX = 256 * 1024 * 1024
"""Limit of the uncompressed size of one batch's records. Kafka's default limit of a batch is 1 MB."""

_BUFFER_BYTES = 256 * 1024
_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER_BYTES = 16  # the magic, a version, the oldest version that can read it
_XERIAL_BLOCK = Struct(">i")
_GZIP_WINDOW = 16 + zlib.MAX_WBITS


def decompress(codec: int, data: bytes, position: int, source: str, bytes_max: int = INFLATED_MAX) -> bytes:
    """The records of the batch at ``position`` in ``source``, decompressed.

    UnsupportedCompression for an unknown codec, or one whose package is not installed; DamagedBatch where the bytes are
    not valid for the codec, or become more than ``bytes_max``.
    """
    decompressor = _DECOMPRESS.get(codec)
    if decompressor is None:
        raise UnsupportedCompression(CODECS[codec], position, source)
    try:
        return decompressor(data, bytes_max)
    except ImportError:
        raise UnsupportedCompression(CODECS[codec], position, source) from None
    except Exception as error:  # cramjam and zlib have errors of their own
        raise DamagedBatch(position, f"its records are not valid {CODECS[codec]}: {error}", source) from None


def _gunzip(data: bytes, bytes_max: int) -> bytes:
    """Decompress all members of a gzip stream; Java may write several."""
    parts, remaining_bytes = [], bytes_max
    while data:
        member = zlib.decompressobj(_GZIP_WINDOW)
        parts.append(member.decompress(data, max(1, remaining_bytes)))
        remaining_bytes -= len(parts[-1])
        if not member.eof or remaining_bytes < 0:
            raise ValueError(f"it is truncated, or has more than {bytes_max} bytes")
        data = member.unused_data
    return b"".join(parts)


def _unsnap(data: bytes, bytes_max: int) -> bytes:
    """Decompress snappy, framed by the xerial library (as in Kafka's Java client) or raw."""
    if not data.startswith(_XERIAL_MAGIC):
        return _unsnap_block(data, bytes_max)
    parts, at, remaining_bytes = [], _XERIAL_HEADER_BYTES, bytes_max
    while at < len(data):
        (size,) = _XERIAL_BLOCK.unpack_from(data, at)
        at += _XERIAL_BLOCK.size
        if not 0 < size <= len(data) - at:
            raise ValueError(f"a block of {size} bytes, {len(data) - at} left")
        parts.append(_unsnap_block(data[at : at + size], remaining_bytes))
        remaining_bytes -= len(parts[-1])
        at += size
    return b"".join(parts)


def _unsnap_block(data: bytes, bytes_max: int) -> bytes:
    """Decompress one block. Its size is checked first, because snappy allocates that much memory."""
    snappy = _cramjam().snappy
    if snappy.decompress_raw_len(data) > bytes_max:
        raise ValueError(f"it has more than {bytes_max} bytes")
    return bytes(snappy.decompress_raw(data))


def _unlz4(data: bytes, bytes_max: int) -> bytes:
    return _into_buffer(_cramjam().lz4.decompress_into, data, bytes_max)


def _unzstd(data: bytes, bytes_max: int) -> bytes:
    return _into_buffer(_cramjam().zstd.decompress_into, data, bytes_max)


def _into_buffer(decompress_into: Callable[[bytes, bytearray], int], data: bytes, bytes_max: int) -> bytes:
    """Decompress into growing buffers of at most ``bytes_max``, because a few bytes may become gigabytes."""
    size = max(_BUFFER_BYTES, 4 * len(data))
    while True:
        buffer = bytearray(min(size, bytes_max))
        try:
            return bytes(memoryview(buffer)[: decompress_into(data, buffer)])
        except Exception:  # cramjam's own; a full buffer and invalid bytes raise the same
            if size >= bytes_max:
                raise
        size *= 8


def _cramjam() -> Any:
    """Import cramjam on first use, because most logs do not need it. Raises ImportError."""
    import cramjam

    return cramjam


_DECOMPRESS: dict[int, Callable[[bytes, int], bytes]] = {1: _gunzip, 2: _unsnap, 3: _unlz4, 4: _unzstd}
