"""Creates build/links/callboard: the package as a tree of links, for type checkers and for use without installation.

The folders of the repository are the packages under other names. An editable install maps them by an import hook, but
mypy runs no hooks. The links point to whole folders, so new files need no new links.
"""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINKS = ROOT / "build" / "links" / "callboard"


def python_path() -> str:
    """The PYTHONPATH for Spark's workers, on which Spark finds data sources by name, as in an installed package.

    The hook of an editable install does not support that search. A JVM keeps the path that it was started with.
    """
    return os.pathsep.join([str(LINKS.parent), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])


def targets() -> list[Path]:
    front = [path for path in (ROOT / "runtime" / "front").iterdir() if path.is_file()]
    return [ROOT / "actors", ROOT / "bench", ROOT / "runtime", ROOT / "spark", *front]


def create_links() -> None:
    """Create missing links, replace wrong ones and remove broken ones. Safe in several processes at once."""
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
    create_links()
