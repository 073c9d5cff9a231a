"""Journal frames: the encoding of rounds in a journal file, and the search for valid frames after damaged ones.

A frame of the current format is::

    length uint32, CRC-32C of the content uint32, tag uint64, content

The tag is a keyed BLAKE2b of the frame's position in the file, its length and its CRC. The key is the file's salt: 64
random bits, which are in the file's name. So bytes of a client are never taken for a frame, even when the pages of a
round reach the disk out of order: a tag made without the salt is valid with probability 2^-64, and a copy of a real
frame has the tag of another position or another file. A second CRC would not do, because a CRC is linear: from one
known frame the tag of every other position could be computed.

The tag covers only the head. So a frame can be encoded, and its CRC computed, before its position is known. And a
damaged frame with an intact head still gives the position of the next one.

Format 2 and older used ``length uint32, CRC-32C of the content uint32, content``, in files without a salt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import blake2b
from struct import Struct
from typing import Protocol

from ..disk.crc import crc32c
from .format.batch import HEADER_BYTES, PREFIX_BYTES, read_size
from .reading.search import CANDIDATE_COST_BYTES, SEARCH_COST_FACTOR, SEARCH_COST_MIN_BYTES, SearchAborted

SALT_BYTES = 8
_HEAD = Struct(">II8s")
_TAGGED = Struct(">QII")  # position, length, CRC
_UNTAGGED_BYTES = 8
NO_TAG = bytes(8)
FRAME_HEAD_BYTES = _HEAD.size
_OLD_HEAD = Struct(">II")
_BATCH = Struct(">iI")


def encode_frame(batches: Sequence[tuple[int, bytes]]) -> bytes:
    """The frame of one round's (partition, batch) pairs, of which there is at least one; without its tag."""
    parts: list[bytes] = []
    for partition, batch in batches:
        parts.append(_BATCH.pack(partition, len(batch)))
        parts.append(batch)
    return content_frame(b"".join(parts))


def content_frame(content: bytes) -> bytes:
    """The frame of a content, without its tag."""
    return _HEAD.pack(len(content), crc32c(content), NO_TAG) + content


def frame_content(frame: bytes) -> memoryview:
    """The content of a frame without a tag. Raises ValueError if it is damaged."""
    length, crc, _ = _HEAD.unpack_from(frame)
    content = memoryview(frame)[_HEAD.size :]
    if len(content) != length or crc32c(content) != crc:
        raise ValueError(f"a frame of {len(content)} bytes, expected {length} bytes with CRC {crc}")
    return content


