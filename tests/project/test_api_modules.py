"""API modules use the server only by its ports, and the authorizer only by ``authorize``."""

from __future__ import annotations

import ast

import pytest
from import_graph import ROOT

API_FOLDER = ROOT / "runtime" / "kafka" / "api"
MODULES = sorted(path for path in API_FOLDER.glob("*.py") if path.name != "__init__.py")

FORBIDDEN = (
    "runtime/kafka/authorization/authorizer",
    "runtime/kafka/connections/connection",
    "runtime/topics/catalogue",
    "actors/coordinator",
    "actors/transactions/actor",
)
"""Files and folders that no API module may import: what is behind the ports in ``runtime/kafka/services.py``."""


def offences(source: str, file: str) -> list[str]:
    """Return what a module has to do with the authorizer, and its imports of what is behind the ports."""
    attributes = (node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute))
    found = [f"reads .{name}" for name in attributes if name in ("authorizer", "coordinator")]
    targets = (target for target in imported_files(source, file) if target.startswith(FORBIDDEN))
    return found + [f"imports {target}" for target in targets]


def imported_files(source: str, file: str) -> list[str]:
    """Return the files that relative imports name, by their path from the root."""
    folder = file.split("/")[:-1]
    return [
        "/".join((*folder[: len(folder) - node.level + 1], *(node.module or "").split(".")))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.level
    ]


@pytest.mark.parametrize("name", [path.stem for path in MODULES])
def test_api_module_uses_ports_and_authorize_only(name: str) -> None:
    path = API_FOLDER / f"{name}.py"
    assert offences(path.read_text(), f"runtime/kafka/api/{name}.py") == []


@pytest.mark.parametrize(
    "line",
    [
        "from ..authorization.authorizer import AllowAll",
        "from ...topics.catalogue import TopicCatalogue",
        "from ....actors.coordinator.directory import Directory",
        "call.services.authorizer.authorize(context, actions)",
        "call.services.groups.coordinator.tell(message)",
    ],
)
def test_rule_notices(line: str) -> None:
    assert offences(line, "runtime/kafka/api/new.py") != []
