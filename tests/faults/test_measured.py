"""What was measured is kept by commit, judged by the bars, and stands in the documentation as it was judged."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster.named_bucket import VARIABLE
from soak.proofs import PROOFS

from .__main__ import main
from .bars import BARS, MET, MISSED, TOO_FEW, Bar, judge
from .measured import Run, add_runs, load
from .report import judgements, missed, table, write, written

P99 = Bar("outage", "kill", "p99", 3.0, " s", 100)
RATE = Bar("commits", "commits-1", "p50", 0.65, "", 1, is_least=True)
LOST = Bar("lost", "kill", "violations", 0, "", 20)


def run_of(*values: float, commit: str = "c1", load: float = 1.0, name: str = "kill", violations: int = 0) -> Run:
    return Run(name, commit, list(values), [load] * len(values), 2, violations)


def test_runs_are_added_to_those_of_earlier_commits(tmp_path: Path) -> None:
    file = tmp_path / "bars.json"
    first, second = run_of(1.5, 1.7), run_of(2.0, commit="c2", name="stop")
    add_runs([first], file)
    add_runs([second], file)
    assert load(file) == [first, second]
    assert len(file.read_text().splitlines()) == 4


def test_p99_is_the_second_worst_of_a_hundred() -> None:
    quick = [0.1] * 98
    assert judge(P99, [run_of(*quick, 2.9, 9.0)]).value == 2.9
    assert judge(P99, [run_of(*quick, 2.9, 9.0)]).verdict == MET
    assert judge(P99, [run_of(*quick, 3.1, 9.0)]).verdict == MISSED
    assert judge(P99, [run_of(*quick[1:], 2.9, 9.0)]).verdict == TOO_FEW
    assert judge(P99, []).verdict == TOO_FEW


def test_what_was_measured_under_load_is_not_judged() -> None:
    quiet, loaded = run_of(*[0.1] * 100, load=4.0), run_of(9.0, 8.0, load=4.2)
    judged = judge(P99, [quiet, loaded])
    assert (judged.verdict, judged.counted, judged.value) == (MET, 100, 0.1)
    assert (judged.others, judged.other_value, judged.loads) == (2, 9.0, (4.0, 4.2))
    assert judge(P99, [quiet, loaded], quiet=5.0).value == 8.0


def test_runs_of_earlier_commits_count_only_if_they_are_named() -> None:
    runs = [run_of(*[9.0] * 100), run_of(*[0.1] * 100, commit="c2")]
    assert (judge(P99, runs).verdict, judge(P99, runs).commit) == (MET, "c2")
    assert judge(P99, runs, ["c1"]).verdict == MISSED
    assert judge(P99, runs, ["c1", "c2"]).counted == 200


def test_rate_must_be_at_least_its_bar() -> None:
    assert judge(RATE, [run_of(0.66, name="commits-1")]).verdict == MET
    assert judge(RATE, [run_of(0.64, name="commits-1")]).verdict == MISSED


def test_violations_count_on_any_machine() -> None:
    loaded = run_of(*[50.0] * 20, load=60.0)
    assert judge(LOST, [loaded]).verdict == MET
    assert judge(LOST, [run_of(*[1.0] * 19)]).verdict == TOO_FEW
    assert judge(LOST, [loaded, run_of(1.0, violations=1)]).verdict == MISSED


def test_report_names_the_bars_that_are_missed(tmp_path: Path) -> None:
    judged = judgements([run_of(*[2.5] * 100)])
    assert missed(judged) == ["outage after `kill -9`: 2.50 s, expected p50 ≤ 2 s"]
    assert "| outage after `kill -9` | p99 ≤ 3 s | 2.50 s | met | 100 of 100 |" in table(judged)
    page = tmp_path / "page.md"
    page.write_text("above\n<!-- bars -->\n<!-- end of bars -->\nbelow\n")
    write(table(judged), page)
    write(table(judged), page)
    assert written(page) == table(judged)
    assert page.read_text().startswith("above\n")
    assert page.read_text().endswith("\nbelow\n")


def test_report_names_the_software_of_a_store_that_somebody_named(tmp_path: Path) -> None:
    file = tmp_path / "bars.json"
    add_runs([run_of(2.5, name="kill-on-bucket")._replace(store="Storage/4.2"), run_of(1.0)], file)
    assert '"store": "Storage/4.2"' in file.read_text()
    assert file.read_text().count('"store"') == 1
    row = "| outage after `kill -9`, S3 with 25 ms (Storage/4.2) | p99 ≤ 3.5 s | 2.50 s |"
    assert row in table(judgements(load(file)))


def test_campaign_on_a_named_bucket_is_refused_without_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(SystemExit):
        main(["kill-on-bucket"])
    assert f"error: {VARIABLE} names no bucket" in capsys.readouterr().err


def test_page_has_the_report_of_the_committed_runs() -> None:
    """``python -m faults report --write`` brings it there."""
    assert written() == table(judgements(load()))


@pytest.mark.parametrize("bar", BARS, ids=lambda bar: f"{bar.run}, {bar.statistic}")
def test_bar_has_a_long_proof(bar: Bar) -> None:
    assert PROOFS[bar.proof].is_measured
