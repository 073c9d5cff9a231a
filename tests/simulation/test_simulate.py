"""Tests of ``simulate``: reports, shrinking, and the example of docs/simulation.md."""

from __future__ import annotations

import re
import sys
from functools import partial
from types import ModuleType
from typing import Any

import pytest
from project_paths import DOCS

from callboard.runtime.testing import __main__ as command
from callboard.runtime.testing.simulation.chaos import Chaos
from callboard.runtime.testing.simulation.scenario import Sim
from callboard.runtime.testing.simulation.simulate import SimulationFailed, run_seed, simulate

PAGE = DOCS / "simulation.md"
PAGE_SEEDS = 10  # a reader runs more
CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


async def quiet(sim: Sim) -> None:
    await Chaos(sim).run(10)


async def wrong_after_a_crash(sim: Sim) -> None:
    """A failure that needs one of many faults."""
    await Chaos(sim).run(60, ("crash", "compaction", "clean restart", "power cut"))
    if any("clean restart" in fault for fault in sim.faults.happened.values()):
        sim.fail("as planned")


async def never_over(sim: Sim) -> None:
    await sim.until(lambda: False, 1e9, "pigs fly")


async def fails_by_itself(sim: Sim) -> None:
    async def task() -> None:
        await sim.sleep(1)
        raise ValueError("in a task")

    sim.spawn("p", task())
    await sim.sleep(2)


def test_report_has_totals() -> None:
    report = simulate(quiet, seeds=3)
    assert report.seeds == 3 and report.virtual_s >= 30 and "3 seeds" in str(report)


def test_failure_is_shrunk_and_has_repeat_command() -> None:
    with pytest.raises(SimulationFailed) as failed:
        simulate(wrong_after_a_crash, seeds=20)
    text = str(failed.value)
    match = re.search(r"repeat it: python -m (\S+) (\S+):(\S+) (\d+) --only ([\d,]+)", text)
    assert match is not None, text
    assert match[3] == "wrong_after_a_crash" and "as planned" in text and "timeline:" in text
    repeated = run_seed(wrong_after_a_crash, int(match[4]), [int(number) for number in match[5].split(",")])
    assert "as planned" in str(repeated.failure)
    assert list(repeated.faults.values()) == ["clean restart"]


def test_endless_scenario_fails_with_waiting_tasks() -> None:
    failure = run_seed(never_over, 1, limit_s=100).failure
    assert "not over after 100 s" in str(failure) and "until" in str(failure)


def test_error_in_process_fails_run() -> None:
    assert isinstance(run_seed(fails_by_itself, 1).failure, ValueError)


def test_simulate_with_zero_seeds_raises_value_error() -> None:
    with pytest.raises(ValueError, match="seeds=0"):
        simulate(quiet, seeds=0)


def test_main_repeats_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([f"{__name__}:fails_by_itself", "1"]) == 1
    assert "ValueError: in a task" in capsys.readouterr().out
    assert command.main([f"{__name__}:quiet", "1", "2"]) == 0
    with pytest.raises(SystemExit, match="expected MODULE:FUNCTION"):
        command.main(["no_such_module:scenario", "1"])


def test_the_page_does_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    example, _ = CODE.findall(PAGE.read_text())
    assert "seeds=50)" in example
    example = example.replace("seeds=50)", f"seeds={PAGE_SEEDS})")
    module = ModuleType("test_resize")
    monkeypatch.setitem(sys.modules, "test_resize", module)
    exec(compile(example, "test_resize.py", "exec"), module.__dict__)
    module.test_workers_survive_everything()


@pytest.mark.parametrize("looks", [True, False])
def test_worker_of_the_page_has_stale_writes_only_without_its_look(looks: bool) -> None:
    example, worker = CODE.findall(PAGE.read_text())
    namespace: dict[str, Any] = {}
    example = example.replace("run(seconds=30)", 'run(60, ("process frozen", "process killed"))')
    exec(example + (worker if looks else worker.replace("shard.is_lost", "False")), namespace)

    async def serve(sim: Sim, name: str) -> None:
        member = sim.member("resize-images", resources={"jobs": 4}, session_timeout_ms=6000)
        await sim.serve(member, partial(namespace["work"], sim), who=name)

    namespace["worker"] = serve
    failures = [str(run_seed(namespace["scenario"], seed).failure) for seed in range(8)]
    assert any("was written by a former owner" in failure for failure in failures) != looks
    assert not looks or set(failures) == {"None"}


def test_compaction_on_a_disk_without_power_ends_the_coordinator() -> None:
    """The coordinator's own timers may have lost the power before, without a message that notices it."""

    async def scenario(sim: Sim) -> None:
        sim.power_cut(1)
        sim.coordinator.disk.faults.is_off = True
        sim.compact_in_subprocess()
        assert sim.coordinator.is_down
        await sim.start()

    assert run_seed(scenario, 0).failure is None
