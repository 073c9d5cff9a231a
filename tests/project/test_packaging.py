"""What is built is what is here: an sdist, and the wheel that is made from it, which runs from anywhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from email.parser import Parser
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile

import pytest
from archives import extract
from import_graph import ROOT
from packaging.specifiers import SpecifierSet
from project_packages import FOLDERS, packages

from callboard import __version__

DEADLINE_S = 300.0
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"
LINK = re.compile(r"(?<=\]\()[^)\s]+(?=\))")
OLDEST_PYTHON = "3.11.0"  # of python_requires in setup.cfg
INFO = f"callboard-{__version__}.dist-info"


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
        extract(archive, again)
    [unpacked] = again.iterdir()
    call(sys.executable, "-c", BUILD, "build_wheel", made, folder=unpacked)
    return made


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> Path:
    (made,) = distributions.glob("*.whl")
    return made


def test_sdist_has_docs_examples_and_tests(distributions: Path) -> None:
    [path] = distributions.glob("*.tar.gz")
    with tarfile.open(path) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    for folder in ("docs", "examples", "tests", *FOLDERS):
        files = (path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md"))
        assert {str(path.relative_to(ROOT)) for path in files if "__pycache__" not in path.parts} <= names
    assert {"README.md", "CHANGELOG.md", "LICENSE", "Makefile"} <= names


def test_wheel_contains_every_file_of_every_package(wheel: Path) -> None:
    expected = {
        f"{name.replace('.', '/')}/{path.name}"
        for name, folder in packages().items()
        for path in folder.iterdir()
        if path.suffix in (".py", ".typed", ".properties", ".yaml", ".json")
    }
    page = ROOT / "runtime" / "web" / "page"
    expected |= {
        f"callboard/{path.relative_to(ROOT)}" for name in ("static", "templates") for path in (page / name).iterdir()
    }
    assert {name for name in ZipFile(wheel).namelist() if not name.startswith(INFO)} == expected


def test_wheel_metadata_lists_requirements(wheel: Path) -> None:
    files = ZipFile(wheel)
    metadata = Parser().parsestr(files.read(f"{INFO}/METADATA").decode())
    assert (metadata["Name"], metadata["Version"], metadata["Requires-Python"]) == ("callboard", __version__, ">=3.11")
    assert "Apache-2.0" in (metadata["License"], metadata["License-Expression"])
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert set(metadata.get_all("Provides-Extra", [])) >= {"spark", "fast", "test", "bench"}
    needs = metadata.get_all("Requires-Dist", [])
    assert [need for need in needs if not any(sign in need for sign in "<>=")] == []  # a lower bound on each
    assert "callboard = callboard.runtime.cli.main:main" in files.read(f"{INFO}/entry_points.txt").decode()


HOME = "https://github.com/callboard/callboard"


def test_wheel_metadata_has_the_urls_and_absolute_links(wheel: Path) -> None:
    """A package index shows README.md, and has none of the files beside it."""
    metadata = Parser().parsestr(ZipFile(wheel).read(f"{INFO}/METADATA").decode())
    urls = dict(line.split(", ", 1) for line in metadata.get_all("Project-URL", []))
    assert urls.keys() == {"Homepage", "Documentation", "Source", "Changelog", "Issues"}
    assert {url for url in urls.values() if not url.startswith(HOME)} == set()
    assert metadata["Author"] and metadata["Maintainer"]
    text = str(metadata.get_payload())
    assert re.sub(LINK, "", text) == re.sub(LINK, "", (ROOT / "README.md").read_text())
    targets = re.findall(LINK, text)
    assert len(targets) == len(re.findall(LINK, (ROOT / "README.md").read_text())) > 40
    assert [target for target in targets if not target.startswith("https://")] == []
    files = [target.removeprefix(f"{HOME}/").split("/", 2) for target in targets if target.startswith(HOME)]
    assert [file for file in files if not (ROOT / file[2].partition("#")[0]).is_file()] == []
    assert {kind for kind, branch, _path in files} == {"blob", "raw"}


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


def test_program_runs_from_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    """The commands of the container file in docs/running.md. The libraries come from this environment."""
    call(sys.executable, "-m", "venv", "fresh", folder=tmp_path)
    python = tmp_path / "fresh" / "bin" / "python"
    site = Path(call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=tmp_path).strip())
    call(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel, folder=tmp_path)
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    home = call(python, "-P", "-c", "import callboard; print(callboard.__file__)", folder=tmp_path)
    assert Path(home.strip()).is_relative_to(site)
    program = tmp_path / "fresh" / "bin" / "callboard"
    assert call(program, "--version", folder=tmp_path).startswith("callboard ")
    assert "Usage: callboard serve" in call(program, "serve", "--help", folder=tmp_path)
    assert "server" in call(program, "bench", "--help", folder=tmp_path)


def test_installed_packages_accept_oldest_python() -> None:
    """A constraint that needs a newer Python than setup.cfg would stop ``make test`` there."""
    assert SpecifierSet(metadata.metadata("callboard")["Requires-Python"]).contains(OLDEST_PYTHON)
    refused = {
        f"{package.name} {package.version}: {required}"
        for package in metadata.distributions()
        if (required := package.metadata["Requires-Python"]) and not SpecifierSet(required).contains(OLDEST_PYTHON)
    }
    assert not refused
