"""The end of a decision about a request: its effects are applied, its work is done, and its answer is returned."""

from __future__ import annotations

from types import GeneratorType

from ..steps import Steps
from .active_group import ActiveGroup


def applied(active: ActiveGroup, answer: object) -> object:
    """Apply the effects of a decision. Returns the answer, or the work that comes before it."""
    if isinstance(answer, GeneratorType):
        return _handle_in_steps(active, answer)
    active.apply_effects()
    return _answer_in_steps(active, answer) if active.effects.work else answer


def _handle_in_steps(active: ActiveGroup, steps: Steps[object]) -> Steps[object]:
    """Apply the effects after each step, because there may be many."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            active.apply_effects()
            return (yield from _answer_in_steps(active, end.value))
        active.apply_effects()
        yield


def _answer_in_steps(active: ActiveGroup, answer: object) -> Steps[object]:
    yield from active.work_in_steps()
    return answer
