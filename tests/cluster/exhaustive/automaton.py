"""Automaton: the states that one process of a node can be in, found as they are needed.

A state is what its inputs have led to, so it has a number by the state before and the input. The code runs once for
each pair of them; after that the result is known, whatever the other nodes and the store have done meanwhile.
"""

from __future__ import annotations

from collections import OrderedDict

from .node_run import Input, NodeRun, View

RUNS_KEPT = 3000
"""Processes that are kept, so that their next input does not need all inputs before it again."""
START = 0


class Automaton:
    """``views`` by state. State 0 is a process that was not started."""

    def __init__(self, process: str) -> None:
        self.process = process
        self.views = [View((), None, "", "", (), ())]
        self.executed = 0
        self._before: list[tuple[int, Input]] = [(START, Input("", 0.0))]
        self._after: dict[tuple[int, Input], int] = {}
        self._runs: OrderedDict[int, NodeRun] = OrderedDict()

    def step(self, state: int, given: Input) -> int:
        """The state after an input."""
        after = self._after.get((state, given))
        if after is None:
            after = self._execute(state, given)
        return after

    def _execute(self, state: int, given: Input) -> int:
        run = self._runs.pop(state, None) or self._repeated(state)
        self.views.append(run.apply(given))
        self.executed += 1
        self._before.append((state, given))
        after = self._after[state, given] = len(self.views) - 1
        self._runs[after] = run
        if len(self._runs) > RUNS_KEPT:
            self._runs.popitem(last=False)
        return after

    def _repeated(self, state: int) -> NodeRun:
        """A new process that gets the same inputs."""
        inputs = []
        while state != START:
            state, given = self._before[state]
            inputs.append(given)
        run = NodeRun(self.process)
        for given in reversed(inputs):
            run.apply(given)
        return run
