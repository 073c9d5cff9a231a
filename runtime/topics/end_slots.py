"""The format of ``topics.ends``: a header, then for each partition a slot of 16 bytes with end offset and checksum.

The checksum covers the slot number, so a slot that was copied to another position is detected as damaged. Slots are
aligned, so each is within one page and one sector: neither a killed process nor a power cut leaves it half written.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from struct import Struct

from ..disk.crc import crc32c

SLOT_BYTES = 16
HEADER = b"CBENDS02".ljust(SLOT_BYTES, b"\0")  # where slot 0 would be
FIRST_SLOT = 1

OLD_SLOT_BYTES = 8
OLD_HEADER = int.from_bytes(b"CBENDS01", "big").to_bytes(OLD_SLOT_BYTES, sys.byteorder)
"""Format 1: numbers of 64 bits in the machine's byte order, without checksums."""

_SLOT = Struct(">qI4x")
_CHECKED = Struct(">qq")


def encode_slot(slot: int, offset: int) -> bytes:
    return _SLOT.pack(offset, crc32c(_CHECKED.pack(slot, offset)))


def encode_slots(first: int, offsets: Sequence[int]) -> bytes:
    return b"".join(encode_slot(slot, offset) for slot, offset in enumerate(offsets, first))


def decode_slots(first: int, data: bytes) -> list[int | None]:
    """The end offset of each whole slot; None where it is damaged."""
    whole_slots = memoryview(data)[: len(data) // SLOT_BYTES * SLOT_BYTES]
    return [
        offset if offset >= 0 and checksum == crc32c(_CHECKED.pack(slot, offset)) else None
        for slot, (offset, checksum) in enumerate(_SLOT.iter_unpack(whole_slots), first)
    ]


def decode_old_slots(data: bytes) -> list[int | None]:
    """The end offsets of a file of format 1, header included; slot 0, which is the header, counts as damaged."""
    whole_slots = memoryview(data)[: len(data) // OLD_SLOT_BYTES * OLD_SLOT_BYTES]
    offsets: list[int | None] = [offset if offset >= 0 else None for offset in whole_slots.cast("q")]
    return [None, *offsets[1:]]


def decode_file(data: bytes) -> list[int | None] | None:
    """All slots of a file of either format, by slot number; None if it has neither format."""
    if data.startswith(OLD_HEADER):
        return decode_old_slots(data)
    return [None, *decode_slots(FIRST_SLOT, data[SLOT_BYTES:])] if data.startswith(HEADER) else None