def frame_batches(content: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The (partition, batch) pairs in the content of a valid frame."""
    at = 0
    while at < len(content):
        partition, size = _BATCH.unpack_from(content, at)
        at += _BATCH.size
        yield partition, content[at : at + size]
        at += size


class Frames(Protocol):
    """The frames of one journal file. ``head_bytes``: the size of a frame's head."""

    head_bytes: int

    def end(self, view: memoryview, at: int) -> int | None:
        """The end of the valid frame that begins at ``at``; None when there is none."""

    def next(self, data: bytes, at: int, used: int) -> int | None:
        """Position of the first valid frame after the invalid one at ``at``; None if none follows. SearchAborted."""


class TaggedFrames:
    """Frames of a file with a salt."""

    head_bytes = _HEAD.size

    def __init__(self, salt: bytes) -> None:
        self._hash = blake2b(key=salt, digest_size=8)

    def tagged(self, frame: bytes, position: int) -> bytes:
        """A frame of ``encode_frame`` with the tag for its position."""
        length, crc, _ = _HEAD.unpack_from(frame)
        return b"".join((frame[:_UNTAGGED_BYTES], self._tag(position, length, crc), memoryview(frame)[_HEAD.size :]))

    def end(self, view: memoryview, at: int) -> int | None:
        end, crc = self._read_head(view, at)
        return end if end is not None and crc32c(view[at + _HEAD.size : end]) == crc else None

    def next(self, data: bytes, at: int, used: int) -> int | None:
        view = memoryview(data)
        heads: Iterator[int] = _candidates(data, _HEAD.size, at + 1, used)
        next_at, _ = self._read_head(view, at)
        while next_at is not None:  # the frame's size is certain, even if its content is damaged
            if self.end(view, next_at) is not None:
                return next_at
            heads = _candidates(data, _HEAD.size, next_at, used)
            next_at, _ = self._read_head(view, next_at)
        return next((head for head in heads if self.end(view, head) is not None), None)

    def _read_head(self, view: memoryview, at: int) -> tuple[int | None, int]:
        """The frame's end and CRC by its head; None when the head was not written at this position."""
        if at + _HEAD.size > len(view):
            return None, 0
        length, crc, tag = _HEAD.unpack_from(view, at)
        end = at + _HEAD.size + int(length)
        is_head = length > 0 and end <= len(view) and tag == self._tag(at, length, crc)
        return (end if is_head else None), crc

    def _tag(self, position: int, length: int, crc: int) -> bytes:
        tag = self._hash.copy()
        tag.update(_TAGGED.pack(position, length, crc))
        return tag.digest()


class UntaggedFrames:
    """Frames of format 2 and older: only the content's CRC distinguishes them from other bytes."""

    head_bytes = _OLD_HEAD.size

    def end(self, view: memoryview, at: int) -> int | None:
        if at + _OLD_HEAD.size > len(view):
            return None
        length, crc = _OLD_HEAD.unpack_from(view, at)
        start = at + _OLD_HEAD.size
        end = start + int(length)
        if length == 0 or end > len(view) or crc32c(view[start:end]) != crc:
            return None
        return end

    def next(self, data: bytes, at: int, used: int) -> int | None:
        """Skips an invalid frame whose batches match its length as a whole.

        Its content is not searched, because bytes of a client may look like a frame.
        """
        view = memoryview(data)
        claimed = _claimed_end(view, at, used)
        start = at + 1 if claimed is None else claimed
        if claimed is not None and self.end(view, claimed) is not None:
            return claimed
        effort = max(SEARCH_COST_MIN_BYTES, SEARCH_COST_FACTOR * (used - at))
        for head in _candidates(data, _OLD_HEAD.size, start, used):
            effort -= max(int.from_bytes(view[head : head + 4], "big"), CANDIDATE_COST_BYTES)
            if effort < 0:
                raise SearchAborted(head)
            if self.end(view, head) is not None:
                return head
        return None


@cache
def _head_pattern(head_bytes: int) -> re.Pattern[bytes]:
    """Matches magic 2 of a frame's first batch, with a plausible frame head and batch header before it.

    It is compiled for the first damaged frame: that takes milliseconds, which most starts can do without.

    Before the magic are the frame's length (below 64 MiB) and the rest of its head, a partition, the batch's size, and
    the batch's own base offset and length.
    """
    return re.compile(
        rb"\x02(?<=[\x00-\x03][\x00-\xff]{%d}\x00[\x00-\xff]{3}[\x00-\x03][\x00-\xff]{3}"
        rb"[\x00-\x7f][\x00-\xff]{7}[\x00-\x03][\x00-\xff]{7}\x02)(?=[\x00-\xff]{4}\x00)" % (head_bytes - 1)
    )


def _candidates(data: bytes, head_bytes: int, start: int, used: int) -> Iterator[int]:
    """Positions from ``start`` on where a frame may begin, by the lengths in it and in its first batch."""
    magic_at = head_bytes + _BATCH.size + 16
    size_at = head_bytes + 4
    for match in _head_pattern(head_bytes).finditer(data, start, min(len(data), used + magic_at + 1)):
        at = match.start() - magic_at
        length, size, batch_length = (
            int.from_bytes(data[at + offset : at + offset + 4], "big") for offset in (0, size_at, size_at + 12)
        )
        fits = size == batch_length + PREFIX_BYTES and HEADER_BYTES <= size <= length - _BATCH.size
        if at >= start and fits and at + head_bytes + length <= len(data):
            yield at


def _claimed_end(view: memoryview, at: int, used: int) -> int | None:
    """The end of an invalid frame by its head, if its batches match, as far as they were written; else None."""
    if at + _OLD_HEAD.size > len(view):
        return None
    end = at + _OLD_HEAD.size + int(_OLD_HEAD.unpack_from(view, at)[0])
    at += _OLD_HEAD.size
    while at < end:
        head = at + _BATCH.size
        if head + PREFIX_BYTES > used:
            break
        partition, size = _BATCH.unpack_from(view, at)
        at = head + size
        if partition < 0 or size < HEADER_BYTES or at > end or read_size(view, head) != size:
            return None
    return end
