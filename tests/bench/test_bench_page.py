"""``callboard bench page`` asks for every order and filter, and notices groups that are missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from callboard.bench import page
from callboard.bench.harness import BenchError
from callboard.runtime.web import group_list


def test_bench_page_prints_table_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "figures.json"
    assert page.main(["--groups", "60", "--baseline-seconds", "0.1", "--output", str(output)]) == 0
    result = json.loads(output.read_text())
    assert {(each["filter"], each["sort"]) for each in result["pages"]} == {
        (name, sort) for name in page.FILTERS for sort in page.SORTS
    }
    assert result["heartbeats"]["during"]["count"] > 0
    printed = capsys.readouterr().out
    assert "A page of 60 groups" in printed
    assert all(name in printed for name in page.FILTERS)


def test_orders_and_filters_are_those_of_the_api() -> None:
    assert set(page.SORTS) == set(group_list.SORTS)
    for parameters in page.FILTERS.values():
        group_list.parse_query(parameters.items())


def test_missing_group_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "READ_TIMEOUT_S", 0.0)
    monkeypatch.setattr(page.Pages, "get", lambda self, **parameters: {"items": [{}, {}], "after": None})
    with pytest.raises(BenchError, match="the list has 2 groups, expected 3"):
        page.Pages(1).await_groups(3)


def test_number_of_groups_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        page.main(["--groups", "0"])
    assert "--groups 0: expected 1 or more" in capsys.readouterr().err
