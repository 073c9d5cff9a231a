"""Recognizes a batch that the end of a file cuts off, by its header and the framing of its records.

A record of such a batch may contain bytes that form a valid batch. They are part of the record, so they must not be
searched for batches. The checksum cannot be checked, so the length of the batch must agree with those of its records:
if only the length of the batch is damaged, its records end before the end of the file and batches of the log follow.
"""

from __future__ import annotations

from struct import Struct

from ..format.batch import CODEC_BITS, HEADER_BYTES, MAGIC, PREFIX_BYTES
from ..format.varint import decode_signed
from .search import OpenFile

RECORD_BYTES_MIN = 7  # length, attributes, two deltas, the lengths of key and value, the number of headers
_RECORD_HEAD_BYTES = 32  # more than a record has before its key, or than a length has
_HEADER_FIELDS = Struct(">qiibIhi30xi")


def is_cut_off(file: OpenFile, position: int, expected: int, next_base: int | None) -> bool:
    """Whether an uncompressed batch begins at ``position`` and the file ends inside one of its records.

    ``expected`` and ``next_base`` limit its offsets as in ``search.find_good_batch``. False for a compressed batch,
    whose records have no readable lengths. Raises OSError if the file cannot be read.
    """
    if file.end - position < HEADER_BYTES:
        return False
    header = file.read(HEADER_BYTES, position)
    base, length, _, magic, _, attributes, last_delta, count = _HEADER_FIELDS.unpack(header)
    stop = position + PREFIX_BYTES + length
    is_plain = magic == MAGIC and not attributes & CODEC_BITS and count == last_delta + 1 > 0
    is_in_order = expected <= base and (next_base is None or base + last_delta < next_base)
    return is_plain and is_in_order and stop > file.end and _are_records_cut_off(file, position, stop, count)


def _are_records_cut_off(file: OpenFile, position: int, stop: int, count: int) -> bool:
    """Whether ``count`` records fill the batch up to ``stop`` as far as the file has them."""
    at, offset_delta = position + HEADER_BYTES, 0
    while at < file.end and offset_delta < count:
        record_end = _record_end(file, at, offset_delta)
        following_count = count - offset_delta - 1
        if record_end is None or record_end > stop - following_count * RECORD_BYTES_MIN:
            return False
        if not following_count and record_end not in (stop, file.end):
            return False
        at, offset_delta = record_end, offset_delta + 1
    return at >= file.end


def _record_end(file: OpenFile, at: int, offset_delta: int) -> int | None:
    """The end of the record at ``at``: the file's end if that cuts off its lengths, None if it is no such record."""
    head = file.read(min(_RECORD_HEAD_BYTES, file.end - at), at)
    try:
        size, body_at = decode_signed(head, 0)
        _, delta_at = decode_signed(head, body_at + 1)
        actual_delta, key_at = decode_signed(head, delta_at)
        key_size, key_at = decode_signed(head, key_at)
    except ValueError:
        return file.end if len(head) < _RECORD_HEAD_BYTES else None
    end, key_end = at + body_at + size, at + key_at + max(key_size, 0)
    if actual_delta != offset_delta or key_size < -1 or key_end >= end:
        return None
    return end if _is_value_inside(file, key_end, end) else None


def _is_value_inside(file: OpenFile, at: int, record_end: int) -> bool:
    """Whether the value whose length is at ``at`` ends inside its record. True if the file ends before it."""
    if at >= file.end:
        return True
    head = file.read(min(_RECORD_HEAD_BYTES, file.end - at), at)
    try:
        size, value_at = decode_signed(head, 0)
    except ValueError:
        return len(head) < _RECORD_HEAD_BYTES
    return size >= -1 and at + value_at + max(size, 0) < record_end
