"""Without Java: the tests are skipped with a message and fail in CI; the command names the requirement."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from project_paths import ROOT

from callboard.runtime.log.folder import DataFolder

TEST = "tests/spark/test_spark_source.py::test_arrow_schema_equals_spark_schema"


def environment(path: Path, **variables: str) -> dict[str, str]:
    """The current environment with PATH set to an empty folder."""
    variables_kept = {name: text for name, text in os.environ.items() if name not in ("CI", "JAVA_HOME")}
    return {**variables_kept, "PATH": str(path), **variables}


def run_test(path: Path, **variables: str) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", TEST]
    completed = subprocess.run(
        command, cwd=ROOT, env=environment(path, **variables), capture_output=True, text=True, check=False, timeout=120
    )
    return completed.stdout


def test_spark_tests_without_java_are_skipped_and_fail_in_ci(tmp_path: Path) -> None:
    output = run_test(tmp_path)
    assert "1 skipped" in output and "Spark needs Java 17 or newer" in output
    output = run_test(tmp_path, CI="true")
    assert "1 error" in output and "in CI the tests with Spark are not optional: Spark needs Java 17 or newer" in output


@pytest.mark.parametrize("version", [None, "11.0.20"])
def test_compact_command_without_java_names_requirement(tmp_path: Path, version: str | None) -> None:
    DataFolder(tmp_path / "data", 1).close()
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    if version:
        (bin_folder / "java").write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2023-07-18' >&2\n")
        (bin_folder / "java").chmod(0o755)
    script = "from callboard.runtime.cli.main import main; main()"
    arguments = ["compact", "--spark", "--data", str(tmp_path / "data")]
    env = environment(Path(f"{bin_folder}:/bin") if version else bin_folder)
    completed = subprocess.run(
        [sys.executable, "-c", script, *arguments], env=env, capture_output=True, text=True, check=False, timeout=60
    )
    assert completed.returncode == 2
    (line,) = completed.stderr.splitlines()
    assert line.startswith("callboard: Spark needs Java 17 or newer: ")
    assert (version or "found none") in line


def test_invalid_master_is_refused_before_spark_starts(tmp_path: Path) -> None:
    DataFolder(tmp_path / "data", 1).close()
    script = "from callboard.runtime.cli.main import main; main()"
    for command in (["compact", "--spark"], ["analyse", "commits"]):
        arguments = [*command, "--data", str(tmp_path / "data"), "--master", "nonsense"]
        completed = subprocess.run(
            [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False, timeout=60
        )
        assert completed.returncode == 2
        (line,) = completed.stderr.splitlines()
        assert line.startswith("callboard: bad --master 'nonsense': expected yarn, or ")
