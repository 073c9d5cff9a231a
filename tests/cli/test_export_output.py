"""The file that ``callboard export`` writes is not one of the log, and no device is replaced by it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command_helpers import Command, run_export

from callboard.runtime.log.folder import DataFolder

fixtures = (run_export,)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    DataFolder(folder).close()
    return folder


def test_export_into_the_data_folder_is_refused(data: Path, run_export: Command, tmp_path: Path) -> None:
    """It would replace a file of the log, also through a link."""
    (tmp_path / "link").symlink_to(data)
    files = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    for output in (data / "callboard.json", tmp_path / "link" / "new.csv"):
        refused = run_export("--data", data, "--output", output)
        assert (refused.code, refused.out) == (2, "")
        assert f"bad --output '{output}': found a path in the data folder" in refused.err
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == files


def test_export_to_a_fifo_and_through_a_link_replaces_neither(data: Path, run_export: Command, tmp_path: Path) -> None:
    """So root does not replace /dev/null by a file, or /dev/stdout."""
    pipe, link, target = (tmp_path / name for name in ("pipe", "link", "target.csv"))
    os.mkfifo(pipe)
    link.symlink_to(target)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert run_export("--data", data, "--output", pipe).code == 0
        assert os.read(reader, 1000).startswith(b"group,topic,")
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert run_export("--data", data, "--output", link).code == 0
    assert link.is_symlink() and target.read_text().startswith("group,topic,")
