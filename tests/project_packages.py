"""The packages of the project, by their import names."""

from __future__ import annotations

from pathlib import Path

from import_graph import NAME, ROOT

FOLDERS = ("actors", "runtime", "spark", "bench")
FRONT = ROOT / "runtime" / "front"
PYSPARK_CALLBOARD = ROOT / "spark" / "found"
"""Installed as ``pyspark_callboard``, where Spark finds it. It imports Callboard as a user does."""


def packages() -> dict[str, Path]:
    """The folder of each package, by its import name."""
    folders = {NAME: FRONT, "pyspark_callboard": PYSPARK_CALLBOARD}
    for folder in FOLDERS:
        for init in (ROOT / folder).rglob("__init__.py"):
            if init.parent not in folders.values():
                folders[".".join((NAME, *init.parent.relative_to(ROOT).parts))] = init.parent
    return folders
