"""Draws build/links/callboard: a picture of the import name, for type checkers and for running without installing.

The folders are the packages under other names, which an editable install tells Python by a hook; mypy and pyright run
no hooks. Links to whole folders show a new file at once.
"""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINKS = ROOT / "build" / "links" / "callboard"


def python_path() -> str:
    """The path for Spark's workers, on which they find what Spark looks for by name, as in an installed package.

    The hook of an editable install shows nothing to who looks for names. A JVM keeps the path that it was started with.
    """
    return os.pathsep.join([str(LINKS.parent), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])


def targets() -> list[Path]:
    front = [path for path in (ROOT / "runtime" / "front").iterdir() if path.is_file()]
    return [ROOT / "actors", ROOT / "bench", ROOT / "runtime", ROOT / "spark", *front]


def draw() -> None:
    """Make the links that are missing or wrong, remove those that lead nowhere; safe in several processes at once."""
    LINKS.mkdir(parents=True, exist_ok=True)
    wanted = {LINKS / target.name: target for target in targets()}
    wanted[LINKS.parent / "pyspark_callboard"] = ROOT / "spark" / "found"
    for link, target in wanted.items():
        if not (link.is_symlink() and link.resolve() == target):
            fresh = link.with_name(f".{link.name}.{os.getpid()}")
            fresh.symlink_to(os.path.relpath(target, link.parent))
            fresh.replace(link)
    for link in LINKS.iterdir():
        if not link.exists():
            link.unlink(missing_ok=True)


if __name__ == "__main__":
    draw()
