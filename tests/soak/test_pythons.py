"""``make soak`` runs the tests with other versions of Python where their interpreters are."""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest

from .__main__ import PROGRESS_FILE
from .progress import Progress
from .proofs import PROOFS, ROOT, Proof
from .pythons import clean_environment, first_working, interpreter, make_command
from .runner import soak


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_interpreter_that_does_not_start_is_passed_over(tmp_path: Path) -> None:
    """Such as the scripts of pyenv, and one of another version."""
    broken = script(tmp_path / "broken", "echo 'pyenv: command not found' >&2; exit 127")
    other = script(tmp_path / "other", "echo Python 3.1.5")
    working = script(tmp_path / "working", "echo Python 3.12.1")
    assert first_working([tmp_path / "absent", broken, other, working], "3.12") == working
    assert first_working([broken, other], "3.12") is None


def test_interpreter_is_found_on_path_or_in_pyenv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "versions" / "3.99.1" / "bin"
    folder.mkdir(parents=True)
    python = script(folder / "python3.99", "echo Python 3.99.1")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "absent"))
    assert interpreter("3.99") is None
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert interpreter("3.99") == python
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "absent"))
    assert interpreter("3.99") == python


def test_make_runs_all_tests_in_an_environment_of_that_version() -> None:
    command = make_command("3.12", Path("/opt/python3.12"))
    assert command[2:] == ["test-real-time", "test-others", "PYTHON=/opt/python3.12", "VENV=.venv-3.12"]
    assert clean_environment({"VIRTUAL_ENV": "x", "MAKEFLAGS": "-j", "HOME": "/h"}) == {"HOME": "/h"}


def test_proof_that_cannot_run_here_is_skipped_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(tmp_path / "progress.json")
    proofs = {"absent": Proof(lambda seed: "failed", 1, 1, "run {seed}", lambda: "no such interpreter")}
    assert soak(proofs, progress, "c1", 60, processes=1) == 0
    assert progress.seeds_done("absent") == 0
    assert capsys.readouterr().out == "absent: skipped: no such interpreter\n"


def test_classifiers_name_the_versions_that_were_run() -> None:
    """``make test`` runs with 3.11; the progress of ``make soak`` says which others passed."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    prefix = "Programming Language :: Python :: "
    named = {line.removeprefix(prefix) for line in setup["metadata"]["classifiers"].splitlines() if prefix in line}
    progress = Progress(PROGRESS_FILE)
    run = {name.removeprefix("python-") for name in PROOFS if name.startswith("python-") and progress.seeds_done(name)}
    assert named - {"3 :: Only"} == {"3.11"} | run
