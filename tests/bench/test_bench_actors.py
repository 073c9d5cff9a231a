"""``callboard bench actors`` verifies its measurements: a lost or doubled message is an error. No time is asserted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from bench_children import run_in_this_process

from callboard.bench import actors, harness
from callboard.bench.__main__ import main as bench_main
from callboard.bench.actor_designs import DESIGNS, BareDeque, Participant, Token, measure
from callboard.bench.actors import LABELS, PYKKA_MAX, UVLOOP, Aim, DesignRun, Row, _aims, _options
from callboard.bench.harness import BenchError, run_once

RATES = {"flood_per_s", "bursts_per_s", "hops_per_s"}


# The designs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 30])
@pytest.mark.parametrize("name", [name for name in DESIGNS if name not in (*UVLOOP, "pykka")])
def test_measure_of_every_design_counts_every_message_once(name: str, count: int) -> None:
    """Measuring raises if the actors' counts differ from the number of messages sent."""
    figures = measure(name, count, 450, 20)
    assert set(figures) == {*RATES, "ask_p50_us", "ask_p99_us", "start_us", "stop_s", "bytes"}
    assert all((figures[rate] or 0) > 0 for rate in RATES)
    assert figures["bytes"] is None, "the memory of few actors is below the allocator's granularity"


class Losing(BareDeque):
    """Every hundredth message is lost."""

    def run(self) -> Any:
        if len(self.queue) >= 100:
            self.queue.pop()
        return super().run()


class Doubling(BareDeque):
    def run(self) -> Any:
        if self.queue and not isinstance(self.queue[0][1], Token):
            self.queue.append(self.queue[0])
        return super().run()


@pytest.mark.parametrize("wrong_design", [Losing, Doubling])
def test_measure_of_wrong_design_raises(monkeypatch: pytest.MonkeyPatch, wrong_design: type[BareDeque]) -> None:
    monkeypatch.setitem(DESIGNS, "wrong", wrong_design)
    with pytest.raises(BenchError, match=r"wrong: 800 messages were sent to 10 actors, and they counted \d+"):
        measure("wrong", 10, 400, 20)


def test_pass_tokens_visits_all_actors() -> None:
    """Each token is passed on as often as requested, by all actors in turn."""
    design = BareDeque()
    design.start(10)
    sent_counts: list[int] = []
    send = design.shared.send

    def note(part: Participant, message: Any) -> None:
        sent_counts.append(part.index)
        send(part, message)

    design.shared.send = note
    design.pass_tokens(20)
    assert len(sent_counts) == 64 * 21
    assert set(sent_counts) == set(range(10))


# The bench ------------------------------------------------------------------------------------------------------------


def test_measurement_in_a_process_prints_its_figures() -> None:
    result = run_once(["-m", "callboard.bench.actor_designs", "loop", "5", "300", "20"], "the loop", 60.0)
    assert set(result) >= RATES


def test_bench_actors_prints_all_designs_and_targets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "run_once", run_in_this_process)
    file = tmp_path / "actors.json"
    assert bench_main(["actors", "--quick", "--actors", "5", "--messages", "300", "--output", str(file)]) == 0
    output = capsys.readouterr().out
    assert all(label in output for name, label in LABELS.items() if name not in UVLOOP)
    assert "5 actors, 300 messages; median of 1" in output
    assert "stop_all of 100,000" in output
    result = json.loads(file.read_text())
    rows = {row["design"]: row for row in result["rows"]}
    assert set(rows) == set(LABELS) - set(UVLOOP)
    assert rows["tasks"]["x_tasks"] == dict.fromkeys(RATES, 1.0)
    assert set(rows["loop"]["x_pykka"]) == RATES
    assert all(aim["measured"] is None for aim in result["aims"]), "no target applies to five actors"


