"""Compressed batches, as Kafka writes them where ``offsets.topic.compression.codec`` says so: read, never written.

Whoever reads records works on a batch that is not compressed: ``inflate`` makes the same batch without its codec. gzip
comes with Python; snappy, lz4 and zstd with the ``cramjam`` package (``pip install 'callboard[compression]'``).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

from .batch import CODEC_BITS, CODECS, HEADER_BYTES, Batch, read_batch, with_records
from .errors import DamagedBatch, UnsupportedCompression

INFLATED_MAX = 256 * 1024 * 1024
"""Records of one batch. Kafka's largest is 1 MB unless somebody has raised it; nobody's is this large."""

_BUFFER_BYTES = 256 * 1024
_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER_BYTES = 16  # the magic, a version, the oldest version that can read it
_XERIAL_BLOCK = Struct(">i")
_GZIP_WINDOW = 16 + zlib.MAX_WBITS


def inflate(batch: Batch) -> Batch:
    """The same batch with its records as they were before compression; itself if it is not compressed.

    UnsupportedCompression for a codec that nobody knows or whose package is not installed, DamagedBatch where the
    bytes are not what the codec makes.
    """
    codec = batch.attributes & CODEC_BITS
    if not codec:
        return batch
    records = _decompressed(codec, bytes(batch.data[HEADER_BYTES:]), batch)
    data = with_records(batch, batch.attributes & ~CODEC_BITS, records)
    return read_batch(memoryview(data), 0, batch.position, batch.source)


def inflate_buffer(data: bytes, starts: Sequence[int], source: str, position: int = 0) -> tuple[bytes, list[int]]:
    """A buffer of whole batches without compression, and where they begin there. Errors as in ``inflate``."""
    view = memoryview(data)
    batches = [inflate(read_batch(view, at, position + at, source)) for at in starts]
    begin, at = [], 0
    for batch in batches:
        begin.append(at)
        at += batch.size
    return b"".join(batch.data for batch in batches), begin


def _decompressed(codec: int, data: bytes, batch: Batch) -> bytes:
    decompress = _DECOMPRESS.get(codec)
    if decompress is None:
        raise UnsupportedCompression(CODECS[codec], batch.position, batch.source)
    try:
        return decompress(data)
    except ImportError:
        raise UnsupportedCompression(CODECS[codec], batch.position, batch.source) from None
    except Exception as error:  # cramjam and zlib have errors of their own
        raise DamagedBatch(batch.position, f"its records are no {CODECS[codec]}: {error}", batch.source) from None


def _gunzip(data: bytes) -> bytes:
    """All members of the stream: Java's may write several."""
    found, left = [], INFLATED_MAX
    while data:
        one = zlib.decompressobj(_GZIP_WINDOW)
        found.append(one.decompress(data, max(1, left)))
        left -= len(found[-1])
        if not one.eof or left < 0:
            raise ValueError(f"it is cut off, or has more than {INFLATED_MAX} bytes")
        data = one.unused_data
    return b"".join(found)


def _unsnap(data: bytes) -> bytes:
    """Kafka's Java client frames snappy as the xerial library does; others may send it as it is."""
    if not data.startswith(_XERIAL_MAGIC):
        return _unsnap_block(data, INFLATED_MAX)
    found, at, left = [], _XERIAL_HEADER_BYTES, INFLATED_MAX
    while at < len(data):
        (size,) = _XERIAL_BLOCK.unpack_from(data, at)
        at += _XERIAL_BLOCK.size
        if not 0 < size <= len(data) - at:
            raise ValueError(f"a block of {size} bytes, {len(data) - at} left")
        found.append(_unsnap_block(data[at : at + size], left))
        left -= len(found[-1])
        at += size
    return b"".join(found)


def _unsnap_block(data: bytes, bytes_max: int) -> bytes:
    """One block, which says first how large it becomes: memory for that is taken before anything is checked."""
    snappy = _cramjam().snappy
    if snappy.decompress_raw_len(data) > bytes_max:
        raise ValueError(f"it has more than {INFLATED_MAX} bytes")
    return bytes(snappy.decompress_raw(data))


def _unlz4(data: bytes) -> bytes:
    return _into_buffer(_cramjam().lz4.decompress_into, data)


def _unzstd(data: bytes) -> bytes:
    return _into_buffer(_cramjam().zstd.decompress_into, data)


def _into_buffer(decompress_into: Callable[[bytes, bytearray], int], data: bytes) -> bytes:
    """Decompress into buffers that grow up to ``INFLATED_MAX``: a few bytes may become gigabytes."""
    size = max(_BUFFER_BYTES, 4 * len(data))
    while True:
        buffer = bytearray(min(size, INFLATED_MAX))
        try:
            return bytes(memoryview(buffer)[: decompress_into(data, buffer)])
        except Exception:  # of its own; no room and wrong bytes look alike
            if size >= INFLATED_MAX:
                raise
        size *= 8


def _cramjam() -> Any:
    """ImportError where it is not installed. Loaded when the first such batch is met, which is almost never."""
    import cramjam

    return cramjam


_DECOMPRESS: dict[int, Callable[[bytes], bytes]] = {1: _gunzip, 2: _unsnap, 3: _unlz4, 4: _unzstd}
