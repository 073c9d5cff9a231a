"""Reads the text of a file, a pipe or standard input in chunks, so that no input can fill the memory.

A line, a record or a JSON value has at most ``RECORD_CHARS_MAX`` characters, and the whole at most ``max_bytes``.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ...common.errors import StartError

STDIN = Path("-")
BYTES_MAX = 10_000_000_000
RECORD_CHARS_MAX = 1024 * 1024
"""Five times the longest group and metadata in Kafka's records, with each character escaped in JSON."""

CHUNK_BYTES = 64 * 1024

_LINE_END = re.compile(r"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"


class TooLong(Exception):
    """A line, record or value has more than RECORD_CHARS_MAX characters."""

    def __init__(self) -> None:
        super().__init__(f"found no end of it within {RECORD_CHARS_MAX} characters, expected a shorter one")


class TextSource:
    """Reads text in UTF-8. ``lines_read``: the number of lines that ``skip_blank`` has dropped."""

    def __init__(self, path: Path, stream: BinaryIO, max_bytes: int = BYTES_MAX) -> None:
        self.lines_read = 0
        self._path = path
        self._stream = stream
        self._max_bytes = max_bytes
        self._undecoded = b""
        self._bytes_decoded = 0
        self._line = 1
        self._text = ""

    def read(self) -> str:
        """The next chunk; empty at the end. StartError when it is not UTF-8, or exceeds ``max_bytes``."""
        text, self._text = self._text, ""
        while not text:
            data = self._read_bytes()
            is_last = not data
            data = self._undecoded + data
            if not self._bytes_decoded and data.startswith(_BOM):
                data, self._bytes_decoded = data[len(_BOM) :], len(_BOM)
            text, size = self._decode(data, is_last)
            self._undecoded = data[size:]
            self._bytes_decoded += size
            self._line += text.count("\n")
            if is_last:
                break
        return text

    def skip_blank(self) -> str:
        """Skip white space and return the next character; empty if there is none."""
        while text := self.read():
            if stripped := text.lstrip():
                self._text = text
                return stripped[0]
            self.lines_read += text.count("\n")
        return ""

    def lines(self) -> Iterator[str]:
        """Lines with their line ends: those of the csv module. TooLong."""
        partial_line = ""
        while text := self.read():
            partial_line += text
            start = 0
            for match in _LINE_END.finditer(partial_line):
                if match[0] == "\r" and match.end() == len(partial_line):
                    break  # perhaps the first half of \r\n
                yield partial_line[start : match.end()]
                start = match.end()
            partial_line = partial_line[start:]
            if len(partial_line) > RECORD_CHARS_MAX:
                raise TooLong
        if partial_line:
            yield partial_line

    def _read_bytes(self) -> bytes:
        position = self._bytes_decoded + len(self._undecoded)
        try:
            data = self._stream.read(min(CHUNK_BYTES, self._max_bytes - position + 1))
        except OSError as error:
            raise read_error(self._path, error) from error
        if position + len(data) > self._max_bytes:
            raise size_error(self._path, self._max_bytes)
        return data

    def _decode(self, data: bytes, is_last: bool) -> tuple[str, int]:
        """The text and the number of bytes decoded, without an incomplete character at the end of the data."""
        try:
            return data.decode(), len(data)
        except UnicodeDecodeError as error:
            if not is_last and error.end == len(data) and error.reason == "unexpected end of data":
                return data[: error.start].decode(), error.start
            line, byte = self._line + data.count(b"\n", 0, error.start), self._bytes_decoded + error.start
            raise StartError(
                f"{self._path}, line {line}: found bytes that are not UTF-8, at byte {byte}, expected text in UTF-8"
            ) from None


class RecordLines:
    """The lines of a source. TooLong when one record has more than RECORD_CHARS_MAX characters."""

    def __init__(self, source: TextSource) -> None:
        self._lines = source.lines()
        self._chars = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self._chars += len(line)
        if self._chars > RECORD_CHARS_MAX:
            raise TooLong
        return line

    def begin_record(self) -> None:
        self._chars = 0


@contextmanager
def open_text(path: Path, max_bytes: int = BYTES_MAX) -> Iterator[TextSource]:
    """A file, or standard input for ``-``. StartError when it cannot be read."""
    if path == STDIN:
        yield TextSource(path, sys.stdin.buffer, max_bytes)
        return
    try:
        stream = path.open("rb")
    except OSError as error:
        raise read_error(path, error) from error
    with stream:
        status = os.fstat(stream.fileno())
        if stat.S_ISREG(status.st_mode) and status.st_size > max_bytes:
            raise size_error(path, max_bytes)
        yield TextSource(path, stream, max_bytes)


def read_error(path: Path, error: OSError) -> StartError:
    return StartError(f"{path}: cannot be read: {error.strerror or error}; check the path")


def size_error(path: Path, max_bytes: int) -> StartError:
    return StartError(
        f"{path}: found more than {max_bytes} bytes; give a larger --max-bytes, if this is the right file"
    )
