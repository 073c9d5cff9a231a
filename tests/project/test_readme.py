"""The README's programs print the output shown, and its map has what there is. (Its tour is not run here.)"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from doc_pages import DOCS, Block, dead_links, run, sections
from pytest_helpers import run as run_tests

ROOT = DOCS.parent
PAGE = ROOT / "README.md"
IN_PROCESS, UNDER_PYTEST = sections(PAGE)["In your own program"]
[COUNTER] = sections(PAGE)["Actors without Kafka"]


def output_of(block: Block) -> str:
    return run(PAGE, block, {"__name__": "__main__"})


def test_readme_example_of_a_member_continues_at_the_committed_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = output_of(IN_PROCESS).splitlines()
    assert re.fullmatch(r"shard 0, begin at 0, token \d+", first)
    assert second == first.replace("shard 0", "shard 1")
    assert output_of(IN_PROCESS).startswith("shard 0, begin at 43, token"), "the committed offset is in the folder"


def test_readme_test_of_a_consumer_passes(tmp_path: Path) -> None:
    assert "1 passed" in run_tests(tmp_path, UNDER_PYTEST.code, "-p", "kafka_python_fast_metadata")


def test_readme_counter_actor_counts() -> None:
    assert output_of(COUNTER) == "5\n"


def test_readme_links_exist() -> None:
    assert dead_links(PAGE) == []


# The map -------------------------------------------------------------------------------------------------------------

MAP = PAGE.read_text().partition("\n## Map\n")[2]


def in_map() -> set[str]:
    """Folders and files in the first columns of the map's tables."""
    cells = [line.split("|")[1] for line in MAP.splitlines() if line.startswith("| ")]
    return {path.rstrip("/") for cell in cells for path in re.findall(r"`([^`]+)`", cell)}


def test_map_has_each_folder_and_each_package_of_actors_and_runtime() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    if not tracked:
        pytest.skip("the folder is no working copy of git")
    folders = {path.split("/")[0] for path in tracked if "/" in path}
    packages = {
        str(path.parent.relative_to(ROOT))
        for top in ("actors", "runtime")
        for path in ROOT.glob(f"{top}/*/__init__.py")
    }
    missing = (folders - {"runtime"}) | packages
    assert missing - in_map() == set()


def test_paths_of_the_map_exist() -> None:
    assert {path for path in in_map() if not (ROOT / path).exists()} == set()


def test_map_has_each_page() -> None:
    linked = set(re.findall(r"\]\(([^)#]+)\)", MAP))
    pages = {str(path.relative_to(ROOT)) for path in (*DOCS.glob("*.md"), *ROOT.glob("*.md"))} - {"README.md"}
    assert pages - linked == set()


def test_each_benchmark_that_the_readme_names_exists() -> None:
    numbers = PAGE.read_text().partition("\n## Numbers\n")[2].partition("\n## ")[0]
    rows = [line for line in numbers.splitlines() if line.startswith("| ") and line.count("|") == 4]
    without = [row for row in rows if not re.search(r"`(callboard|make|time) |\| command \|", row)]
    assert rows
    assert without == [], "each number has the command that reproduces it"