def planned(monkeypatch: pytest.MonkeyPatch, *argv: str) -> Mapping[DesignRun, Sequence[str]]:
    """The jobs that the benchmark would run."""
    plans: list[Mapping[DesignRun, Sequence[str]]] = []
    figures = dict.fromkeys((*RATES, "ask_p50_us", "bytes"), 1.0)

    def run_nothing(
        jobs: Mapping[DesignRun, Sequence[str]], *_rest: Any
    ) -> Iterator[tuple[DesignRun, dict[str, float]]]:
        plans.append(jobs)
        return ((job, figures) for job in jobs)

    monkeypatch.setattr(actors, "interleaved", run_nothing)
    actors.run(_options(argv))
    return plans[0]


def test_pykka_is_not_measured_above_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = planned(monkeypatch, "--actors", f"{PYKKA_MAX},{PYKKA_MAX + 1}")
    assert DesignRun(PYKKA_MAX, "pykka") in jobs
    assert DesignRun(PYKKA_MAX + 1, "pykka") not in jobs
    assert DesignRun(PYKKA_MAX + 1, "loop") in jobs


def test_uvloop_is_measured_only_with_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actors, "find_spec", lambda _name: object())
    assert {job.design for job in planned(monkeypatch, "--actors", "5")} == set(LABELS) - set(UVLOOP)
    assert {job.design for job in planned(monkeypatch, "--actors", "5", "--uvloop")} == set(LABELS)


def test_uvloop_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(actors, "find_spec", lambda _name: None)
    with pytest.raises(SystemExit, match="2"):
        bench_main(["actors", "--uvloop"])
    assert "--uvloop: uvloop is not installed; run: pip install uvloop" in capsys.readouterr().err


def test_message_count_grows_with_actors(monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer messages than actors most actors would do nothing."""
    jobs = planned(monkeypatch, "--actors", "5,100000", "--messages", "1000")
    assert {(job.actors, arguments[4]) for job, arguments in jobs.items()} == {(5, "1000"), (100_000, "200000")}


def test_quick_is_one_round_with_fewer_messages() -> None:
    options = _options(["--quick"])
    assert options.rounds == 1
    assert max(options.actors) < max(_options([]).actors)
    assert options.messages < _options([]).messages


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--actors", "10,none"], "'10,none': expected numbers of actors, each at least 1"),
        (["--actors", "0"], "'0': expected numbers of actors, each at least 1"),
        (["--messages", "0"], "--messages 0: expected at least 1"),
        (["--rounds", "-3"], "--rounds -3: expected at least 1"),
    ],
)
def test_invalid_options_are_refused(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        bench_main(["actors", *arguments])
    assert complaint in capsys.readouterr().err


def test_aims_show_measured_values() -> None:
    """Memory is that of the largest run; ratios are those of the sizes that the targets name."""

    def row(count: int, weight: float | None) -> Row:
        figures = {"bytes": weight, "stop_s": count / 1e5}
        return Row(count, "loop", figures, dict.fromkeys(RATES, count / 1e4), dict.fromkeys(RATES, count / 1e2))

    tasks, pykka, idle, stop = _aims([row(1000, None), row(10_000, 1400.0), row(100_000, 1600.0)])
    assert tasks.measured == "flood 1.0x, bursts 1.0x, hops 1.0x"
    assert pykka.measured == "flood 10.0x, bursts 10.0x, hops 10.0x"
    assert idle == Aim("memory of an idle actor, three attributes", "<= 1,500 B", "1,600 B")
    assert stop.measured == "1.00 s"


def test_failed_child_process_ends_bench_actors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_arguments: Any) -> Any:
        raise BenchError("an actor was lost")

    monkeypatch.setattr(actors, "interleaved", fail)
    assert bench_main(["actors", "--quick"]) == 1
    assert "actors: an actor was lost" in capsys.readouterr().err


def test_bench_without_name_lists_benchmarks(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_main([]) == 0
    output = capsys.readouterr().out
    assert "usage: callboard bench NAME [OPTIONS]" in output
    assert all(f"\n  {name} " in output for name in ("server", "timers", "actors"))
