"""Tests of ``callboard import`` with endless or invalid input: a clear error, and bounded memory."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from callboard.runtime.cli.exchange import parse
from callboard.runtime.cli.exchange.offsets_file import WantedOffsets
from callboard.runtime.cli.exchange.parse import BAD_LINES_MAX, read_table
from callboard.runtime.cli.exchange.text_source import BYTES_MAX, RECORD_CHARS_MAX, TextSource, open_text
from callboard.runtime.cli.groups.reset import read_offsets
from callboard.runtime.client.cluster import OffsetAndMetadata
from callboard.runtime.common.errors import StartError

MEBIBYTE = 1024 * 1024
MEMORY_MAX = 400 * MEBIBYTE
"""Address space of a process that needs 200 MiB at its start."""

INPUT_BYTES = 600 * MEBIBYTE

PROGRAM = """
import resource, sys
from callboard.runtime.cli.exchange import imports
from callboard.runtime.common.errors import StartError
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]), int(sys.argv[1])))
try:
    imports.main(sys.argv[2:])
except StartError as error:
    print(error, file=sys.stderr)
    sys.exit(2)
"""


def limited_import(*arguments: str, stdin: Any = subprocess.DEVNULL) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, str(MEMORY_MAX), *arguments]
    return subprocess.run(command, stdin=stdin, capture_output=True, text=True, check=False)


def endless(chunk: bytes, prefix: bytes) -> Iterator[bytes]:
    yield prefix
    for _ in range(INPUT_BYTES // len(chunk)):
        yield chunk


ENDLESS = {
    "line": (b"x" * 65536, b"group,topic,partition,offset\n", "line 2: found no CSV (found no end of it"),
    "quoted field": (b'\n"" x' * 9999, b'g,t,0,"', "line 1: found no CSV (field larger than field limit"),
    "record": (b'"a\n",' * 9999, b"g,t,0,1\n", "line 2: found no CSV (found no end of it"),
    "json string": (b"y" * 65536, b'[\n{"group": "', "line 2: found no JSON (found no end of it"),
    "json value": (b'"a": [1, 2],\n' * 5000, b"\n\n{", "line 3: found no JSON (found no end of it"),
    "nested json": (b"[" * 65536, b'{"group": ', "line 1: found no JSON"),
    "bad lines": (b"a,b\n" * 9999, b"", f"{BAD_LINES_MAX:,} bad lines (990 more are not shown); the rest was not read"),
    "garbage": (bytes(range(256)) * 256, b"", "line 2: found bytes that are not UTF-8, at byte 128"),
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_endless_input_is_refused_in_bounded_memory(tmp_path: Path, kind: str) -> None:
    """Through a FIFO, whose size is unknown. The import does not wait for its writer."""
    chunk, prefix, expected = ENDLESS[kind]
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    def write() -> None:
        try:
            with fifo.open("wb", buffering=0) as out:
                for data in endless(chunk, prefix):
                    out.write(data)
        except BrokenPipeError:
            pass

    writer = threading.Thread(target=write)
    writer.start()
    completed = limited_import(str(fifo))
    writer.join()
    assert completed.returncode == 2, completed.stderr
    assert expected in completed.stderr and "Traceback" not in completed.stderr


def test_dev_zero_is_refused() -> None:
    completed = limited_import("/dev/zero")
    assert completed.returncode == 2 and "Traceback" not in completed.stderr
    assert (
        f"/dev/zero, line 1: found no CSV (found no end of it within {RECORD_CHARS_MAX} characters" in completed.stderr
    )


def test_endless_blank_input_is_refused_at_max_bytes() -> None:
    source = TextSource(Path("name"), io.BytesIO(b" \n" * 2_000_000), max_bytes=3_000_000)
    with pytest.raises(StartError, match=r"name: found more than 3000000 bytes; .* --max-bytes"):
        source.skip_blank()


def test_file_larger_than_max_bytes_is_refused_unread(tmp_path: Path) -> None:
    """The file is sparse, so it takes no disk space."""
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(BYTES_MAX + 1)
    with pytest.raises(StartError, match=f"large: found more than {BYTES_MAX} bytes"):
        read_table(path, pytest.fail)
    path.write_text("g,t,0,1\n")
    assert limited_import(str(path), "--max-bytes", "7").stderr.startswith(f"{path}: found more than 7 bytes")
    assert len(read_table(path, pytest.fail, max_bytes=8)) == 1


def rows_of_csv(count: int) -> Iterator[bytes]:
    yield b"group,topic,partition,offset,metadata\n"
    for number in range(count):
        yield b'g%d,t,%d,%d,"%s"\n' % (number % 7, number, number, b"m" * 3000)


def rows_of_json(count: int) -> Iterator[bytes]:
    yield b"["
    for number in range(count):
        comma = b"," if number else b""
        fields = number % 7, number, number, b"m" * 3000
        yield b'%s\n{"group": "g%d", "topic": "t", "partition": %d, "offset": %d, "metadata": "%s"}' % (comma, *fields)
    yield b"\n]"


@pytest.mark.parametrize("rows", [pytest.param(rows_of_csv, marks=pytest.mark.long), rows_of_json])
def test_memory_is_bounded_for_large_valid_file(tmp_path: Path, rows: Callable[[int], Iterator[bytes]]) -> None:
    """200 MB of metadata: as objects they would exceed the memory limit."""
    path = tmp_path / "offsets"
    with path.open("wb") as file:
        file.writelines(rows(70_000))
    program = PROGRAM.replace(
        "imports.main(sys.argv[2:])",
        "from pathlib import Path\n"
        "    from callboard.runtime.cli.exchange.parse import read_table\n"
        "    found = read_table(Path(sys.argv[2]), print)\n"
        "    print(len(found), sum(len(found[group]) for group in found))",
    )
    command = [sys.executable, "-c", program, str(MEMORY_MAX), str(path)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (completed.stdout, completed.stderr) == ("7 70000\n", "")


# Pieces --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 7, 65536])
def test_chunk_size_does_not_change_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int) -> None:
    """Multi-byte characters, two-byte line ends, quoted line ends and JSON values are split at any point."""
    monkeypatch.setattr("callboard.runtime.cli.exchange.text_source.CHUNK_BYTES", chunk_bytes)
    expected = {"grüße 🎉": {("t", 0): OffsetAndMetadata(5, -1, 'a\r\nb "q"\r'), ("t", 1): OffsetAndMetadata(6, 2, "")}}
    path = tmp_path / "offsets"
    texts = (
        "\ufeffgroup,topic,partition,offset,leader_epoch,metadata\r\n"
        '"grüße 🎉",t,0,5,,"a\r\nb ""q""\r"\r\ngrüße 🎉,t,1,6,2,\n',
        '\n \n[{"group": "grüße 🎉", "topic": "t", "partition": 0, "offset": 5, "metadata": "a\\r\\nb \\"q\\"\\r"},\n'
        '{"group": "gr\\u00fc\\u00dfe 🎉", "topic": "t",\n "partition": 1, "offset": 6, "leader_epoch": 2}\n]\n',
    )
    for text in texts:
        path.write_bytes(text.encode())
        assert read_table(path, pytest.fail) == expected


@pytest.mark.parametrize("chunk_bytes", [1, 5, 65536])
def test_chunk_size_does_not_change_line_of_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    monkeypatch.setattr("callboard.runtime.cli.exchange.text_source.CHUNK_BYTES", chunk_bytes)
    valid_object = '{"group": "g", "topic": "t",\n "partition": 0, "offset": 1}'
    cases = {
        f"\n[{valid_object},\n{{]": "line 4: found no JSON",
        f"[{valid_object}\n\n": "line 4: found no end of the array",
        f"[{valid_object}]\n, ": "line 2: found more behind the end",
        f"[{valid_object}\n]\n\n": "",
        f"{valid_object}\n{valid_object}": "line 3: found 'g' t:0 a second time, expected each once; line 1 has it too",
        '\n\ng,t,0,1\n\ng,t,"0,2\n': "line 5: found no CSV",
    }
    for text, expected in cases.items():
        path, problems = tmp_path / "offsets", list[str]()
        path.write_text(text)
        try:
            read_table(path, problems.append)
        except StartError:
            assert expected and expected in problems[0]
        else:
            assert not expected


@pytest.mark.parametrize("data", [b"a\n\xff", "grü".encode()[:-1], b"a\n\xf0\x9f\x8e", b"a\n\xed\xa0\x80"])
@pytest.mark.parametrize("chunk_bytes", [1, 65536])
def test_invalid_utf8_is_refused_with_position(monkeypatch: pytest.MonkeyPatch, data: bytes, chunk_bytes: int) -> None:
    monkeypatch.setattr("callboard.runtime.cli.exchange.text_source.CHUNK_BYTES", chunk_bytes)
    source = TextSource(Path("name"), io.BytesIO(data))
    with pytest.raises(StartError, match=r"name, line [12]: found bytes that are not UTF-8, at byte 2"):
        list(source.lines())


def test_full_disk_for_temporary_files_is_an_oserror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "offsets"
    path.write_bytes(b"".join(rows_of_csv(700)))
    original_class = WantedOffsets

    class Full(original_class):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self._database.execute("PRAGMA max_page_count = 50")

    monkeypatch.setattr(parse, "WantedOffsets", Full)
    with pytest.raises(OSError, match=r"a temporary file for the offsets: .*full"):
        read_table(path, pytest.fail)


def test_reset_from_endless_file_is_refused() -> None:
    with pytest.raises(StartError, match=r"'/dev/zero' is not CSV in UTF-8: found no end of it within"):
        read_offsets(Path("/dev/zero"))


def test_import_of_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="cannot be read: Is a directory"), open_text(tmp_path):
        pass


def test_wanted_offsets_collected_in_another_thread_are_closed() -> None:
    offsets: list[WantedOffsets] = [WantedOffsets()]
    errors: list[object] = []
    previous_hook, sys.unraisablehook = sys.unraisablehook, errors.append
    try:
        thread = threading.Thread(target=offsets.clear)
        thread.start()
        thread.join()
    finally:
        sys.unraisablehook = previous_hook
    assert errors == []
