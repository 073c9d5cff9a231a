"""The exhaustive search of the cluster's code: small scopes to their end, a larger one in part, planted mistakes."""

from __future__ import annotations

import pytest

from .exhaustive.cases import PLANTS, search_plant, search_scope
from .exhaustive.scopes import SCOPES
from .exhaustive.states import Space

STATES_MAX = 30_000
"""``make soak`` searches to the end."""


@pytest.mark.parametrize("name", [name for name, scope in SCOPES.items() if scope.is_short])
def test_scope_has_no_violation(name: str) -> None:
    result = search_scope(name, STATES_MAX)
    assert (result.violation, result.trace) == ("", ())
    states, _, _ = SCOPES[name].size
    if states > STATES_MAX:
        assert result.states == STATES_MAX
        return
    assert result.is_complete
    assert (result.states, result.steps, result.depth) == SCOPES[name].size


@pytest.mark.parametrize("name", [name for name, plant in PLANTS.items() if plant.is_short])
def test_planted_mistake_is_found(name: str) -> None:
    assert search_plant(name).violation


def test_same_inputs_lead_to_the_same_state() -> None:
    """What the search relies on: a process that gets its inputs again is in the same state."""
    space = Space(SCOPES["round"])
    state = space.first_state()
    for automaton, node in zip(space.automata, state.nodes, strict=True):
        assert automaton._repeated(node)._view() == automaton.views[node]
        assert automaton.views[node].pending
