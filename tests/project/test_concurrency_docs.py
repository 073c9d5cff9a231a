"""docs/concurrency.md: its commands have options that exist, and its code for histograms runs."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
from doc_pages import DOCS, dead_links

from callboard.bench.concurrency import run

PAGE = DOCS / "concurrency.md"
TEXT = PAGE.read_text()
COMMANDS = re.findall(r"^callboard bench concurrency(.*?)(?:#.*)?$", TEXT, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_command_of_the_page_has_valid_options(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (source,) = re.findall(r"```python\n(import threading.*?)```", TEXT, re.DOTALL)
    (tmp_path / "one_thread.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(64)), raising=False)
    monkeypatch.setattr(run, "which", lambda name: name)
    assert run.parse(shlex.split(command), run.catalogue()).engines


def test_most_commands_of_the_page_are_found() -> None:
    assert len(COMMANDS) >= 8


def test_histograms_of_the_page_can_be_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("hdrh.histogram")
    monkeypatch.chdir(tmp_path)
    arguments = ["--engines", "lock-group", "--workloads", "heartbeats", "--groups", "5", "--seconds", "0.05"]
    assert run.main([*arguments, "--rounds", "2", "--histograms", "--no-html"]) == 0
    capsys.readouterr()
    (code,) = re.findall(r"```py\n(.*?)```", TEXT, re.DOTALL)
    exec(code, {})
    assert int(capsys.readouterr().out) > 0, "nanoseconds"


def test_links_on_the_page_have_targets() -> None:
    assert dead_links(PAGE) == []
