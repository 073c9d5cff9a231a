"""Each cell of the state tables matters: scenarios notice every cell with a wrong content.

``state_scenarios.txt`` has the scenarios, in the language of ``actor_system.group_script``. They pass with the tables
of ``states.py``. For each cell of ``CELLS``, ``CHECKS`` and ``TRANSITIONS``, at least one of them has to fail if the
cell has a wrong error code, names a wrong function, leads to a wrong state, or is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from actor_system.group_script import ScriptPlayer

from callboard.actors.errors import ErrorCode
from callboard.actors.group.classic import ClassicGroup
from callboard.actors.group.dispatch import TABLES, build_tables
from callboard.actors.group.machine import Tables
from callboard.actors.group.states import CELLS, CHECKS, TRANSITIONS, Cell, Request, State, Transition

JOINS = {kind for kind in Request if kind.name.startswith("JOIN_")}
CONSENTS = {
    Request.HEARTBEAT,
    Request.COMMIT,
    Request.TXN_COMMIT,
    Request.FETCH,
    Request.DELETE_OFFSETS,
    Request.DELETE,
}
WRONG_CODES = (ErrorCode.NONE, ErrorCode.NON_EMPTY_GROUP, ErrorCode.UNKNOWN_SERVER_ERROR)

Steps = list[tuple[str, str]]


def read_scenarios() -> dict[str, Steps]:
    """By title: the commands, each with what it causes."""
    scenarios: dict[str, Steps] = {}
    for line in Path(__file__).with_name("state_scenarios.txt").read_text().splitlines():
        if line.startswith("# "):
            steps = scenarios[line[2:]] = []
        elif line:
            command, _, outcome = line.partition(" => ")
            steps.append((command, outcome))
    return scenarios


SCENARIOS = read_scenarios()


class Mutant(NamedTuple):
    """Tables with one wrong cell."""

    name: str
    tables: Tables


def functions_for(kind: Request) -> set[str]:
    """The functions of the table that could handle a request of this kind, in some state."""
    similar = next((kinds for kinds in (JOINS, CONSENTS) if kind in kinds), {kind})
    return {cell for row in CELLS.values() for other in similar if isinstance(cell := row.get(other), str)}


def with_cell(table: Mapping[State, Mapping[Any, Any]], state: State, key: object, cell: object) -> dict[State, Any]:
    """The table with another cell; None: without the cell."""
    row = {**table[state], key: cell}
    if cell is None:
        del row[key]
    return {**table, state: row}


def request_mutants() -> Iterator[Mutant]:
    for state, row in CELLS.items():
        for kind, cell in row.items():
            wrong: set[Cell] = {*WRONG_CODES, *functions_for(kind)}
            for other in sorted(wrong - {cell}, key=str):
                name = f"{state.value}, {kind.name}: {other!s} instead of {cell!s}"
                yield Mutant(name, build_tables(cells=with_cell(CELLS, state, kind, other)))


def check_mutants() -> Iterator[Mutant]:
    for kind, check in CHECKS.items():
        for other in sorted(set(CHECKS.values()) - {check}):
            yield Mutant(f"{kind.name}: {other} instead of {check}", build_tables(checks={**CHECKS, kind: other}))
        rest = {known: name for known, name in CHECKS.items() if known is not kind}
        yield Mutant(f"{kind.name}: not checked", build_tables(checks=rest))


def transition_mutants() -> Iterator[Mutant]:
    acts = {step.act for row in TRANSITIONS.values() for step in row.values()}
    for state, row in TRANSITIONS.items():
        for event, step in row.items():
            wrong = [Transition(other, step.act) for other in State if other is not step.state]
            wrong += [Transition(step.state, act) for act in sorted(acts - {step.act}, key=str)]
            for other in (None, *wrong):
                name = f"{state.value}, {event.name}: {other} instead of {step}"
                yield Mutant(name, build_tables(transitions=with_cell(TRANSITIONS, state, event, other)))


def failed_scenario(titles: Iterable[str] = SCENARIOS) -> str | None:
    """The title of the first scenario that does not have its outcomes; None if all have."""
    for title in titles:
        player = ScriptPlayer()
        try:
            if any(player.play(command) != outcome for command, outcome in SCENARIOS[title]):
                return title
        except Exception:
            return title
    return None


@pytest.mark.parametrize("title", SCENARIOS)
def test_scenario_has_its_outcomes(title: str) -> None:
    player = ScriptPlayer()
    for command, outcome in SCENARIOS[title]:
        assert f"{command} => {player.play(command)}" == f"{command} => {outcome}"


@pytest.mark.parametrize("make_mutants", [request_mutants, check_mutants, transition_mutants])
def test_each_wrong_cell_is_noticed(make_mutants: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mutants = list(make_mutants())
    unnoticed = []
    titles = list(SCENARIOS)
    for mutant in mutants:
        monkeypatch.setattr(ClassicGroup, "tables", mutant.tables)
        title = failed_scenario(titles)
        if title is None:
            unnoticed.append(mutant.name)
        else:  # what notices a mutant often notices the next one
            titles.remove(title)
            titles.insert(0, title)
    assert len(mutants) >= 15
    assert not unnoticed, f"{len(unnoticed)} of {len(mutants)} wrong cells are not noticed"


def test_scenarios_reach_each_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise its wrong contents could be noticed only by accident."""
    reached: set[tuple[State, object]] = set()

    class RecordingRow(dict[Any, Any]):
        def __init__(self, state: State, row: Mapping[Any, Any]) -> None:
            super().__init__(row)
            self.state = state

        def __getitem__(self, key: object) -> Any:
            reached.add((self.state, key))
            return super().__getitem__(key)

        def get(self, key: object, default: Any = None) -> Any:
            reached.add((self.state, key))
            return super().get(key, default)

    tables = Tables(
        {state: RecordingRow(state, row) for state, row in TABLES.requests.items()},
        {state: RecordingRow(state, row) for state, row in TABLES.transitions.items()},
    )
    monkeypatch.setattr(ClassicGroup, "tables", tables)
    assert failed_scenario() is None
    cells = {(state, key) for table in TABLES for state, row in table.items() for key in row}
    assert cells - reached == set()
