"""Variable-length integers: 7 bits a byte, low group first; signed ones are folded by zigzag (Kafka's and protobuf's).

Records use them for every length and delta, so the small ones, which nearly all are, come from a table.
"""

from __future__ import annotations

MAX_BYTES = 10  # a 64-bit number in groups of seven bits


def encode_unsigned(number: int) -> bytes:
    """``number`` (>= 0) without folding, as compact lengths and tags are written."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def encode_signed(number: int) -> bytes:
    """``number`` of at most 64 bits, folded by zigzag: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return encode_unsigned(number * 2 if number >= 0 else -number * 2 - 1)


SMALL = tuple(encode_signed(number) for number in range(8192))
"""The encodings of 0..8191: at most two bytes each."""


def encode_length(number: int) -> bytes:
    """``number`` (>= 0) folded by zigzag, from the table where it can be."""
    return SMALL[number] if number < len(SMALL) else encode_signed(number)


def decode_unsigned(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The number at ``at`` and the position behind it. ValueError where the bytes end or run on too long."""
    value = 0
    for index in range(MAX_BYTES):
        if at + index >= len(data):
            raise ValueError("a variable-length number is cut off")
        byte = data[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise ValueError(f"a variable-length number has more than {MAX_BYTES} bytes")


def decode_signed(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """As ``decode_unsigned``, unfolded. Reading a log is mostly this, hence the short cut for one byte."""
    if at < len(data) and (byte := data[at]) < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    value, at = decode_unsigned(data, at)
    return (value >> 1) ^ -(value & 1), at
