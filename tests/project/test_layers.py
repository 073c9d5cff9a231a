"""What may import what: packages by the table in layers.py, libraries by the tables here. Each rule is one test."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from import_graph import NAME, ROOT, circles, graph, imports, targets
from layers import CIRCLES_ALLOWED, PACKAGES, allowed, is_allowed, package_of
from project_packages import FOLDERS, FRONT, PYSPARK_CALLBOARD, packages

# Libraries that the runtime can do without, and the extra that brings each.
OPTIONAL = {
    "asyncpg": "postgres",
    "cramjam": "compression",
    "hypothesis": "hypothesis",
    "jinja2": "web",
    "jwt": "oauth",
    "numpy": "fast",
    "obstore": "objects",
    "opentelemetry": "otel",
    "pytest": "pytest",
    "re2": "regex",
    "starlette": "web",
    "uvicorn": "web",
}
DISTRIBUTIONS = {"jinja2": "Jinja2", "jwt": "PyJWT", "opentelemetry": "opentelemetry-api", "re2": "google-re2"}
"""Libraries whose package has another name."""
ACTORS_LIBRARIES = {"pykka", "sortedcontainers", "xxhash"}
# What the actor engine's files may import, and what a program that imports all of them must not have loaded.
ENGINE = ("actors/base", "runtime/engine")
KAFKA_LIBRARIES = {"kio", "crc32c", "structlog", "typer"}
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
Rule = Callable[[str, Path], list[str]]
"""What in a source, that stands or might stand at a path, breaks a rule."""


def offenders(rule: Rule, paths: list[Path]) -> list[str]:
    """All that break a rule, as "path: what"."""
    return [f"{path.relative_to(ROOT)}: {what}" for path in paths for what in rule(path.read_text(), path)]


@cache
def edges() -> dict[str, frozenset[str]]:
    """By file, the files that it imports."""
    return graph(FILES)


def layer_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0]


def inside(target: str, folder: str) -> bool:
    return target == folder or target.startswith(folder + "/")


# Packages ------------------------------------------------------------------------------------------------------------


def forbidden(source: str, path: Path) -> list[str]:
    """The files of ours that a file imports and its package may not."""
    importer = str(path.relative_to(ROOT).with_suffix(""))
    files = frozenset(edges()) | {importer}
    return [target for target in targets(source, path, files) if not is_allowed(importer, target)]


def test_every_file_belongs_to_a_package_of_the_table() -> None:
    assert [file for file in edges() if package_of(file) is None] == []


def test_every_path_of_the_table_exists() -> None:
    paths = [path for package in PACKAGES.values() for path in package.paths]
    assert [path for path in paths if path not in edges() and not (ROOT / path).is_dir()] == []


def test_packages_import_only_what_the_table_allows() -> None:
    assert offenders(forbidden, FILES) == []


def test_table_allows_only_what_stands_above_it() -> None:
    """So no packages import each other in a circle."""
    names = tuple(PACKAGES)
    upward = [
        f"{name}: {other}"
        for number, name in enumerate(names)
        for other in allowed(name)
        if (package_of(other.removesuffix(".py")) if other.endswith(".py") else other) not in names[:number]
    ]
    assert upward == []


def test_table_allows_nothing_that_no_file_imports() -> None:
    files = {(package_of(file), other) for file, theirs in edges().items() for other in theirs}
    used = files | {(own, package_of(other)) for own, other in files}
    unused = [
        f"{name}: {other}"
        for name, package in PACKAGES.items()
        for other in package.may_import
        if other != "*" and (name, other.removesuffix(".py")) not in used
    ]
    assert unused == []


@pytest.mark.parametrize(
    ("file", "line", "expected"),
    [
        ("actors/made_up", "from ..runtime.engine.clock import SystemClock", ["runtime/engine/clock"]),
        ("actors/made_up", "from .. import runtime", ["runtime/__init__"]),
        ("actors/made_up", "import callboard.runtime.log", ["runtime/log/__init__"]),
        ("actors/base", "from .messages import JoinGroup", ["actors/messages"]),
        ("actors/timer/made_up", "from .. import ports", ["actors/ports"]),
        ("runtime/engine/mailbox", "from ...actors.ports import Entry", ["actors/ports"]),
        ("runtime/engine/mailbox", "if TYPE_CHECKING:\n    from ..node.node import Node", ["runtime/node/node"]),
        ("runtime/kafka/made_up", "from ..node.node import Node", ["runtime/node/node"]),
        ("runtime/node/made_up", "from ..member.channel import Channel", ["runtime/member/channel"]),
        ("runtime/log/made_up", "from ..kafka import call", ["runtime/kafka/call"]),
        ("runtime/disk/made_up", "from ..settings.table import Settings", ["runtime/settings/table"]),
        ("runtime/node/made_up", "from callboard.bench import server", ["bench/server"]),
        ("runtime/node/made_up", "def f():\n    from ...spark.jobs import job", ["spark/jobs"]),
        ("runtime/node/made_up", "from ...actors.group.actor import GroupActor", []),
        ("runtime/cli/serve", "from callboard import __version__", []),
        ("spark/made_up", "from ..runtime.kafka import call", ["runtime/kafka/call"]),
        ("spark/made_up", "from ..runtime.log.format.batch import Batch", []),
        ("spark/made_up", "from ..runtime.settings.table import Settings", ["runtime/settings/table"]),
        ("spark/made_up", "from ..runtime.settings.dynamic import DynamicSettings", ["runtime/settings/dynamic"]),
        ("spark/made_up", "from ..runtime.settings import address", []),
        ("bench/made_up", "from callboard.runtime import serve", []),
    ],
)
def test_a_forbidden_import_is_found(file: str, line: str, expected: list[str]) -> None:
    assert forbidden(line, ROOT / f"{file}.py") == expected


def test_no_files_import_each_other_in_a_circle() -> None:
    assert circles(edges()) == sorted(CIRCLES_ALLOWED)


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ({"a": "b", "b": "c", "c": ""}, []),
        ({"a": "b", "b": "a"}, [("a", "b")]),
        ({"a": "b", "b": "c", "c": "ad", "d": ""}, [("a", "b", "c")]),
        ({"a": "bc", "b": "a", "c": "d", "d": "c"}, [("a", "b"), ("c", "d")]),
        ({"a": "bd", "b": "c", "c": "b", "d": "b"}, [("b", "c")]),
        ({"a": "b", "b": "cd", "c": "a", "d": "c"}, [("a", "b", "c", "d")]),
    ],
)
def test_circles_are_found(edges: dict[str, str], expected: list[tuple[str, ...]]) -> None:
    assert circles(edges) == expected


@pytest.mark.parametrize(
    "line",
    [
        "from .b import name",
        "from . import b",
        "from .. import actors\nfrom ..actors import b",
        "import callboard.actors.b",
        "from callboard.actors import b",
        "from callboard.actors.b import name",
        "def f():\n    from .b import name",
        "if TYPE_CHECKING:\n    from .b import name",
    ],
)
def test_every_form_of_import_is_an_edge_of_the_graph(line: str) -> None:
    files = frozenset({"actors/a", "actors/b", "actors/__init__"})
    assert "actors/b" in set(targets(line, ROOT / "actors" / "a.py", files))


# The actor engine ----------------------------------------------------------------------------------------------------


def test_importing_the_whole_engine_loads_nothing_of_kafka() -> None:
    """All that ``callboard.actors`` and ``callboard.runtime`` export, and the engine's files that they do not."""
    engine = sorted(file for file in edges() if package_of(file) in ENGINE)
    names = [".".join((NAME, *file.removesuffix("/__init__").split("/"))) for file in engine]
    code = f"""
import sys
import callboard.actors, callboard.runtime
for package in callboard.actors, callboard.runtime:
    for name in package.__all__:
        getattr(package, name)
print(*sys.modules)
import {", ".join(names)}
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    exported, everything = (set(line.split()) for line in done.stdout.splitlines())
    ours = {module for module in everything if module.partition(".")[0] == NAME}
    assert ours == {NAME, *names}
    assert exported & ours > {f"{NAME}.actors.base", f"{NAME}.runtime.engine.system"}
    assert everything & KAFKA_LIBRARIES == set()


# Libraries -----------------------------------------------------------------------------------------------------------


def libraries_for_actors(source: str, path: Path) -> list[str]:
    """An actor decides; what it would need another library for is the runtime's."""
    own = sys.stdlib_module_names | ACTORS_LIBRARIES
    return [name for name, is_ours in imports(source, path) if not is_ours and name not in own]


