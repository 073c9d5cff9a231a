"""The oracle: does the engine's end state agree with what its clients were told? An empty list says yes.

It looks when nothing moves any more. What it holds a group to:

- every request was answered, once, and handled, once; nobody was inside together with somebody else;
- the offset of each partition is the last that was acknowledged, and as many were applied as acknowledged;
- the members are those that joined or were loaded, less those that left and those whose session had to run out;
- the generation is the last that a member was told, or a later one when all have left; in each generation all were
  told the same leader, and the leader was told exactly those who were told the generation;
- nobody is parked, the leader is a member, and a stable or empty group is as its durable record says;
- where what others ask does not change an answer, the requests of some groups are played again to a bare cell, one
  after the other: it must give the same answers and end the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from callboard.actors.group.states import State
from callboard.actors.records import GroupValue
from callboard.bench.concurrency.cell import Alarms, Append, Cell, CellEnvironment, deliver
from callboard.bench.concurrency.clients import Crew, Exchange, Told
from callboard.bench.concurrency.engines import Seed
from callboard.bench.concurrency.services import LabClock
from callboard.bench.concurrency.workloads import Cast
from callboard.runtime.engine.clock import SystemRandom

FINDINGS_MAX = 5
"""What is wrong is wrong after the first; more would fill the report."""


class Promised(NamedTuple):
    """What all clients together were told about one group."""

    acked: dict[int, int]  # partition -> offset
    commits: int
    generation: int | None  # None: nobody was told one
    joined: frozenset[str] | None  # None: nobody joined by a request
    asked: int


def judge(cells: Sequence[Cell], cast: Cast, crews: Sequence[Crew], *, is_fixed: bool) -> list[str]:
    """What is wrong, in words: of each kind ``FINDINGS_MAX`` findings and how many more there are."""
    seeds = {seed.group_id: seed for seed in cast.seeds()}
    kinds = [_of_answers(crews), _of_clients(crews), of_generations(told(crews)), _of_cells(cells, seeds, cast, crews)]
    if is_fixed:
        kinds.append(_of_replays(cells, seeds, crews))
    return [finding for kind in kinds for finding in _first(list(kind))]


def _first(found: list[str]) -> list[str]:
    more = len(found) - FINDINGS_MAX
    return [*found[:FINDINGS_MAX], f"and {more} more like this"] if more > 0 else found


# What clients saw ---------------------------------------------------------------------------------------------------


def _of_answers(crews: Sequence[Crew]) -> Iterator[str]:
    if unanswered := sum(crew.in_flight for crew in crews):
        yield f"never answered: {unanswered} requests"
    for crew in crews:
        yield from crew.second_answers


def _of_clients(crews: Sequence[Crew]) -> Iterator[str]:
    return (strange for crew in crews for client in crew.clients for strange in client.ledger.strange)


def told(crews: Iterable[Crew]) -> list[Told]:
    return [each for crew in crews for client in crew.clients for each in client.ledger.told]


def of_generations(all_told: Iterable[Told]) -> Iterator[str]:
    """What does not fit together in what members were told of their generations."""
    generations: dict[tuple[str, int], list[Told]] = defaultdict(list)
    for each in all_told:
        generations[each.group_id, each.generation].append(each)
    for (group_id, generation), those in generations.items():
        name = f"group {group_id}, generation {generation}"
        members = [each.member_id for each in those]
        leaders = {each.leader_id for each in those}
        lists = [each.member_ids for each in those if each.member_id == each.leader_id]
        if len(set(members)) < len(members):
            yield f"{name}: a member was told twice"
        if len(leaders) > 1:
            yield f"{name}: {len(leaders)} leaders: {_few(leaders)}"
        elif lists and set(lists[0]) != set(members):
            yield f"{name}: the leader was told of {len(lists[0])} members, {len(members)} were told that they are in"
        elif not lists:
            yield f"{name}: {len(members)} members, the leader {_few(leaders)} is none of them"


def promises(cast: Cast, crews: Sequence[Crew]) -> dict[str, Promised]:
    """What each group is held to, from all ledgers."""
    acked: dict[str, dict[int, int]] = defaultdict(dict)
    commits: Counter[str] = Counter()
    generations: dict[str, int] = {}
    joined: dict[str, set[str]] = {}
    asked: Counter[int] = Counter()
    for crew in crews:
        asked.update(crew.groups)
        asked.update(crew.groups_after)
        for ledger in (client.ledger for client in crew.clients):
            for (group_id, partition), offset in ledger.acked.items():
                acked[group_id][partition] = offset
            commits.update(ledger.commits)
            for group_id, generation in ledger.generations.items():
                generations[group_id] = max(generations.get(group_id, 0), generation)
            for group_id, member_ids in ledger.joined.items():
                joined.setdefault(group_id, set()).update(member_ids)
    return {
        group_id: Promised(
            acked[group_id],
            commits[group_id],
            generations.get(group_id),
            frozenset(joined[group_id]) if group_id in joined else None,
            asked[number],
        )
        for group_id, number in cast.stage.numbers.items()
    }


# What a group must be -----------------------------------------------------------------------------------------------


def _of_cells(cells: Sequence[Cell], seeds: dict[str, Seed], cast: Cast, crews: Sequence[Crew]) -> Iterator[str]:
    if missing := seeds.keys() - {cell.group_id for cell in cells}:
        yield f"groups were never made: {_few(missing)}"
    promised = promises(cast, crews)
    for cell in cells:
        group_id = cell.group_id
        findings = _of_cell(cell, seeds[group_id].value, promised[group_id], cast.doomed.get(group_id, frozenset()))
        yield from (f"group {group_id}: {finding}" for finding in findings)


def _of_cell(cell: Cell, loaded: GroupValue | None, promised: Promised, doomed: frozenset[str]) -> Iterator[str]:
    yield from cell.bugs
    yield from _of_turns(cell, promised)
    yield from _of_offsets(cell, promised)
    yield from _of_members(cell, loaded, promised, doomed)
    yield from _of_generation(cell, loaded, promised)
    yield from _of_group(cell)


def _of_turns(cell: Cell, promised: Promised) -> Iterator[str]:
    if cell.overlaps:
        yield f"{cell.overlaps} turns began inside of another"
    if cell.handled != promised.asked:
        yield f"{cell.handled} requests were handled, {promised.asked} answered"


def _of_offsets(cell: Cell, promised: Promised) -> Iterator[str]:
    offsets = committed(cell)
    for partition in sorted(offsets.keys() | promised.acked.keys()):
        there, acked = offsets.get(partition), promised.acked.get(partition)
        if there != acked:
            yield f"partition {partition} has offset {there}, the last that was acknowledged is {acked}"
    if cell.applied != promised.commits:
        yield f"{cell.applied} offsets were applied, {promised.commits} acknowledged"


def committed(cell: Cell) -> dict[int, int]:
    """Offsets by partition: the laboratory has one topic."""
    return {partition: value.offset for _, partition, value in cell.data.offsets}


def _of_members(cell: Cell, loaded: GroupValue | None, promised: Promised, doomed: frozenset[str]) -> Iterator[str]:
    there = cell.group.members.by_id.keys()
    expected = promised.joined
    if expected is None:
        expected = frozenset(member.member_id for member in loaded.members) - doomed if loaded else frozenset()
    if expired := there & doomed:
        yield f"their sessions ran out, and they are still members: {_few(expired)}"
    if strangers := there - expected - doomed:
        yield f"nobody knows that they are members: {_few(strangers)}"
    if lost := expected - there:
        yield f"they should be members and are not: {_few(lost)}"
    if cell.group.members.pending:
        yield f"ids are pending that nobody asked for: {_few(cell.group.members.pending)}"


def _of_generation(cell: Cell, loaded: GroupValue | None, promised: Promised) -> Iterator[str]:
    there = cell.group.generation
    known = promised.generation if promised.generation is not None else loaded.generation if loaded else 0
    all_left = promised.joined is not None and not promised.joined
    if there < known or (there > known) != all_left:
        yield f"generation {there}, the last that a member was told is {known}"


def _of_group(cell: Cell) -> Iterator[str]:
    group, members = cell.group, list(cell.group.members)
    try:
        group.members.check()
    except AssertionError as error:
        yield str(error)
    if parked := [member.member_id for member in members if member.joining or member.syncing]:
        yield f"parked, and nobody waits: {_few(parked)}"
    if (group.leader_id in group.members.by_id) != bool(members):
        yield f"the leader is {group.leader_id}, of {len(members)} members"
    if (group.state is State.EMPTY) != (not members):
        yield f"{group.state.value} with {len(members)} members"
    if group.state in (State.STABLE, State.EMPTY) and group.generation:
        yield from _of_record(cell)


def _of_record(cell: Cell) -> Iterator[str]:
    """A group that is stable or empty is what its last record says."""
    value, group = cell.data.value, cell.group
    if value is None:
        yield f"nothing is durable of generation {group.generation}"
        return
    durable = (value.generation, {member.member_id: member.assignment for member in value.members})
    soft = (group.generation, {member.member_id: member.assignment for member in group.members})
    if durable != soft:
        yield f"generation {soft[0]} with {len(soft[1])} members, durable is {durable[0]} with {len(durable[1])}"


# Playing it again ---------------------------------------------------------------------------------------------------


class _Place:
    """Keeps an answer."""

    def __init__(self) -> None:
        self.answer: Any = None

    def set(self, value: Any = None) -> None:
        self.answer = value

    def set_exception(self, exc_info: Any = None) -> None:
        self.answer = exc_info


class BareCell:
    """A cell alone, on one thread: what it appends is written at once, and time stands still."""

    def __init__(self, seed: Seed) -> None:
        self._appends: list[Append] = []
        self.cell = Cell(seed.group_id, CellEnvironment(LabClock(), SystemRandom(), self, self))
        if seed.value is not None:
            self.cell.load(seed.value)

    def append(self, append: Append, /) -> None:
        self._appends.append(append)

    def file(self, cell: Cell, alarms: Alarms) -> None:
        """Nothing rings here."""

    def ask(self, request: Any) -> Any:
        place = _Place()
        deliver(self.cell.handle(request, place))
        while self._appends:
            deliver(self.cell.written(self._appends.pop(0)))
        return place.answer


def _of_replays(cells: Sequence[Cell], seeds: dict[str, Seed], crews: Sequence[Crew]) -> Iterator[str]:
    played: dict[str, list[Exchange]] = defaultdict(list)
    for crew in crews:
        for exchange in crew.exchanges:
            played[exchange.request.group_id].append(exchange)
    by_id = {cell.group_id: cell for cell in cells}
    for group_id, exchanges in played.items():
        yield from _of_replay(by_id[group_id], BareCell(seeds[group_id]), exchanges)


def _of_replay(cell: Cell, bare: BareCell, exchanges: Sequence[Exchange]) -> Iterator[str]:
    for request, answer in exchanges:
        expected = bare.ask(request)
        if answer != expected:
            yield f"{request} was answered {answer}, a bare cell answers {expected}"
    there, expected = picture(cell), picture(bare.cell)
    for name, value in expected.items():
        if there[name] != value:
            yield f"group {cell.group_id}: {name} is {there[name]}, of a bare cell {value}"


def picture(cell: Cell) -> dict[str, object]:
    """A cell's state without times."""
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


def _few(names: Iterable[object]) -> str:
    ordered = sorted(str(name) for name in names)
    return ", ".join(ordered[:3]) + (f" and {len(ordered) - 3} more" if len(ordered) > 3 else "")
