"""docs/log.md has a row for each file of a data folder, and the tests that its rows name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from damage_helpers import coordinator_in, make_compacted, paths_in, run
from project_paths import TESTS_FOLDER

TESTS = TESTS_FOLDER
SECTION = (TESTS.parent / "docs" / "log.md").read_text().partition("## By file\n")[2].partition("\n## ")[0]
LINES = [line for line in SECTION.splitlines() if line.startswith("| ")]
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in LINES[1:]]
ROWS_AND_TESTS = [(row[0], name) for row in ROWS for name in re.findall(r"`([^`]+)`", row[-1])]
FILES: dict[str, str] = {
    r"callboard\.json": "`callboard.json`",
    r"\.clean_shutdown": "`.clean_shutdown`",
    r"\.lock": "`.lock`",
    r"journal(/\d{20}-[0-9a-f]{16}\.journal)?": "`journal/`, its files",
    r"__\w+-\d+(/\.compaction(/segments|/manifest)?)?": "`__consumer_offsets-N/`, `__transaction_state-N/`",
    r"__\w+-\d+/\d{20}\.log": "`<offset>.log` in them",
    r"__\w+-\d+/\.compaction/segments/.+\.log": "`.compaction/segments/*.log`",
    r"__\w+-\d+/\.compaction/manifest/\d{20}\.json": "`.compaction/manifest/*.json`",
    r"__\w+-\d+/\.compaction/(published|lock)": "`.compaction/published`, `.compaction/lock`",
    r"topics\.json": "`topics.json`",
    r"topics\.ends": "`topics.ends`",
    r"settings\.json": "`settings.json`",
}


@pytest.mark.parametrize(("row", "name"), ROWS_AND_TESTS)
def test_test_named_in_the_document_exists(row: str, name: str) -> None:
    file, _, test = name.partition("::")
    [path] = TESTS.rglob(file)
    assert f"def {test}(" in path.read_text()


def test_each_row_of_the_document_names_a_test() -> None:
    assert (
        len(ROWS) == len({row for row, _ in ROWS_AND_TESTS}) == len(FILES) + 3
    )  # the folder itself, Spark's history.json, and security.json of a folder with users
    assert {len(row) for row in ROWS} == {5}


def test_each_file_of_a_data_folder_has_a_row(tmp_path: Path) -> None:
    async def serve_until_kill() -> None:
        coordinator = coordinator_in(tmp_path / "data")
        await coordinator.start()
        coordinator.node.halt()

    run(make_compacted(tmp_path / "data"))
    paths = set(paths_in(tmp_path / "data"))
    run(serve_until_kill())
    paths |= set(paths_in(tmp_path / "data"))
    rows = {row[0] for row in ROWS}
    matched_patterns = {pattern for path in paths for pattern in FILES if re.fullmatch(pattern, str(path))}
    assert [path for path in paths if not any(re.fullmatch(pattern, str(path)) for pattern in matched_patterns)] == []
    assert set(FILES) - matched_patterns == set()
    assert set(FILES.values()) <= rows
