"""docs/concurrency.md: its commands have options that exist, its code runs, its conclusions follow from its tables."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
from doc_pages import DOCS, dead_links

from callboard.bench.concurrency import run

PAGE = DOCS / "concurrency.md"
TEXT = PAGE.read_text()
COMMANDS = re.findall(r"^callboard bench concurrency(.*?)(?:#.*)?$", TEXT, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_command_of_the_page_has_valid_options(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (source,) = re.findall(r"```python\n(import threading.*?)```", TEXT, re.DOTALL)
    (tmp_path / "one_thread.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(64)), raising=False)
    monkeypatch.setattr(run, "which", lambda name: name)
    assert run.parse(shlex.split(command), run.catalogue()).engines


def test_most_commands_of_the_page_are_found() -> None:
    assert len(COMMANDS) >= 8


def test_histograms_of_the_page_can_be_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("hdrh.histogram")
    monkeypatch.chdir(tmp_path)
    arguments = ["--engines", "lock-group", "--workloads", "heartbeats", "--groups", "5", "--seconds", "0.05"]
    assert run.main([*arguments, "--rounds", "2", "--histograms", "--no-html"]) == 0
    capsys.readouterr()
    (code,) = re.findall(r"```py\n(.*?)```", TEXT, re.DOTALL)
    exec(code, {})
    assert int(capsys.readouterr().out) > 0, "nanoseconds"


# The conclusions -----------------------------------------------------------------------------------------------------

Table = dict[str, dict[str, float]]
"""The figures of each row, by engine."""


def read_table(heading: str) -> Table:
    """A table of the page."""
    lines = TEXT[TEXT.index(f"| {heading} ") :].split("\n\n")[0].splitlines()
    (_, *engines), _, *rows = ([cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines)
    return {
        name: {engine: float(cell.replace(",", "")) for engine, cell in zip(engines, cells, strict=True) if cell != "-"}
        for name, *cells in rows
    }


CPU = read_table("CPU time per request relative to `lock-group`")
THROUGHPUT = read_table("throughput relative to `lock-group`")
P99 = read_table("p99, ms")


def cpu_of(engine: str, base: str = "") -> list[float]:
    """The CPU time of each row that the engine has, relative to another one or to lock-group."""
    return [row[engine] / row.get(base, 1) for row in CPU.values() if engine in row]


def span(figures: list[float]) -> str:
    return f"{min(figures):.2f} to {max(figures):.2f}"


def conclusions() -> list[str]:
    """The parts of sentences that have figures, computed from the tables."""
    loop, threads, pykka = cpu_of("actor-loop"), cpu_of("actor-threads"), cpu_of("pykka-threads")
    less, more = [each for each in loop if each < 1], [each for each in threads if each > 1]
    ratios = [row["asyncio-lock"] / row["actor-loop"] for row in THROUGHPUT.values()]
    mailbox = [each for each in cpu_of("actor-loop", "plain-loop") if each > 1]
    best = [min(row, key=row.__getitem__) for row in P99.values()]
    costly = [each for each in pykka if each > 1]
    return [
        f"in {len(less)} of {len(CPU)} rows: {span(less)} times",
        f"in {len(more)} of {len(CPU)} rows, {span(more)} times, and less in {len(threads) - len(more)}",
        f"needs {span(cpu_of('asyncio-lock', 'actor-loop'))} times as much as actors",
        f"has {min(ratios):.2f} to {max(ratios):.2f} times their throughput",
        f"needs {span(costly)} times as much as a lock per group in {len(costly)} of {len(pykka)} rows",
        f"`plain-loop` has the lowest p99 in {best.count('plain-loop')} of {len(best)} rows, and `actor-loop` for",
        f"a mailbox per group costs: {span(mailbox)} times the CPU time per request in {len(mailbox)} of {len(CPU)} "
        f"rows, and nothing in {len(CPU) - len(mailbox)}",
    ]


@pytest.mark.parametrize("number", range(len(conclusions())))
def test_conclusion_follows_from_the_tables(number: int) -> None:
    assert conclusions()[number] in " ".join(TEXT.split())


def test_rows_that_the_conclusions_name_are_those_of_the_tables() -> None:
    assert "commits" in max(CPU, key=lambda row: CPU[row]["actor-loop"])
    assert [row for row in P99 if P99[row]["actor-loop"] < P99[row]["plain-loop"]] == [
        "one member joins each of 10,000 groups"
    ]


def test_page_has_a_column_for_each_engine() -> None:
    engines = set(run.catalogue().engines)
    for table in (CPU, THROUGHPUT, P99):
        assert {engine for row in table.values() for engine in row} | {"lock-group"} == engines
    assert f"compares {['eight', 'nine', 'ten'][len(engines) - 8]} engines" in TEXT


def test_no_figure_is_marked_as_starved() -> None:
    for heading in ("throughput relative to `lock-group`", "p99, ms"):
        assert "*" not in TEXT[TEXT.index(f"| {heading} ") :].split("\n\n")[0]


def test_links_on_the_page_have_targets() -> None:
    assert dead_links(PAGE) == []