def test_actors_import_three_libraries_and_no_more() -> None:
    assert offenders(libraries_for_actors, [path for path in FILES if layer_of(path) == "actors"]) == []


def test_a_library_that_actors_may_not_import_is_found() -> None:
    source = (
        "import pykka\nimport ast\nfrom sortedcontainers import SortedDict\nimport structlog\nfrom kio.schema import x"
    )
    assert libraries_for_actors(source, ROOT / "actors" / "made_up.py") == ["structlog", "kio"]


def absolute(source: str, path: Path) -> list[str]:
    """Imports of ours that are not relative. Only the bench, the front and programs import as a user does."""
    if layer_of(path) == "bench" or path.parent in (FRONT, PYSPARK_CALLBOARD) or path in PROGRAMS:
        return []
    return re.findall(rf"^\s*((?:from|import) {NAME}\.\S*)", source, re.MULTILINE)


def test_imports_between_our_folders_are_relative() -> None:
    """Then they are true on disk and in the package."""
    assert offenders(absolute, FILES) == []


@pytest.mark.parametrize("line", ["from callboard.actors.base import Actor", "    import callboard.runtime.node"])
def test_an_absolute_import_is_found(line: str) -> None:
    assert absolute(line, ROOT / "runtime" / "made_up.py") == [line.split(" import Actor")[0].strip()]
    assert absolute(line, ROOT / "bench" / "made_up.py") == []


