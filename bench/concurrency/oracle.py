"""The oracle: checks that the engine's final state agrees with the responses that its clients received.

It runs when the engine is idle, and checks for each group:

- every request was handled once and got one response, and no two turns overlapped;
- the offset of each partition is the last acknowledged one, and as many offsets were applied as acknowledged;
- no commit or assignment was acknowledged before its record was written (the clients check this at once);
- the session of each member was renewed by its last acknowledged heartbeat;
- the members are those that joined or were loaded, except those that left or whose session must have expired;
- the generation is the last one in a response, or a later one if all members left; in each generation all members got
  the same leader, and the leader got the list of exactly these members;
- no member is waiting, the leader is a member, and a stable or empty group equals its durable record;
- if responses do not depend on other clients: the requests of some groups are replayed to a reference cell, which must
  give the same responses and the same final state.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from callboard.actors.records import GroupValue
from callboard.bench.concurrency.cell import Alarms, Append, Cell, CellEnvironment, deliver
from callboard.bench.concurrency.clients import ClientRunner, Exchange, JoinResult
from callboard.bench.concurrency.engines import Seed
from callboard.bench.concurrency.services import LabClock
from callboard.bench.concurrency.workloads import WorkloadSetup
from callboard.runtime.engine.clock import SystemRandom

FINDINGS_MAX = 5
"""The maximum number of reported violations of a kind."""


class ExpectedGroup(NamedTuple):
    """The expected state of a group, from the responses of all clients."""

    acked: dict[int, int]  # partition -> offset
    commits: int
    generation: int | None  # None: no response had one
    joined: frozenset[str] | None  # None: no client joined
    asked: int
    heartbeats_ms: dict[str, int]  # member id -> when its last acknowledged heartbeat was sent


def find_violations(
    cells: Sequence[Cell], setup: WorkloadSetup, runners: Sequence[ClientRunner], *, is_fixed: bool
) -> list[str]:
    """The violations as text; of each kind at most ``FINDINGS_MAX``, and the number of others."""
    seeds = {seed.group_id: seed for seed in setup.seeds()}
    kinds = [
        _check_responses(runners),
        _check_clients(runners),
        check_generations(join_results(runners)),
        _check_cells(cells, seeds, setup, runners),
    ]
    if is_fixed:
        kinds.append(_check_replays(cells, seeds, runners))
    return [finding for kind in kinds for finding in _first(list(kind))]


def _first(violations: list[str]) -> list[str]:
    hidden_count = len(violations) - FINDINGS_MAX
    return [*violations[:FINDINGS_MAX], f"and {hidden_count} more like this"] if hidden_count > 0 else violations


# Responses ----------------------------------------------------------------------------------------------------------


def _check_responses(runners: Sequence[ClientRunner]) -> Iterator[str]:
    if unanswered := sum(runner.in_flight for runner in runners):
        yield f"requests without a response: {unanswered}"
    for runner in runners:
        yield from runner.second_answers


def _check_clients(runners: Sequence[ClientRunner]) -> Iterator[str]:
    return (unexpected for runner in runners for client in runner.clients for unexpected in client.ledger.unexpected)


def join_results(runners: Iterable[ClientRunner]) -> list[JoinResult]:
    return [result for runner in runners for client in runner.clients for result in client.ledger.told]


def check_generations(results: Iterable[JoinResult]) -> Iterator[str]:
    """Contradictions between the JoinGroup responses of the same generation."""
    generations: dict[tuple[str, int], list[JoinResult]] = defaultdict(list)
    for result in results:
        generations[result.group_id, result.generation].append(result)
    for (group_id, generation), same_generation in generations.items():
        name = f"group {group_id}, generation {generation}"
        members = [result.member_id for result in same_generation]
        leaders = {result.leader_id for result in same_generation}
        member_lists = [result.member_ids for result in same_generation if result.member_id == result.leader_id]
        if len(set(members)) < len(members):
            yield f"{name}: a member got two responses"
        if len(leaders) > 1:
            yield f"{name}: {len(leaders)} leaders: {_some_names(leaders)}"
        elif member_lists and set(member_lists[0]) != set(members):
            count = len(member_lists[0])
            yield f"{name}: the leader got a list of {count} members, {len(members)} members joined"
        elif not member_lists:
            yield f"{name}: {len(members)} members, the leader {_some_names(leaders)} is not one of them"


def expected_groups(setup: WorkloadSetup, runners: Sequence[ClientRunner]) -> dict[str, ExpectedGroup]:
    """The expected state of each group, from all ledgers."""
    acked: dict[str, dict[int, int]] = defaultdict(dict)
    commits: Counter[str] = Counter()
    generations: dict[str, int] = {}
    joined: dict[str, set[str]] = {}
    requests_by_group: Counter[int] = Counter()
    heartbeats_ms: dict[str, dict[str, int]] = defaultdict(dict)
    for runner in runners:
        requests_by_group.update(runner.measured.groups)
        requests_by_group.update(runner.measured.groups_after)
        for ledger in (client.ledger for client in runner.clients):
            for (group_id, partition), offset in ledger.acked.items():
                acked[group_id][partition] = offset
            commits.update(ledger.commits)
            for (group_id, member_id), sent_ms in ledger.heartbeats_ms.items():
                heartbeats_ms[group_id][member_id] = max(sent_ms, heartbeats_ms[group_id].get(member_id, 0))
            for group_id, generation in ledger.generations.items():
                generations[group_id] = max(generations.get(group_id, 0), generation)
            for group_id, member_ids in ledger.joined.items():
                joined.setdefault(group_id, set()).update(member_ids)
    return {
        group_id: ExpectedGroup(
            acked[group_id],
            commits[group_id],
            generations.get(group_id),
            frozenset(joined[group_id]) if group_id in joined else None,
            requests_by_group[number],
            heartbeats_ms[group_id],
        )
        for group_id, number in setup.run_state.numbers.items()
    }


# State of groups ---------------------------------------------------------------------------------------------------


def _check_cells(
    cells: Sequence[Cell], seeds: dict[str, Seed], setup: WorkloadSetup, runners: Sequence[ClientRunner]
) -> Iterator[str]:
    if missing := seeds.keys() - {cell.group_id for cell in cells}:
        yield f"groups were never created: {_some_names(missing)}"
    expected_group = expected_groups(setup, runners)
    for cell in cells:
        group_id = cell.group_id
        findings = _check_cell(
            cell, seeds[group_id].value, expected_group[group_id], setup.expiring_members.get(group_id, frozenset())
        )
        yield from (f"group {group_id}: {finding}" for finding in findings)


def _check_cell(
    cell: Cell, loaded: GroupValue | None, expected_group: ExpectedGroup, expiring_members: frozenset[str]
) -> Iterator[str]:
    yield from _check_turns(cell, expected_group)  # first: overlapping turns cause most other findings
    yield from cell.bugs
    yield from _check_offsets(cell, expected_group)
    yield from _check_members(cell, loaded, expected_group, expiring_members)
    yield from _check_sessions(cell, expected_group)
    yield from _check_generation(cell, loaded, expected_group)
    yield from _check_group(cell)


def _check_turns(cell: Cell, expected_group: ExpectedGroup) -> Iterator[str]:
    if cell.overlaps:
        yield f"{cell.overlaps} turns overlapped with another"
    if cell.handled != expected_group.asked:
        yield f"{cell.handled} requests were handled, {expected_group.asked} got a response"


def _check_offsets(cell: Cell, expected_group: ExpectedGroup) -> Iterator[str]:
    offsets = committed(cell)
    for partition in sorted(offsets.keys() | expected_group.acked.keys()):
        actual, acked = offsets.get(partition), expected_group.acked.get(partition)
        if actual != acked:
            yield f"partition {partition} has offset {actual}, the last acknowledged one is {acked}"
    if cell.applied != expected_group.commits:
        yield f"{cell.applied} offsets were applied, {expected_group.commits} acknowledged"


def committed(cell: Cell) -> dict[int, int]:
    """Committed offsets by partition; the workloads have one topic."""
    return {partition: value.offset for _, partition, value in cell.data.offsets}


def _check_members(
    cell: Cell, loaded: GroupValue | None, expected_group: ExpectedGroup, expiring_members: frozenset[str]
) -> Iterator[str]:
    actual = cell.group.members.by_id.keys()
    expected = expected_group.joined
    if expected is None:
        expected = (
            frozenset(member.member_id for member in loaded.members) - expiring_members if loaded else frozenset()
        )
    if expired := actual & expiring_members:
        yield f"members with expired sessions: {_some_names(expired)}"
    if unexpected := actual - expected - expiring_members:
        yield f"unexpected members: {_some_names(unexpected)}"
    if missing := expected - actual:
        yield f"missing members: {_some_names(missing)}"
    if cell.group.members.pending:
        yield f"unexpected pending member ids: {_some_names(cell.group.members.pending)}"


def _check_sessions(cell: Cell, expected_group: ExpectedGroup) -> Iterator[str]:
    """The last acknowledged heartbeat of a member has renewed its session."""
    for member in cell.group.members:
        sent_ms, due_ms = expected_group.heartbeats_ms.get(member.member_id), member.session.due_ms
        if sent_ms is not None and (due_ms is None or due_ms < sent_ms + member.session_timeout_ms):
            yield (
                f"the session of {member.member_id} ends at {due_ms} ms, its last heartbeat was sent at {sent_ms} ms "
                f"and its timeout is {member.session_timeout_ms} ms"
            )


def _check_generation(cell: Cell, loaded: GroupValue | None, expected_group: ExpectedGroup) -> Iterator[str]:
    actual = cell.group.generation
    expected = (
        expected_group.generation if expected_group.generation is not None else loaded.generation if loaded else 0
    )
    has_only_left = expected_group.joined is not None and not expected_group.joined
    if actual < expected or (actual > expected) != has_only_left:
        yield f"generation {actual}, the last one in a response is {expected}"


def _check_group(cell: Cell) -> Iterator[str]:
    group, members = cell.group, list(cell.group.members)
    try:
        group.members.check()
    except AssertionError as error:
        yield str(error)
    if parked := [member.member_id for member in members if member.joining or member.syncing]:
        yield f"members with a pending response but no client: {_some_names(parked)}"
    if (group.leader_id in group.members.by_id) != bool(members):
        yield f"the leader is {group.leader_id}, of {len(members)} members"
    if group.state.is_empty != (not members):
        yield f"{group.state.value} with {len(members)} members"
    if (group.state.is_stable or group.state.is_empty) and group.generation:
        yield from _check_record(cell)


def _check_record(cell: Cell) -> Iterator[str]:
    """A stable or empty group equals its last record."""
    value, group = cell.data.value, cell.group
    if value is None:
        yield f"nothing is durable of generation {group.generation}"
        return
    durable = (value.generation, {member.member_id: member.assignment for member in value.members})
    soft = (group.generation, {member.member_id: member.assignment for member in group.members})
    if durable != soft:
        yield f"generation {soft[0]} with {len(soft[1])} members, durable is {durable[0]} with {len(durable[1])}"


# Replay -------------------------------------------------------------------------------------------------------------


class _ResponseHolder:
    """Holds a response."""

    def __init__(self) -> None:
        self.answer: Any = None

    def set(self, value: Any = None) -> None:
        self.answer = value

    def set_exception(self, exc_info: Any = None) -> None:
        self.answer = exc_info


class ReferenceCell:
    """A cell on one thread. Its appends are written immediately, and its clock is paused."""

    def __init__(self, seed: Seed) -> None:
        self._appends: list[Append] = []
        self.cell = Cell(seed.group_id, CellEnvironment(LabClock(), SystemRandom(), self, self))
        if seed.value is not None:
            self.cell.load(seed.value)

    def append(self, append: Append, /) -> None:
        self._appends.append(append)

    def schedule(self, cell: Cell, alarms: Alarms) -> None:
        """Timers never expire."""

    def ask(self, request: Any) -> Any:
        holder = _ResponseHolder()
        deliver(self.cell.handle(request, holder))
        while self._appends:
            deliver(self.cell.written(self._appends.pop(0)))
        return holder.answer


def _check_replays(cells: Sequence[Cell], seeds: dict[str, Seed], runners: Sequence[ClientRunner]) -> Iterator[str]:
    exchanges_by_group: dict[str, list[Exchange]] = defaultdict(list)
    for runner in runners:
        for exchange in runner.measured.exchanges:
            exchanges_by_group[exchange.request.group_id].append(exchange)
    by_id = {cell.group_id: cell for cell in cells}
    for group_id, exchanges in exchanges_by_group.items():
        yield from _check_replay(by_id[group_id], ReferenceCell(seeds[group_id]), exchanges)


def _check_replay(cell: Cell, reference: ReferenceCell, exchanges: Sequence[Exchange]) -> Iterator[str]:
    for request, answer in exchanges:
        expected = reference.ask(request)
        if answer != expected:
            yield f"{request} got the response {answer}, from a reference cell {expected}"
    actual, expected = snapshot(cell), snapshot(reference.cell)
    for name, value in expected.items():
        if actual[name] != value:
            yield f"group {cell.group_id}: {name} is {actual[name]}, of a reference cell {value}"


def snapshot(cell: Cell) -> dict[str, object]:
    """A cell's state, without times."""
    group = cell.group
    return {
        "state": group.state,
        "generation": group.generation,
        "leader": group.leader_id,
        "members": {member.member_id: member.assignment for member in group.members},
        "offsets": committed(cell),
        "applied": cell.applied,
        "handled": cell.handled,
    }


def _some_names(names: Iterable[object]) -> str:
    ordered = sorted(str(name) for name in names)
    return ", ".join(ordered[:3]) + (f" and {len(ordered) - 3} more" if len(ordered) > 3 else "")
