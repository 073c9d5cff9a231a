"""The README's programs print the output shown. (Its tour with three terminals is not run here.)"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from doc_pages import DOCS, Block, dead_links, run, sections
from pytest_helpers import run as run_tests

PAGE = DOCS.parent / "README.md"
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
