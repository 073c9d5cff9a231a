"""Who may import whom. A change to the tables here is a change of the design, not of a test."""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NAME = "callboard"
FOLDERS = ("actors", "runtime", "spark", "bench")
# What a command looks like, and how it refuses.
COMMANDS_NEED = ("runtime/cli", "runtime/config", "runtime/errors", "runtime/groups/show")
# What a folder may import of ours besides itself: folders, or one package of a folder.
OURS = {
    "actors": (),
    "runtime": ("actors",),
    "spark": ("runtime/log", "runtime/client", *COMMANDS_NEED),
    "bench": ("actors", "runtime", "spark"),
}
# Libraries that the runtime can do without, and the extra that brings each.
OPTIONAL = {"numpy": "fast", "cramjam": "compression", "pytest": "pytest"}
ACTORS_LIBRARIES = {"pykka", "sortedcontainers"}
# Installed under a name of its own, for Spark to find; both import as a user does, as programs for spark-submit must.
FOUND = ROOT / "spark" / "found"
PROGRAMS = (ROOT / "spark" / "submit_compact.py",)
FILES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
# Not in a package: each is a program of somebody who has installed ours.
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
EXAMPLES_SHOW = ("actors", "runtime", "testing")
# What an example is about: whoever reads it has that library already, or reads another one.
EXAMPLES_NEED = {
    "fastapi_service.py": {"fastapi"},
    "resize_images.py": {"PIL"},
    "test_aiokafka_service.py": {"aiokafka", "pytest"},
    "test_confluent_rebalance.py": {"confluent_kafka", "pytest"},
}
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))


def imports(source: str, path: Path) -> Iterator[tuple[str, bool]]:
    """What a file imports: ours as a path from the root and ``True``, a library as its top-level name and ``False``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (named(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            folder = path.parents[node.level - 1].relative_to(ROOT)
            target = folder.joinpath(*(node.module or "").split("."))
            # "from .. import actors" names the folder behind the word import.
            yield from ((str(target / alias.name) if target == Path() else str(target), True) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield named(node.module or "")


def named(dotted: str) -> tuple[str, bool]:
    top, *rest = dotted.split(".")
    return ("/".join(rest) or "runtime/front", True) if top == NAME else (top, False)


def layer_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0]


def inside(target: str, folder: str) -> bool:
    return target == folder or target.startswith(folder + "/")


def forbidden(source: str, path: Path) -> list[str]:
    """The imports of ours that the tables do not allow. The front, which only knows names, is open to all."""
    layer = layer_of(path)
    allowed = (layer, "runtime/front", *OURS[layer])
    ours = [target for target, is_ours in imports(source, path) if is_ours]
    return [target for target in ours if not any(inside(target, folder) for folder in allowed)]


@each_file
def test_imports_follow_the_arrows(path: Path) -> None:
    assert forbidden(path.read_text(), path) == []


@each_file
def test_actors_know_three_libraries_and_no_more(path: Path) -> None:
    """An actor decides; what it would need another library for is the runtime's."""
    libraries = {name for name, is_ours in imports(path.read_text(), path) if not is_ours}
    if layer_of(path) == "actors":
        assert libraries <= sys.stdlib_module_names | ACTORS_LIBRARIES


@each_file
def test_imports_between_our_folders_are_relative(path: Path) -> None:
    """Then they are true on disk and in the package. The bench is outside and imports as a user does."""
    front = ROOT / "runtime" / "front"
    if layer_of(path) != "bench" and path.parent not in (front, FOUND) and path not in PROGRAMS:
        names = re.findall(rf"^\s*(?:from|import) {NAME}\.", path.read_text(), re.MULTILINE)
        assert names == []


def not_for_examples(source: str, path: Path) -> list[str]:
    """What a reader of an example would have to install besides, or could not import at all."""
    libraries = sys.stdlib_module_names | EXAMPLES_NEED.get(path.name, set())
    return [
        target
        for target, is_ours in imports(source, path)
        if not (any(inside(target, folder) for folder in EXAMPLES_SHOW) if is_ours else target in libraries)
    ]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_example_needs_the_installed_package_and_no_more(path: Path) -> None:
    assert not_for_examples(path.read_text(), path) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("import pykka", ["pykka"]),
        ("from . import embed_actors", ["examples"]),
        ("from .embed_actors import Quota", ["examples/embed_actors"]),
        ("from callboard.bench import harness", ["bench"]),
        ("from callboard.runtime import System", []),
        ("from callboard.actors.ports import Entry", []),
        ("from callboard.testing import BlockingTime", []),
        ("import fastapi", ["fastapi"]),
        ("import asyncio", []),
    ],
)
def test_what_an_example_may_not_import_is_found(line: str, expected: list[str]) -> None:
    assert not_for_examples(line, ROOT / "examples" / "made_up.py") == expected


