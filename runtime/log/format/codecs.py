"""Compressed batches, as Kafka writes them where ``offsets.topic.compression.codec`` says so: read, never written.

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
"""Records of one batch. Kafka's largest is 1 MB unless somebody has raised it; nobody's is this large."""

_BUFFER_BYTES = 256 * 1024
_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER_BYTES = 16  # the magic, a version, the oldest version that can read it
_XERIAL_BLOCK = Struct(">i")
_GZIP_WINDOW = 16 + zlib.MAX_WBITS


def decompress(codec: int, data: bytes, position: int, source: str) -> bytes:
    """The records of the batch at ``position`` in ``source``, decompressed.

    UnsupportedCompression for an unknown codec, or one whose package is not installed; DamagedBatch where the bytes are
    not valid for the codec.
    """
    decompressor = _DECOMPRESS.get(codec)
    if decompressor is None:
        raise UnsupportedCompression(CODECS[codec], position, source)
    try:
        return decompressor(data)
    except ImportError:
        raise UnsupportedCompression(CODECS[codec], position, source) from None
    except Exception as error:  # cramjam and zlib have errors of their own
        raise DamagedBatch(position, f"its records are no {CODECS[codec]}: {error}", source) from None


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
