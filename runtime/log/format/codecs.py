"""Decompression of batches, which Kafka writes with ``offsets.topic.compression.codec``. They are read, never written.

Readers of records need an uncompressed batch; ``inflate`` returns the same batch without its codec. gzip is part of
Python; snappy, lz4 and zstd need the ``cramjam`` package (``pip install 'callboard[compression]'``).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

from .batch import CODEC_BITS, CODECS, HEADER_BYTES, Batch, read_batch, with_records
from .errors import DamagedBatch, UnsupportedCompression

INFLATED_MAX = 256 * 1024 * 1024
"""Limit of the uncompressed size of one batch's records. Kafka's default limit of a batch is 1 MB."""

_BUFFER_BYTES = 256 * 1024
_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER_BYTES = 16  # the magic, a version, the oldest version that can read it
_XERIAL_BLOCK = Struct(">i")
_GZIP_WINDOW = 16 + zlib.MAX_WBITS


def inflate(batch: Batch) -> Batch:
    """The same batch with uncompressed records; the batch itself if it is not compressed.

    Raises UnsupportedCompression for a codec that is unknown or not installed, DamagedBatch for bytes that are not
    valid for the codec.
    """
    codec = batch.attributes & CODEC_BITS
    if not codec:
        return batch
    records = _decompressed(codec, bytes(batch.data[HEADER_BYTES:]), batch)
    data = with_records(batch, batch.attributes & ~CODEC_BITS, records)
    return read_batch(memoryview(data), 0, batch.position, batch.source)


def inflate_buffer(data: bytes, starts: Sequence[int], source: str, position: int = 0) -> tuple[bytes, list[int]]:
    """A buffer of complete uncompressed batches, and their positions in it. Errors as in ``inflate``."""
    view = memoryview(data)
    batches = [inflate(read_batch(view, at, position + at, source)) for at in starts]
    inflated_starts, at = [], 0
    for batch in batches:
        inflated_starts.append(at)
        at += batch.size
    return b"".join(batch.data for batch in batches), inflated_starts


def _decompressed(codec: int, data: bytes, batch: Batch) -> bytes:
    decompress = _DECOMPRESS.get(codec)
    if decompress is None:
        raise UnsupportedCompression(CODECS[codec], batch.position, batch.source)
    try:
        return decompress(data)
    except ImportError:
        raise UnsupportedCompression(CODECS[codec], batch.position, batch.source) from None
    except Exception as error:  # cramjam and zlib have their own exceptions
        raise DamagedBatch(
            batch.position, f"its records are not valid {CODECS[codec]}: {error}", batch.source
        ) from None


def _gunzip(data: bytes) -> bytes:
    """Decompress all members of a gzip stream; Java may write several."""
    parts, left = [], INFLATED_MAX
    while data:
        member = zlib.decompressobj(_GZIP_WINDOW)
        parts.append(member.decompress(data, max(1, left)))
        left -= len(parts[-1])
        if not member.eof or left < 0:
            raise ValueError(f"it is truncated, or has more than {INFLATED_MAX} bytes")
        data = member.unused_data
    return b"".join(parts)


def _unsnap(data: bytes) -> bytes:
    """Decompress snappy, framed by the xerial library (as in Kafka's Java client) or raw."""
    if not data.startswith(_XERIAL_MAGIC):
        return _unsnap_block(data, INFLATED_MAX)
    parts, at, left = [], _XERIAL_HEADER_BYTES, INFLATED_MAX
    while at < len(data):
        (size,) = _XERIAL_BLOCK.unpack_from(data, at)
        at += _XERIAL_BLOCK.size
        if not 0 < size <= len(data) - at:
            raise ValueError(f"a block of {size} bytes, {len(data) - at} left")
        parts.append(_unsnap_block(data[at : at + size], left))
        left -= len(parts[-1])
        at += size
    return b"".join(parts)


def _unsnap_block(data: bytes, bytes_max: int) -> bytes:
    """Decompress one block. Its size is checked first, because snappy allocates that much memory."""
    snappy = _cramjam().snappy
    if snappy.decompress_raw_len(data) > bytes_max:
        raise ValueError(f"it has more than {INFLATED_MAX} bytes")
    return bytes(snappy.decompress_raw(data))


def _unlz4(data: bytes) -> bytes:
    return _into_buffer(_cramjam().lz4.decompress_into, data)


def _unzstd(data: bytes) -> bytes:
    return _into_buffer(_cramjam().zstd.decompress_into, data)


def _into_buffer(decompress_into: Callable[[bytes, bytearray], int], data: bytes) -> bytes:
    """Decompress into growing buffers of at most ``INFLATED_MAX``, because a few bytes may become gigabytes."""
    size = max(_BUFFER_BYTES, 4 * len(data))
    while True:
        buffer = bytearray(min(size, INFLATED_MAX))
        try:
            return bytes(memoryview(buffer)[: decompress_into(data, buffer)])
        except Exception:  # cramjam's own; a full buffer and invalid bytes raise the same
            if size >= INFLATED_MAX:
                raise
        size *= 8


def _cramjam() -> Any:
    """Import cramjam on first use, because most logs do not need it. Raises ImportError."""
    import cramjam

    return cramjam


_DECOMPRESS: dict[int, Callable[[bytes], bytes]] = {1: _gunzip, 2: _unsnap, 3: _unlz4, 4: _unzstd}
