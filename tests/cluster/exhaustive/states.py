"""States of a scope, the steps that are possible in each, and what must hold in all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ..violation import Violation
from .automaton import START, Automaton
from .node_run import Input, Operation, View
from .scopes import Scope
from .store_states import EMPTY, StoreStates

READS = ("get", "list")
CRASHED = -1
TICK_S = 2.0
"""A quarter of a TTL. Looks and beats are due after a part of it."""
SETUP_STEPS_MAX = 500


class State(NamedTuple):
    """``nodes``: the state of each process. ``landed``: operations with their results, whose answers are on their way.

    ``late``: operations that nobody waits for any more, and that may still take effect. ``budgets``: what is left.
    ``acknowledged``: by epoch the greatest number, and the session. ``sent``: the number of commits.
    """

    store: int
    now: float
    nodes: tuple[int, ...]
    landed: tuple[tuple[int, int, Any], ...]
    late: tuple[Operation, ...]
    budgets: tuple[int, ...]
    acknowledged: tuple[tuple[int, int, str], ...]
    sent: int


class Step(NamedTuple):
    """``process``: its index, -1 for late effects and time. ``operation`` for the trace."""

    kind: str
    process: int
    number: int = 0
    value: Any = None


class Space:
    """All states of a scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.stores = StoreStates()
        self.automata = [Automaton(process) for process in scope.processes]
        self._budget_places = {name: place for place, name in enumerate(scope.budgets)}

    def view(self, state: State, process: int) -> View:
        return self.automata[process].views[state.nodes[process]]

    def first_state(self) -> State:
        """The first process serves the partition, then the others that take part from the beginning have joined."""
        budgets = tuple(self.scope.budgets.values())
        state = State(EMPTY, 0.0, (START,) * len(self.automata), (), (), budgets, (), 0)
        for process in range(len(self.automata)):
            if f"start {self._letter(process)}" not in self._budget_places:
                state = self.settled(self.given(state, process, Input("start", 0.0)), process)
        return state

    def settled(self, state: State, process: int) -> State:
        """All operations of a process have been answered in their order."""
        for _ in range(SETUP_STEPS_MAX):
            waiting = [number for number, operation in self.view(state, process).pending if operation.kind != "sleep"]
            if not waiting:
                return state
            landed = any((process, waiting[0]) == item[:2] for item in state.landed)
            state = self.after(state, Step("answer" if landed else "do", process, waiting[0]))
        raise Violation(f"{self.scope.processes[process]} does not become quiet")

    # Steps -----------------------------------------------------------------------------------------------------------

    def steps(self, state: State) -> Iterator[Step]:
        """All that are possible."""
        for process, node in enumerate(state.nodes):
            if node == CRASHED:
                continue
            yield from self._commands(state, process)
            for number, operation in self.view(state, process).pending:
                yield from self._steps_of(state, process, number, operation)
        for number, _ in enumerate(state.late):
            yield Step("land late", -1, number)
        if self.scope.has_clock and state.now < self.scope.horizon:
            yield Step("time passes", -1)

    def _letter(self, process: int) -> str:
        return self.scope.processes[process]

    def left(self, state: State, what: str, process: int) -> int:
        place = self._budget_places.get(f"{what} {self._letter(process)}")
        return 0 if place is None else state.budgets[place]

    def leaves(self, state: State, process: int) -> bool:
        """It was told to leave."""
        name = f"leave {self._letter(process)}"
        return name in self._budget_places and self.left(state, "leave", process) < self.scope.budgets[name]

    def _commands(self, state: State, process: int) -> Iterator[Step]:
        view = self.view(state, process)
        if state.nodes[process] == START:
            if self.left(state, "start", process):
                yield Step("start", process)
            return
        if view.served is not None and self.left(state, "commit", process):
            yield Step("commit", process, 0, state.sent + 1)
        is_behind = view.served is not None and view.served[1] < _greatest(state)
        if is_behind and self.left(state, "read", process):
            yield Step("read", process)
        if view.session and self.left(state, "leave", process):
            yield Step("leave", process)
        if view.others and self.left(state, "suspect", process):
            yield Step("suspect", process, 0, view.others[0])
        if self.left(state, "crash", process):
            yield Step("crash", process)

    def _steps_of(self, state: State, process: int, number: int, operation: Operation) -> Iterator[Step]:
        kind = operation.kind
        if kind == "sleep":
            name, due = operation.arguments
            is_due = not self.scope.has_clock or state.now >= due
            if is_due and (name == "burial" or self.left(state, name, process)):
                yield Step("wake", process, number, name)
            return
        if any((process, number) == landed[:2] for landed in state.landed):
            yield Step("answer", process, number)
            yield Step("lose answer", process, number)
            return
        yield Step("do", process, number)
        if self.left(state, "slow", process):
            yield Step("land", process, number, "slow")
        if kind not in READS and self.left(state, "late", process):
            yield Step("land", process, number, "late")
            if kind != "put":
                yield Step("give up", process, number)

    # Effects ---------------------------------------------------------------------------------------------------------

    def after(self, state: State, step: Step) -> State:
        """Raises Violation."""
        process, number = step.process, step.number
        if step.kind == "do":
            operation = self._operation(state, process, number)
            store, result = self.stores.land(state.store, operation)
            return self.given(state._replace(store=store), process, Input("answer", state.now, number, result))
        if step.kind == "land":
            state = self._spent(state, step.value, process)
            store, result = self.stores.land(state.store, self._operation(state, process, number))
            return state._replace(store=store, landed=(*state.landed, (process, number, result)))
        if step.kind in ("answer", "lose answer"):
            [landed] = [landed for landed in state.landed if landed[:2] == (process, number)]
            state = state._replace(landed=tuple(other for other in state.landed if other is not landed))
            answer = Input("answer", state.now, number, landed[2])
            unknown = Input("unknown", state.now, number)
            return self.given(state, process, answer if step.kind == "answer" else unknown)
        if step.kind == "give up":
            state = self._with_late(self._spent(state, "late", process), self._operation(state, process, number))
            return self.given(state, process, Input("unknown", state.now, number))
        if step.kind == "land late":
            store, _ = self.stores.land(state.store, state.late[number])
            return state._replace(store=store, late=state.late[:number] + state.late[number + 1 :])
        if step.kind == "time passes":
            return self._renewed(state._replace(now=state.now + TICK_S))
        if step.kind == "wake":
            if step.value != "burial":
                state = self._spent(state, step.value, process)
            return self.given(state, process, Input("wake", state.now, number))
        return self._command(state, step)

    def _renewed(self, state: State) -> State:
        """Processes without a budget for it renew their leases, in no time."""
        for process in range(len(state.nodes)):
            before = dict(self.view(state, process).pending)
            beats = [number for number, op in before.items() if op.kind == "sleep" and op.arguments[0] == "beat"]
            if f"beat {self._letter(process)}" in self._budget_places:
                continue
            for number in beats:
                state = self.given(state, process, Input("wake", state.now, number))
            while new := [
                number
                for number, operation in self.view(state, process).pending
                if number not in before and operation.kind != "sleep"
            ]:
                state = self.after(state, Step("do", process, new[0]))
        return state

    def _command(self, state: State, step: Step) -> State:
        process = step.process
        state = self._spent(state, step.kind, process)
        if step.kind == "crash":
            return self.crashed(state, process)
        if step.kind == "commit":
            state = state._replace(sent=state.sent + 1)
        return self.given(state, process, Input(step.kind, state.now, 0, step.value))

    def crashed(self, state: State, process: int) -> State:
        for _, operation in self._unlanded(state, process):
            state = self._with_late(state, operation)
        nodes = (*state.nodes[:process], CRASHED, *state.nodes[process + 1 :])
        return state._replace(nodes=nodes, landed=tuple(landed for landed in state.landed if landed[0] != process))

    def _unlanded(self, state: State, process: int) -> list[tuple[int, Operation]]:
        """Operations that change the store and have not yet."""
        landed = {landed[1] for landed in state.landed if landed[0] == process}
        return [
            (number, operation)
            for number, operation in self.view(state, process).pending
            if operation.kind in ("create", "delete") and number not in landed
        ]

    def _with_late(self, state: State, operation: Operation) -> State:
        """A delete lands key by key."""
        parts = [operation]
        if operation.kind == "delete":
            parts = [Operation("delete", (key,)) for key in operation.arguments]
        return state._replace(late=tuple(sorted((*state.late, *parts))))

    def _spent(self, state: State, what: str, process: int) -> State:
        place = self._budget_places[f"{what} {self._letter(process)}"]
        budgets = (*state.budgets[:place], state.budgets[place] - 1, *state.budgets[place + 1 :])
        return state._replace(budgets=budgets)

    def _operation(self, state: State, process: int, number: int) -> Operation:
        return dict(self.view(state, process).pending)[number]

    def given(self, state: State, process: int, given: Input) -> State:
        """A process gets an input. What it waits for no more may land later."""
        before = self._unlanded(state, process)
        node = self.automata[process].step(state.nodes[process], given)
        state = state._replace(nodes=(*state.nodes[:process], node, *state.nodes[process + 1 :]))
        pending = {number for number, _ in self.view(state, process).pending}
        for number, operation in before:
            if number not in pending and number != given.number:
                state = self._with_late(state, operation)
        landed = tuple(item for item in state.landed if item[0] != process or item[1] in pending)
        return self._checked(state._replace(landed=landed), process)

    # Promises --------------------------------------------------------------------------------------------------------

    def _checked(self, state: State, process: int) -> State:
        view, who = self.view(state, process), self._letter(process)
        for event in view.events:
            if event[0] == "acknowledged":
                state = _acknowledged(state, *event[1:])
            elif event[0] == "read" and event[1] < _greatest(state):
                raise Violation(f"{who} reads {event[1]}, and {_greatest(state)} was acknowledged")
            elif event[0] == "error":
                raise Violation(f"{who}: {event[1]}")
        if view.damage:
            raise Violation(f"{who} refuses the partition as damaged: {view.damage}")
        return state

    def check(self, state: State) -> None:
        """What holds in each state. Raises Violation."""
        recovered, greatest = self.stores.recovered(state.store), _greatest(state)
        if isinstance(recovered, str):
            raise Violation(recovered)
        if recovered < greatest:
            raise Violation(f"{greatest} was acknowledged, and a new owner would load {recovered}")
        for process, node in enumerate(state.nodes):
            if node == CRASHED or (served := self.view(state, process).served) is None:
                continue
            least = max((number for epoch, number, _ in state.acknowledged if epoch <= served[0]), default=0)
            if served[1] < least:
                text = f"serves {served[1]} in epoch {served[0]}, and {least} was acknowledged"
                raise Violation(f"{self._letter(process)} {text}")


def _greatest(state: State) -> int:
    return max((number for _, number, _ in state.acknowledged), default=0)


def _acknowledged(state: State, session: str, epoch: int, number: int) -> State:
    others = [item for item in state.acknowledged if item[0] != epoch]
    for owner_epoch, before, owner in state.acknowledged:
        if owner_epoch == epoch:
            if owner != session:
                raise Violation(f"{session} and {owner} both acknowledge with epoch {epoch}")
            number = max(number, before)
    return state._replace(acknowledged=tuple(sorted((*others, (epoch, number, session)))))
