"""The documentation site: it builds without warnings, and has all pages and all public names."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from import_graph import ROOT

import callboard

UP = f"{os.pardir}/"
BUILD = ROOT / "docs" / "site" / "build.py"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site, of a copy of the repository's text and code."""
    if find_spec("mkdocs") is None or find_spec("mkdocstrings") is None:
        if os.environ.get("CI"):
            pytest.fail("in CI the site is not optional: install callboard[docs]")
        pytest.skip("needs pip install 'callboard[docs]'")
    root = tmp_path_factory.mktemp("site")
    for name in ("actors", "bench", "docs", "runtime", "spark"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (*ROOT.glob("*.md"), ROOT / "tests" / "links.py"):
        target = root / path.relative_to(ROOT)
        target.parent.mkdir(exist_ok=True)
        shutil.copy(path, target)
    for script in ("tests/links.py", "docs/site/build.py"):
        completed = subprocess.run([sys.executable, root / script], capture_output=True, text=True, check=False)
        assert (completed.returncode, completed.stdout, completed.stderr) == (0, "", "")
    return root / "build" / "site" / "html"


def functions() -> dict[str, Any]:
    """The names of the script."""
    return runpy.run_path(str(BUILD))


def test_site_has_each_page_and_picture(site: Path) -> None:
    for path in (ROOT / "docs").glob("*.*"):
        built = site / path.stem / "index.html" if path.suffix == ".md" else site / path.name
        assert built.exists(), path.name
    menu = (site / "index.html").read_text()
    missing = [path.stem for path in (ROOT / "docs").glob("*.md") if f'href="{path.stem}/"' not in menu]
    assert missing == [], "pages that the navigation in mkdocs.yml does not name"


def test_reference_has_each_public_name_with_its_docstring(site: Path) -> None:
    page = (site / "reference" / "index.html").read_text()
    for name, home in callboard._HOMES.items():
        assert f'id="{home}.{name}"' in page, name
    assert "One coordinator, used once" in page


def test_pages_load_nothing_from_other_servers(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="https?://[^"]*"', page.read_text()) == [], page


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("README.md", "[a](docs/log.md#x) and [b](#y)", "[a](log.md#x) and [b](#y)"),
        ("README.md", "![picture](docs/rebalance.svg)", "![picture](rebalance.svg)"),
        ("docs/log.md", f"[a](limits.md) [b]({UP}README.md)", "[a](limits.md) [b](index.md)"),
        ("docs/log.md", f"[the queue]({UP}examples/shard_queue.py)", "`the queue`"),
        ("docs/log.md", "[a](https://example.org/x#y)", "[a](https://example.org/x#y)"),
        ("docs/log.md", f"```\n[a]({UP}examples/x.py)\n```", f"```\n[a]({UP}examples/x.py)\n```"),
        (
            "CONTRIBUTING.md",
            "[a](docs/contributing.md) [b](SECURITY.md)",
            "[a](contributing.md) [b](security-policy.md)",
        ),
    ],
)
def test_links_are_adapted_to_the_site(source: str, text: str, expected: str) -> None:
    assert functions()["adapted"](text, ROOT / source) == expected
