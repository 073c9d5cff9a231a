"""The progress bar of ``callboard log`` and ``callboard compact`` counts bytes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from log_helpers import offset
from partition_helpers import plain, write

from callboard.runtime.cli.byte_progress import Advance, byte_progress
from callboard.runtime.cli.log import actions
from callboard.runtime.cli.log.scan import find_partitions


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_of_partitions_advances_by_bytes_of_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = {0: [plain(0, offset("g", 1))], 1: [plain(at, offset("g", at)) for at in range(5)]}
    for number, content in batches.items():
        write(tmp_path, number, content)
    steps: list[int] = []

    @contextmanager
    def record(total_bytes: int, label: str, *, is_quiet: bool) -> Iterator[Advance]:
        steps.append(-total_bytes)
        yield steps.append

    monkeypatch.setattr(actions, "byte_progress", record)
    partitions = find_partitions(tmp_path)
    assert list(actions.progress(partitions, "checking")) == partitions
    sizes = [sum(map(len, content)) for content in batches.values()]
    assert steps == [-sum(sizes), *sizes]


@pytest.mark.parametrize(("is_quiet", "is_shown"), [(False, True), (True, False)])
def test_byte_progress_on_terminal_shows_label_and_bytes(
    monkeypatch: pytest.MonkeyPatch, is_quiet: bool, is_shown: bool
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with byte_progress(2000, "checking", is_quiet=is_quiet) as advance:
        advance(2000)
    assert ("checking" in terminal.getvalue() and "2.0/2.0 kB" in terminal.getvalue()) == is_shown


def test_byte_progress_without_terminal_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with byte_progress(2000, "checking") as advance:
        advance(2000)
    assert capsys.readouterr() == ("", "")
