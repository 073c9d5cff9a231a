"""The laboratory's report: statistics, files, the page, and the conclusion."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping
from html.parser import HTMLParser
from pathlib import Path

import pytest
from lab_made_up import HEARTBEATS, line, made_up_run, measured, mixed_run, step

from callboard.bench.concurrency import report
from callboard.bench.concurrency.findings import findings, key_sentences
from callboard.bench.concurrency.plan import Case
from callboard.bench.concurrency.results import (
    BASE,
    FAILED,
    RIGHT,
    SCHEMA,
    WRONG,
    LabRun,
    Measurement,
    failure,
    read_line,
    summaries,
)
from callboard.bench.concurrency.styles import STYLES, kb, ms, significant
from callboard.bench.harness import BenchError, MedianAndSpread


@pytest.fixture(scope="module", name="mixed")
def mixed_fixture() -> LabRun:
    return mixed_run()


# Statistics -----------------------------------------------------------------------------------------------------------


def test_ratio_is_median_of_rounds_ratios() -> None:
    """Not the ratio of the medians, which here would be 310 / 100."""
    table = summaries(made_up_run(measured({"actor-loop": [300, 310, 320], BASE: [100, 155, 80]})))
    engine_summaries = table[HEARTBEATS]
    assert engine_summaries["actor-loop"].ratio == pytest.approx(3.0)
    assert engine_summaries[BASE].ratio == 1
    assert engine_summaries["actor-loop"].throughput == MedianAndSpread(310, 20 / 310)


def test_ratio_uses_only_rounds_of_both_engines() -> None:
    run = made_up_run([*measured({"actor-loop": [300, 310, 900], BASE: [100, 155]}), failure(step(BASE, 3), "gone")])
    summary = summaries(run)[HEARTBEATS]["actor-loop"]
    assert summary.ratios == {1: pytest.approx(3), 2: pytest.approx(2)}
    assert summary.ratio == pytest.approx(2.5)


def test_wrong_round_removes_all_figures() -> None:
    wrong_measurement = read_line(
        step("actor-loop", 3), line(step("actor-loop", 3), 5, right=False, wrong=["lost one"])
    )
    engine_summaries = summaries(made_up_run([*measured({"actor-loop": [300, 310], BASE: [1, 2]}), wrong_measurement]))[
        HEARTBEATS
    ]
    assert engine_summaries["actor-loop"].status == WRONG
    assert engine_summaries["actor-loop"].throughput is None
    assert engine_summaries["actor-loop"].ratio is None
    assert engine_summaries["actor-loop"].figure("p50_us") is None
    assert engine_summaries["actor-loop"].reasons == ["WRONG in round 3: lost one"]


def test_wrong_base_engine_gives_no_ratio() -> None:
    wrong_measurement = read_line(step(BASE), line(step(BASE), 5, right=False, wrong=["lost one"]))
    summary = summaries(made_up_run([*measured({"actor-loop": [300]}), wrong_measurement]))[HEARTBEATS]["actor-loop"]
    assert (summary.status, summary.ratio) == (RIGHT, None)


def test_totals_are_divided_by_requests() -> None:
    summary = summaries(made_up_run(measured({BASE: [1000]})))[HEARTBEATS][BASE]
    assert summary.figure("cpu_us") == pytest.approx(750)
    assert summary.figure("lock_wait_us") == pytest.approx(125)
    assert summary.figure("switches_a_1000") == pytest.approx(20)


# Files ----------------------------------------------------------------------------------------------------------------


def test_json_round_trips_run(mixed: LabRun, tmp_path: Path) -> None:
    report.write_numbers(tmp_path, mixed)
    assert report.load(tmp_path / report.JSON_NAME) == mixed
    json.loads((tmp_path / report.JSON_NAME).read_text(), parse_constant=pytest.fail)  # NaN, Infinity


def test_csv_has_row_per_measurement(mixed: LabRun, tmp_path: Path) -> None:
    report.write_numbers(tmp_path, mixed)
    with (tmp_path / report.CSV_NAME).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(mixed.measurements)
    for row, measurement in zip(rows, mixed.measurements, strict=True):
        assert (row["engine"], row["round"], row["status"]) == (
            measurement.step.engine,
            str(measurement.step.round),
            measurement.status,
        )
        figures = {name: float(row[name]) if row[name] else None for name in measurement.figures}
        assert figures == measurement.figures
    assert next(row["reasons"] for row in rows if row["status"] == FAILED).endswith("Boom: 42")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"bench": "server"}', '{"bench": "concurrency"}'])
def test_load_of_invalid_json_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    path.write_text(content)
    with pytest.raises(BenchError, match=r"odd\.json"):
        report.load(path)


# The page -------------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """The rows of all tables as text, and all links; fails if a tag is not closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.links: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self.rows[-1].append("")
        if tag not in ("meta", "img"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "td" in self._open:
            self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def html(mixed: LabRun) -> str:
    pytest.importorskip("matplotlib")
    return report.html(mixed, summaries(mixed))


def test_page_contains_figures(html: str) -> None:
    rows = {row[0]: row for row in Page(html).rows if len(row) == 3 + len(report.COLUMNS)}
    assert rows["actor-threads"][1] == "50.0 (1 FAILED)"
    assert rows["lock-global"] == ["lock-global", "WRONG", *[""] * (1 + len(report.COLUMNS))]
    first = next(row for row in Page(html).rows if row and row[0] == "actor-loop" and len(row) > 3)
    assert first[1:3] == ["310 300 to 320", "3.00"]
    assert first[3:5] == [ms(1e6 / 310), ms(4e6 / 310)]
    assert rows["actor-loop"][1:4] == ["777", "", ms(1e6 / 777)]  # the storm's, where the base failed
    assert rows["lock-group"][1] == "FAILED"


def test_page_has_no_nan_and_no_figures_of_wrong_engine(html: str) -> None:
    text = re.sub(r"base64,[^\"]+|<style>[^<]+", "", html)
    assert re.findall(r"(?i:\b(?:nan|inf)\b)|\bNone\b", text) == []
    assert "999,999" not in text
    assert "Boom: 42" in text
    assert "out of memory" in text
    assert "group g3: generation 4, expected &lt;5&gt;" in text


def test_page_is_self_contained_and_describes_run(html: str) -> None:
    assert all(link.startswith("data:image/png;base64,iVBORw0KGgo") for link in Page(html).links)
    assert "http" not in re.sub(r"base64,[^\"]+", "", html)
    assert "@import" not in html and "url(" not in html and "<script" not in html
    for fragment in (
        "2025-01-02 03:04:05",
        "--groups &#x27;10,1000&#x27;",
        "Linux &amp; more",
        "one lock &lt;for all&gt;",
    ):
        assert fragment in html
    assert "CPython 3.11.7 (a build with the global interpreter lock)" in html
    assert "Nothing is claimed for builds not run: free-threaded builds" in html


def test_workload_with_several_sizes_has_plots() -> None:
    pytest.importorskip("matplotlib")
    sizes = [Case("heartbeats", size) for size in (10, 1000)]
    run = made_up_run(
        [measurement for case in sizes for measurement in measured({"actor-loop": [300], BASE: [100]}, case)]
    )
    html = report.html(run, summaries(run))
    assert "Throughput against the number of groups" in html
    assert len(Page(html).links) == 4  # throughput, latency, memory, fairness


def test_run_without_right_measurement_has_page() -> None:
    pytest.importorskip("matplotlib")
    run = made_up_run([failure(step("actor-loop"), "gone"), failure(step(BASE), "gone")])
    rows = Page(report.html(run, summaries(run))).rows
    assert ["actor-loop", "FAILED", *[""] * (1 + len(report.COLUMNS))] in rows


def test_every_engine_has_unique_style() -> None:
    styles = list(STYLES.values())
    assert (
        len({engine_style.colour for engine_style in styles})
        == len({engine_style.marker for engine_style in styles})
        == len(styles)
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (None, ""), (0.0123456, "0.0123"), (9.996, "10.0"), (1234.5, "1,230"), (1234567, "1,230,000")],
)
def test_significant_formats_three_digits(value: float | None, text: str) -> None:
    assert significant(value) == text


