"""Variable-length integers of Kafka and protobuf: 7 bits a byte, low group first; zigzag for signed ones.

Records use them for every length and delta. Nearly all of those are small and are encoded by a table.
"""

from __future__ import annotations

MAX_BYTES = 10  # a 64-bit number in groups of seven bits
MAX_BYTES_32 = 5  # a 32-bit number: lengths and tags of the wire protocol


def encode_unsigned(number: int) -> bytes:
    """``number`` (>= 0) without zigzag, as compact lengths and tags are written."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def encode_signed(number: int) -> bytes:
    """``number`` of at most 64 bits with zigzag: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return encode_unsigned(number * 2 if number >= 0 else -number * 2 - 1)


SMALL = (
    *(bytes((zigzag,)) for zigzag in range(0, 0x80, 2)),
    *(bytes((zigzag & 0x7F | 0x80, zigzag >> 7)) for zigzag in range(0x80, 0x4000, 2)),
)
"""The results of ``encode_signed`` for 0..8191. They are made without it, because that would slow down each start."""


def encode_length(number: int) -> bytes:
    """``number`` (>= 0) with zigzag, from the table if it is small."""
    return SMALL[number] if number < len(SMALL) else encode_signed(number)


def decode_unsigned(data: bytes | memoryview, at: int, max_bytes: int = MAX_BYTES) -> tuple[int, int]:
    """The number at ``at`` and the position after it. ValueError if it is cut off or longer than ``max_bytes``."""
    value = shift = 0
    for position in range(at, min(at + max_bytes, len(data))):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
        shift += 7
    if at + max_bytes > len(data):
        raise ValueError(f"cut off inside a varint at byte {len(data)}")
    raise ValueError(f"a varint of more than {max_bytes} bytes")


def decode_signed(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """As ``decode_unsigned``, with zigzag. Reading a log is mostly this, so one and two bytes have fast paths."""
    if at + 1 < len(data):
        if (byte := data[at]) < 0x80:
            return (byte >> 1) ^ -(byte & 1), at + 1
        if (high := data[at + 1]) < 0x80:
            return (high << 6 | (byte & 0x7E) >> 1) ^ -(byte & 1), at + 2
    value, at = decode_unsigned(data, at)
    return (value >> 1) ^ -(value & 1), at