def test_every_library_of_an_example_is_used_there_and_installed_for_tests() -> None:
    extra = setup_cfg()["options.extras_require"]["test"].replace("pillow", "PIL").replace("-", "_")
    for name, libraries in EXAMPLES_NEED.items():
        path = ROOT / "examples" / name
        assert libraries <= {target for target, is_ours in imports(path.read_text(), path) if not is_ours}
        assert all(re.search(rf"^{library}\b", extra, re.MULTILINE) for library in libraries)


@pytest.mark.parametrize(
    ("layer", "line", "expected"),
    [
        ("actors", "from ..runtime.clock import Clock", ["runtime/clock"]),
        ("actors", "from .. import runtime", ["runtime"]),
        ("actors", "import callboard.runtime.log", ["runtime/log"]),
        ("runtime", "from callboard.bench import door", ["bench"]),
        ("runtime", "def f():\n    from ..spark.jobs import job", ["spark/jobs"]),
        ("runtime", "from ..actors.group import GroupActor", []),
        ("spark", "from ..runtime.kafka import call", ["runtime/kafka"]),
        ("spark", "from ..runtime.log.batch import Batch", []),
        ("spark", "from ..runtime.logs import configure", ["runtime/logs"]),
        ("bench", "from callboard.runtime import serve", []),
    ],
)
def test_a_wrong_arrow_is_found(layer: str, line: str, expected: list[str]) -> None:
    assert forbidden(line, ROOT / layer / "made_up.py") == expected


def packages() -> dict[str, Path]:
    """Every package by its import name, from the folders on disk."""
    found = {NAME: ROOT / "runtime" / "front", "pyspark_callboard": FOUND}
    for folder in FOLDERS:
        for init in (ROOT / folder).rglob("__init__.py"):
            if init.parent not in found.values():
                found[".".join((NAME, *init.parent.relative_to(ROOT).parts))] = init.parent
    return found


def setup_cfg() -> configparser.ConfigParser:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    return config


def test_setup_cfg_lists_every_package() -> None:
    """A forgotten one works in a checkout and is missing from the wheel."""
    assert sorted(setup_cfg()["options"]["packages"].split()) == sorted(packages())


def test_every_folder_with_code_is_a_package() -> None:
    assert {path.parent for path in FILES} == set(packages().values())


def test_every_package_says_that_it_is_typed() -> None:
    assert [name for name, folder in packages().items() if not (folder / "py.typed").is_file()] == []


def test_every_library_is_a_declared_dependency() -> None:
    """The core must install alone: what only an extra brings is imported where it is needed, and may be missing."""
    lines = setup_cfg()["options"]["install_requires"].splitlines()
    declared = {match[0] for line in lines if (match := re.match(r"[\w-]+", line))}
    used = {
        name
        for path in FILES
        if layer_of(path) in ("actors", "runtime")
        for name, is_ours in imports(path.read_text(), path)
        if not is_ours and name not in sys.stdlib_module_names
    }
    assert used - declared <= OPTIONAL.keys()
    extras = setup_cfg()["options.extras_require"]
    assert all(re.search(rf"^{name}\b", extras[extra], re.MULTILINE) for name, extra in OPTIONAL.items())


def test_a_server_starts_without_what_only_an_extra_brings() -> None:
    code = "import sys, callboard.runtime.node; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert not OPTIONAL.keys() & set(done.stdout.split())


def test_importing_the_whole_engine_loads_nothing_of_kafka() -> None:
    """All that ``callboard.actors`` and ``callboard.runtime`` export."""
    code = """
import sys, callboard.actors, callboard.runtime
for package in callboard.actors, callboard.runtime:
    for name in package.__all__:
        getattr(package, name)
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    modules = set(done.stdout.split())
    assert modules > {"callboard.actors.base", "callboard.runtime.system"}
    assert not modules & {"callboard.actors.messages", "callboard.actors.records", "kio", "crc32c"}
    assert not [name for name in modules if re.match(r"callboard\.runtime\.(?:kafka|log|node)\b", name)]