def test_kb_of_negative_size_is_about_zero() -> None:
    assert [kb(size) for size in (-12.0, 4321.0, None)] == ["about 0", "4.32", ""]


# The conclusion -------------------------------------------------------------------------------------------------------


def conclusion(rates: Mapping[str, Iterable[float]]) -> dict[str, str]:
    """The text under each heading."""
    run = made_up_run(measured(rates))
    return {
        finding.title: " | ".join([*finding.sentences, *finding.points, *(", ".join(row) for row in finding.rows)])
        for finding in findings(run, summaries(run))
    }


def test_findings_follow_figures() -> None:
    """With the engines' speeds exchanged, the sentences are exchanged too."""
    actor = conclusion({"actor-loop": [300, 330, 360], BASE: [100, 110, 120]})
    lock = conclusion({"actor-loop": [100, 110, 120], BASE: [300, 330, 360]})
    fastest, beats = "Which engine was fastest", "Locks compared with actors"
    assert (
        "heartbeats, 10 groups, actor-loop, 330, 3.00, lock-group, 3.00, each of 3 rounds, lock-group, 110/s"
        in actor[fastest]
    )
    assert (
        "heartbeats, 10 groups, lock-group, 330, 1.00, actor-loop, 3.00, each of 3 rounds, actor-loop, 110/s"
        in lock[fastest]
    )
    assert "1 case: an actor was faster in 1 (3.00 times)." in actor[beats]
    assert "1 case: a lock was faster in 1 (3.00 times)." in lock[beats]


