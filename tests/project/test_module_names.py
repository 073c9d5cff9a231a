"""Each test module has an import name of its own: pytest imports two files of one name only once, and then fails."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from project_paths import ROOT

TESTS = ROOT / "tests"


def import_name(path: Path) -> str:
    """The name under which pytest imports a file: its path from the first folder that is not a package."""
    package = path.parent
    while (package / "__init__.py").exists():
        package = package.parent
    return ".".join(path.relative_to(package).with_suffix("").parts)


def repeated(paths: Iterable[Path]) -> list[list[Path]]:
    by_name: dict[str, list[Path]] = {}
    for path in paths:
        by_name.setdefault(import_name(path), []).append(path)
    return [same for same in by_name.values() if len(same) > 1]


def test_import_names_are_unique() -> None:
    assert repeated(TESTS.rglob("test_*.py")) == []


def test_repeated_name_is_reported(tmp_path: Path) -> None:
    first, second, packaged = (tmp_path / folder / "test_same.py" for folder in ("first", "second", "packaged"))
    for path in (first, second, packaged):
        path.parent.mkdir()
        path.touch()
    (packaged.parent / "__init__.py").touch()
    assert repeated([first, second, packaged]) == [[first, second]]
