"""The model of the cluster's protocol: small searches to their end, and each planted mistake. docs/simulation.md"""

from __future__ import annotations

import re
from typing import Any

import pytest
from project_paths import ROOT

from .model.__main__ import main
from .model.mistakes import Mistake
from .model.proof import CASES, run_case
from .model.search import Search, Step
from .model.spaces import PLANTS, SPACES, Size, search_plant

STATES_MAX = 60_000
"""Larger searches are for ``make soak``."""
SMALL = [name for name, space in SPACES.items() if space.size.states <= STATES_MAX]
PAGE = ROOT / "docs" / "simulation.md"


class Counting:
    """Counts to a limit and begins again: ``limit`` states. From ``broken`` on the promise is broken."""

    def __init__(self, limit: int, broken: int = 99, stuck_at: int = 99) -> None:
        self.limit, self.broken, self.stuck_at = limit, broken, stuck_at

    def first_state(self) -> tuple[int]:
        return (0,)

    def steps(self, state: Any) -> list[Step]:
        return [
            Step(("add {}", number), ((state[0] + number) % self.limit,)) for number in (1, 2) if number < self.limit
        ]

    def violation(self, state: Any) -> str:
        return "too large" if state[0] >= self.broken else ""

    def stuck(self, state: Any) -> str:
        return "stuck" if state[0] == self.stuck_at else ""


def test_search_visits_each_state_once() -> None:
    result = Search(Counting(10)).run()
    assert (result.states, result.steps, result.depth, result.is_complete) == (10, 20, 5, True)


def test_search_finds_a_shortest_trace() -> None:
    result = Search(Counting(10, broken=5)).run()
    assert (result.violation, result.trace) == ("too large", ("add 1", "add 2", "add 2"))


def test_search_asks_each_nth_state_whether_it_is_stuck() -> None:
    result = Search(Counting(10, stuck_at=3), stuck_every=1).run()
    assert (result.violation, len(result.trace), result.recoveries) == ("stuck", 2, 3)
    assert Search(Counting(10, stuck_at=3)).run().is_complete


def test_search_stops_at_a_number_of_states() -> None:
    result = Search(Counting(1000), max_states=20).run()
    assert (result.states, result.is_complete, result.violation) == (20, False, "")


@pytest.mark.parametrize("name", SMALL)
def test_small_search_is_complete(name: str) -> None:
    result = Search(SPACES[name].make(None)).run()
    assert (result.violation, result.is_complete) == ("", True)
    assert Size(result.states, result.steps, result.depth) == SPACES[name].size


@pytest.mark.parametrize("name", ["small", "give"])
def test_those_who_live_can_finish_from_each_state(name: str) -> None:
    result = Search(SPACES[name].make(None), stuck_every=1).run()
    assert (result.violation, result.recoveries) == ("", SPACES[name].size.states - 1)


@pytest.mark.parametrize("mistake", Mistake, ids=lambda mistake: mistake.option)
def test_planted_mistake_is_found(mistake: Mistake) -> None:
    result = search_plant(mistake)
    assert result.violation
    assert (len(result.trace), result.states) == (PLANTS[mistake].steps, PLANTS[mistake].states)


# The program and the proof -------------------------------------------------------------------------------------------


def test_program_prints_the_size_of_a_search(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["small"]) == 0
    assert capsys.readouterr().out == "small: 261 states, 581 steps, depth 17, 260 recoveries: complete\n"


def test_program_prints_the_trace_of_a_planted_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--plants", "answer-before-stored"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"answer-before-stored: {Mistake.ANSWER_BEFORE_STORED.value}"
    assert lines[2:] == [
        "   1. session 0: a commit to partition 0 gets round 0",
        "  I1: an acknowledged commit of partition 0 is lost",
    ]


def test_program_fails_for_a_mistake_that_is_not_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--plants", "no-seal", "--states", "20"]) == 1
    assert "stopped" in capsys.readouterr().out


def test_unknown_name_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["rain"])
    assert "'rain'; expected one of small, give" in capsys.readouterr().err


def test_proof_has_a_case_for_each_search_and_each_mistake() -> None:
    assert len(CASES) == len(SPACES) + len(Mistake)
    assert run_case(CASES.index("small")) is None
    assert run_case(CASES.index(Mistake.NO_SEAL)) is None


def test_proof_names_what_is_not_as_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SPACES, "small", SPACES["small"]._replace(size=Size(260, 581, 17)))
    assert run_case(CASES.index("small")) == f"small: {Size(261, 581, 17)}, expected {Size(260, 581, 17)}"
    plant = PLANTS[Mistake.NO_SEAL]._replace(space="lease")
    monkeypatch.setitem(PLANTS, Mistake.NO_SEAL, plant)
    failure = run_case(CASES.index(Mistake.NO_SEAL))
    assert failure == "no-seal: found in 0 steps, expected 10 (0: not found)"


def test_documentation_has_the_size_of_each_search() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|[^|]*\| ([\d,]+) \| ([\d,]+) \| (\d+) \|", PAGE.read_text(), re.MULTILINE)
    sizes = {name: Size(*(int(number.replace(",", "")) for number in numbers)) for name, *numbers in rows}
    sizes = {name: size for name, size in sizes.items() if name in SPACES}  # the page has other searches, too
    assert sizes == {name: space.size for name, space in SPACES.items()}


def test_documentation_has_the_trace_length_of_each_mistake() -> None:
    found = dict(re.findall(r"`([a-z-]+)` (\d+)\b", PAGE.read_text()))
    expected = {mistake.option: str(plant.steps) for mistake, plant in PLANTS.items()}
    assert {name: found.get(name) for name in expected} == expected