def test_findings_state_cost_of_actors_if_lock_was_faster() -> None:
    heading = "Advantages of actors"
    actor = conclusion({"actor-loop": [300, 330], BASE: [100, 110]})[heading]
    lock = conclusion({"actor-loop": [100, 110], BASE: [250, 275]})[heading]
    assert "no lock was faster" in actor
    assert "the cost of actors in requests per second (2.50 times)" in lock
    for text in (actor, lock):
        for sentence in (
            "No lock order",
            "No lock held during disk access",
            "Timers as messages",
            "Simulation under a seed",
        ):
            assert sentence in text


def test_findings_with_contradicting_rounds_are_not_decided() -> None:
    sections = conclusion({"actor-loop": [100, 200, 130], BASE: [120, 150, 100]})
    assert "2 of 3: not decided" in sections["Which engine was fastest"]
    assert "not decided in 1." in sections["Locks compared with actors"]


def test_findings_compare_threaded_engines_with_each_other() -> None:
    """The actor is faster on the loop and the lock on threads; both are reported."""
    rates = {"actor-loop": [300, 300], "actor-threads": [50, 50], BASE: [100, 100]}
    section = conclusion(rates)["Locks compared with actors"]
    assert (
        "Of all engines, the best engine with locks compared with the best actor, 1 case: an actor was faster"
        in section
    )
    assert (
        "On threads, the best engine with locks compared with the best actor, 1 case: a lock was faster in 1 "
        "(2.00 times)" in section
    )
    assert "On threads, heartbeats, 10 groups, lock-group, actor-threads, 2.00, each of 2 rounds" in section


