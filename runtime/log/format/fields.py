"""The fields that keys and values of Kafka's own topics are made of: big endian, strings after their length.

Flexible schemas write lengths as unsigned varints of the length and one, and end each structure with tagged fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from .errors import DamagedRecord, UnwritableRecord
from .varint import decode_unsigned, encode_unsigned

MAX_STRING_BYTES = 32767  # a string's length is an int16

I8 = Struct(">b")
I16 = Struct(">h")
I32 = Struct(">i")
I64 = Struct(">q")


def bounded(text: str) -> bytes:
    """A string's bytes without their length. UnwritableRecord when there are too many."""
    data = text.encode()
    if len(data) > MAX_STRING_BYTES:
        raise UnwritableRecord(f"a string of {len(data)} bytes, expected at most {MAX_STRING_BYTES}: {text[:40]!r}...")
    return data


def string(text: str) -> bytes:
    """A string after its length, as in schemas that are not flexible."""
    data = bounded(text)
    return I16.pack(len(data)) + data


def nullable(text: str | None) -> bytes:
    """The same for a string that may be null."""
    return b"\xff\xff" if text is None else string(text)


def compact_string(text: str) -> bytes:
    """A string as in flexible schemas."""
    data = bounded(text)
    return encode_unsigned(len(data) + 1) + data


def compact_nullable(text: str | None) -> bytes:
    """The same for a string that may be null."""
    return b"\0" if text is None else compact_string(text)


def compact_bytes(data: bytes) -> bytes:
    return encode_unsigned(len(data) + 1) + data


def compact_array(items: Sequence[bytes]) -> bytes:
    """The encoded items of an array after their number, as in flexible schemas."""
    return encode_unsigned(len(items) + 1) + b"".join(items)


def tag_section(*tags: tuple[int, bytes]) -> bytes:
    """The tagged fields at the end of a flexible structure: tags, in ascending order, and bytes."""
    parts = (encode_unsigned(tag) + encode_unsigned(len(data)) + data for tag, data in tags)
    return encode_unsigned(len(tags)) + b"".join(parts)


class Reader:
    """Reads fields one after the other; a field that does not fit is a DamagedRecord at its position."""

    __slots__ = ("_at", "_data", "_flexible", "_part")

    def __init__(self, part: str, data: bytes) -> None:
        self._part = part
        self._data = data
        self._at = 0
        self._flexible = False

    def version(self, newest: int, flexible_from: int) -> int:
        """A value's version, which also says whether it is flexible."""
        version = self.number(I16)
        if not 0 <= version <= newest:
            raise self._damaged(0, f"value version {version}, expected 0 to {newest}")
        self._flexible = version >= flexible_from
        return version

    def number(self, form: Struct) -> int:
        end = self._at + form.size
        if end > len(self._data):
            raise self._damaged(self._at, f"{form.size} bytes expected, {len(self._data) - self._at} left")
        (number,) = form.unpack_from(self._data, self._at)
        self._at = end
        return int(number)

    def string(self) -> str:
        at = self._at
        text = self.nullable_string()
        if text is None:
            raise self._damaged(at, "a null string where none may be null")
        return text

    def nullable_string(self) -> str | None:
        at = self._at
        length = self._compact_length() if self._flexible else self.number(I16)
        if length == -1:
            return None
        try:
            return self._take(at, length).decode()
        except UnicodeDecodeError as error:
            raise self._damaged(at, f"a string is not UTF-8: {error.reason}") from None

    def raw(self) -> bytes:
        at = self._at
        return self._take(at, self._compact_length() if self._flexible else self.number(I32))

    def fixed(self, size: int) -> bytes:
        """``size`` bytes, without their number before them."""
        return self._take(self._at, size)

    def part(self, data: bytes) -> Reader:
        """Reads the content of a tagged field of a flexible structure."""
        reader = Reader(self._part, data)
        reader._flexible = True
        return reader

    def count(self) -> int:
        """The length of an array."""
        at = self._at
        count = self._compact_length() if self._flexible else self.number(I32)
        if count < 0:
            raise self._damaged(at, f"an array of {count} elements")
        return count

    def nullable_count(self) -> int | None:
        """The length of an array that may be null."""
        count = self._compact_length() if self._flexible else self.number(I32)
        return None if count == -1 else count

    def tags(self) -> dict[int, bytes]:
        """The tagged fields at the end of a flexible structure, by tag; callers look up those that they know."""
        if not self._flexible:
            return {}
        return dict(self._tag() for _ in range(self._varint()))

    def _tag(self) -> tuple[int, bytes]:
        at = self._at
        return self._varint(), self._take(at, self._varint())

    def _compact_length(self) -> int:
        return self._varint() - 1

    def _varint(self) -> int:
        try:
            number, self._at = decode_unsigned(self._data, self._at)
        except ValueError as error:
            raise self._damaged(self._at, str(error)) from None
        return number

    def _take(self, field_at: int, length: int) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._data):
            remaining_bytes = len(self._data) - self._at
            raise self._damaged(field_at, f"a field of {length} bytes, {remaining_bytes} left")
        field = self._data[self._at : end]
        self._at = end
        return field

    def _damaged(self, position: int, reason: str) -> DamagedRecord:
        return DamagedRecord(self._part, position, reason)
