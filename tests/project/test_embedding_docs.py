"""The code in docs/embedding.md runs and prints the output shown below it."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest
from doc_pages import DOCS, dead_links, run, sections

from callboard.runtime.settings import table as config

PAGE = DOCS / "embedding.md"


@pytest.mark.parametrize("section", sections(PAGE))
def test_code_of_each_section_prints_the_output_shown(
    section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in sections(PAGE)[section]:
        assert block.output, f"docs/embedding.md, line {block.line}: the output is missing"
        assert run(PAGE, block, names) == block.output, f"docs/embedding.md, line {block.line}"


def test_all_code_of_the_page_is_run() -> None:
    assert len(sections(PAGE)) >= 12
    assert sum(len(blocks) for blocks in sections(PAGE).values()) == PAGE.read_text().count("```python")


def test_each_section_with_code_states_problem_and_limits() -> None:
    for section in PAGE.read_text().split("\n## ")[1:]:
        if "```python" in section:
            assert "\nThe problem: " in section, section[:60]
        if "\nGuaranteed:\n" in section:
            assert "\nNot:\n" in section, section[:60]


def test_names_and_files_mentioned_in_the_page_exist() -> None:
    """Examples, links, and settings with their defaults."""
    text = PAGE.read_text()
    assert dead_links(PAGE) == []
    for name in set(re.findall(r"`examples/(\w+\.py)`", text)):
        assert (DOCS.parent / "examples" / name).exists()
    settings = config.Settings()
    assert settings.offsets_retention_minutes == 7 * 24 * 60, "seven days"
    assert settings.offsets_retention_check_interval_ms == 10 * 60_000, "ten minutes"
    assert settings.offset_metadata_max_bytes == 4096
    assert settings.group_initial_rebalance_delay_ms == 3_000
    assert config.PARTITIONS_MAX == 10_000