def test_one_round_decides_nothing() -> None:
    sections = conclusion({"actor-loop": [300], BASE: [100]})
    assert "not decided in 1." in sections["Locks compared with actors"]
    assert "one round: not decided" in sections["Which engine was fastest"]
    run = made_up_run(measured({"actor-loop": [300], BASE: [100]}))._replace(options={"rounds": 1})
    sentences = " ".join(key_sentences(run, summaries(run)))
    assert "only one round, which decides nothing" in sentences
    assert "Fastest" not in sentences and "Least CPU" not in sentences


def rounds_of(engine: str, rates: Iterable[float], cpu_s: float, others_share: float) -> list[Measurement]:
    return [
        read_line(step(engine, number), line(step(engine, number), rate, cpu_s=cpu_s, others_share=others_share))
        for number, rate in enumerate(rates, 1)
    ]


def test_starved_engine_is_marked_and_ranked_by_cpu_only() -> None:
    """On a busy machine the engine with less CPU per request has fewer requests per second."""
    starved = rounds_of("actor-loop", [50, 50], cpu_s=0.1, others_share=0.9)
    run = made_up_run([*starved, *rounds_of(BASE, [100, 100], cpu_s=1.0, others_share=0.01)])
    table = summaries(run)
    assert [summary.is_starved for summary in table[HEARTBEATS].values()] == [True, False]
    sections = {
        finding.title: " | ".join([*finding.sentences, *(", ".join(row) for row in finding.rows)])
        for finding in findings(run, table)
    }
    assert "not decided in 1." in sections["Locks compared with actors"]
    assert "starved: not decided" in sections["Which engine was fastest"]
    sentences = " ".join(key_sentences(run, table))
    assert "In 1 case an engine was starved of CPU" in sentences
    assert "Fastest" not in sentences and "Least CPU per request, of 1 case: actor-loop in 1." in sentences
    cpu = sections["Which engine used least CPU"]
    assert "heartbeats, 10 groups, actor-loop, 1,000, 5.00, lock-group, 5.00, each of 2 rounds" in cpu
    assert "Starved of CPU, so that their requests per second are not compared: actor-loop on heartbeats" in cpu
    assert "starved" in report.html(run, table)


def test_cost_of_mailbox_is_cpu_relative_to_plain_loop() -> None:
    plain = rounds_of("plain-loop", [100, 100], cpu_s=1.0, others_share=0.0)
    actor = rounds_of("actor-loop", [100, 100], cpu_s=1.5, others_share=0.0)
    run = made_up_run([*plain, *actor])
    run = run._replace(engines={**run.engines, "plain-loop": run.engines["actor-loop"]})
    points = [point for finding in findings(run, summaries(run)) for point in finding.points]
    assert any("actor-loop used 1.50 to 1.50 times the CPU of plain-loop" in point for point in points)


def test_file_of_another_schema_is_refused(tmp_path: Path) -> None:
    run = made_up_run(measured({BASE: [100]}))
    path = tmp_path / "results.json"
    path.write_text(json.dumps({**run.to_json(), "schema": 1}))
    with pytest.raises(BenchError, match=f"version 1 of the schema; expected {SCHEMA}"):
        report.load(path)


def test_findings_begin_with_wrong_and_missing_measurements(mixed: LabRun) -> None:
    table = summaries(mixed)
    first = key_sentences(mixed, table)[0]
    assert first.startswith("Of 11 measurements, 1 ended in a wrong state (lock-global) and 2 failed (actor-threads, ")
    part = findings(mixed._replace(planned=15), table)[0]
    assert any("4 of 15 planned measurements were not made" in sentence for sentence in part.sentences)
    assert any("lock-global on heartbeats, 10 groups: WRONG in round 1: group g3" in point for point in part.points)


def test_findings_name_free_threaded_build() -> None:
    run = made_up_run(measured({BASE: [100]}))
    run = run._replace(python={**run.python, "free_threaded": True, "gil_enabled": False})
    scope = " ".join(findings(run, summaries(run))[-1].points)
    assert "a free-threaded build, its lock off" in scope
    assert "not run: builds with the global interpreter lock" in scope
