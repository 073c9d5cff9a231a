"""The wheel and the sdist: their files, and the program installed from them in a fresh virtual environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEADLINE_S = 300.0
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"


def call(*command: str | Path, folder: Path) -> str:
    """Run a program outside of the source tree. Returns its standard output."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    completed = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an sdist, and the wheel that is built from the files of the sdist."""
    folder = tmp_path_factory.mktemp("package")
    source, made, again = folder / "source", folder / "made", folder / "again"
    ignored = shutil.ignore_patterns("build", ".*", "__pycache__", "*.egg-info", "dist", "data")
    shutil.copytree(ROOT, source, ignore=ignored, symlinks=True)
    made.mkdir()
    call(sys.executable, "-c", BUILD, "build_sdist", made, folder=source)
    [sdist] = made.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(again, filter="data")
    [unpacked] = again.iterdir()
    call(sys.executable, "-c", BUILD, "build_wheel", made, folder=unpacked)
    return made


def names_in(distributions: Path, pattern: str) -> set[str]:
    [path] = distributions.glob(pattern)
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return set(wheel.namelist())
    with tarfile.open(path) as sdist:
        return {name.partition("/")[2] for name in sdist.getnames()}


def test_sdist_has_docs_examples_and_tests(distributions: Path) -> None:
    names = names_in(distributions, "*.tar.gz")
    for folder in ("docs", "examples", "actors", "runtime", "spark", "bench", "tests"):
        files = {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*.py")} - {""}
        assert {name for name in files if "__pycache__" not in name} <= names
    assert {"README.md", "CHANGELOG.md", "LICENSE", "Makefile", "docs/design.md"} <= names


def test_wheel_has_all_modules_and_nothing_else(distributions: Path) -> None:
    names = names_in(distributions, "*.whl")
    folders = {"actors": "actors", "bench": "bench", "spark": "spark", "runtime": "runtime"}
    for source, target in folders.items():
        modules = {f"callboard/{target}/{path.relative_to(ROOT / source)}" for path in (ROOT / source).rglob("*.py")}
        outside = ("callboard/runtime/front/", "callboard/spark/found/")
        assert {name for name in modules if not name.startswith(outside)} <= names
    assert {"callboard/__init__.py", "callboard/py.typed", "callboard/spark/log4j2.properties"} <= names
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"callboard", "pyspark_callboard"}


def test_metadata_of_wheel_is_complete(distributions: Path) -> None:
    [path] = distributions.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(wheel.read(name).decode())
    assert metadata["Name"] == "callboard"
    assert "Apache-2.0" in (metadata["License"], metadata["License-Expression"])
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    assert {"spark", "pytest", "fast"} <= set(metadata.get_all("Provides-Extra", []))


def test_program_runs_from_a_fresh_environment(distributions: Path, tmp_path: Path) -> None:
    """The commands of the container file in docs/running.md. The libraries come from this environment."""
    call(sys.executable, "-m", "venv", "fresh", folder=tmp_path)
    python = tmp_path / "fresh" / "bin" / "python"
    site = Path(call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=tmp_path).strip())
    [wheel] = distributions.glob("*.whl")
    call(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel, folder=tmp_path)
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    home = call(python, "-P", "-c", "import callboard; print(callboard.__file__)", folder=tmp_path)
    assert Path(home.strip()).is_relative_to(site)
    program = tmp_path / "fresh" / "bin" / "callboard"
    assert call(program, "--version", folder=tmp_path).startswith("callboard ")
    assert "Usage: callboard serve" in call(program, "serve", "--help", folder=tmp_path)
    assert "server" in call(program, "bench", "--help", folder=tmp_path)