def private_of_pykka(source: str, path: Path) -> list[str]:
    """Modules of pykka's that may change without notice. One file imports them, and a change is made there."""
    names = re.findall(r"^\s*(?:from|import) (pykka\._\w+)", source, re.MULTILINE)
    return [] if path == ROOT / "actors" / "base.py" else names


def test_one_file_imports_what_is_private_to_pykka() -> None:
    tests = sorted((ROOT / "tests").rglob("*.py"))
    assert offenders(private_of_pykka, [*FILES, *EXAMPLES, *tests]) == []


def test_a_private_module_of_pykka_is_found() -> None:
    source = "from pykka._envelope import Envelope\nimport pykka\n"
    assert private_of_pykka(source, ROOT / "runtime" / "made_up.py") == ["pykka._envelope"]
    assert private_of_pykka(source, ROOT / "actors" / "base.py") == []


# Examples ------------------------------------------------------------------------------------------------------------


def not_for_examples(source: str, path: Path) -> list[str]:
    """What a reader of an example would have to install besides, or could not import at all."""
    libraries = sys.stdlib_module_names | EXAMPLES_NEED.get(path.name, set())
    return [
        target
        for target, is_ours in imports(source, path)
        if not (any(inside(target, folder) for folder in EXAMPLES_SHOW) if is_ours else target in libraries)
    ]


def test_an_example_needs_the_installed_package_and_no_more() -> None:
    assert offenders(not_for_examples, EXAMPLES) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("import pykka", ["pykka"]),
        ("from . import embed_actors", ["examples"]),
        ("from .embed_actors import Quota", ["examples/embed_actors"]),
        ("from callboard.bench import harness", ["bench"]),
        ("from callboard.runtime import System", []),
        ("from callboard.actors.ports import Clock", []),
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


# Packaging -----------------------------------------------------------------------------------------------------------


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
    packages = {DISTRIBUTIONS.get(name, name): extra for name, extra in OPTIONAL.items()}
    assert all(re.search(rf"^{package}\b", extras[extra], re.MULTILINE) for package, extra in packages.items())


def test_a_server_starts_without_what_only_an_extra_brings() -> None:
    code = "import sys, callboard.runtime.node; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert not OPTIONAL.keys() & set(done.stdout.split())
