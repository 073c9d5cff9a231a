"""What is built is what is here: a wheel, made in a copy of the sources, holds every file and runs from anywhere."""

from __future__ import annotations

import shutil
import subprocess
import sys
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest
from import_graph import ROOT
from project_packages import FOLDERS, packages

from callboard import __version__

BUILD = "from setuptools import build_meta; build_meta.build_wheel('dist')"
INFO = f"callboard-{__version__}.dist-info"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("copy")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    done = subprocess.run([sys.executable, "-c", BUILD], cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (made,) = (copy / "dist").glob("*.whl")
    return made


def test_wheel_contains_every_file_of_every_package(wheel: Path) -> None:
    expected = {
        f"{name.replace('.', '/')}/{path.name}"
        for name, folder in packages().items()
        for path in folder.iterdir()
        if path.suffix in (".py", ".typed", ".properties")
    }
    assert {name for name in ZipFile(wheel).namelist() if not name.startswith(INFO)} == expected


def test_wheel_metadata_lists_requirements(wheel: Path) -> None:
    files = ZipFile(wheel)
    metadata = Parser().parsestr(files.read(f"{INFO}/METADATA").decode())
    assert (metadata["Name"], metadata["Version"], metadata["Requires-Python"]) == ("callboard", __version__, ">=3.11")
    assert set(metadata.get_all("Provides-Extra", [])) >= {"spark", "fast", "test", "bench"}
    needs = metadata.get_all("Requires-Dist", [])
    assert [need for need in needs if not any(sign in need for sign in "<>=")] == []  # a lower bound on each
    assert "callboard = callboard.runtime.cli.main:main" in files.read(f"{INFO}/entry_points.txt").decode()


def test_wheel_runs_from_any_folder_and_as_zip(wheel: Path, tmp_path: Path) -> None:
    """Even as a zip on the path, which is how a cluster's workers get it."""
    script = "import callboard, sys; print(callboard.__file__); from callboard.runtime.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "--version"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(wheel)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == [f"{wheel}/callboard/__init__.py", f"callboard {__version__}"], done.stderr
