"""The workloads: the groups, and the scripts of the clients. All are closed loops (see ``clients.py``).

A member belongs to one client, so the expected responses are known. The members of one group belong to several
clients, so that their requests compete. Everything is drawn from the seed, before the measured time where possible.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import accumulate, cycle
from random import Random
from typing import Any, NamedTuple

from callboard.actors.errors import ErrorCode
from callboard.actors.messages import (
    Commit,
    Committed,
    Heartbeat,
    OffsetCommit,
    OffsetFetch,
)
from callboard.actors.records import GroupValue, MemberValue
from callboard.bench.concurrency.cell import Request
from callboard.bench.concurrency.clients import Client, Ledger, RunState, Script
from callboard.bench.concurrency.dynamic_member import (
    PROTOCOL,
    REBALANCE_TIMEOUT_MS,
    SESSION_MS,
    SUBSCRIPTION,
    DynamicMember,
)
from callboard.bench.concurrency.engines import Seed
from callboard.bench.concurrency.own_code import UnknownName, import_object

TOPIC = "orders"
GENERATION = 1  # of a loaded group
ZIPF_EXPONENT = 1.1  # with 1,000 groups the hottest gets one request in six
PRECOMPUTED_STEPS = 4096  # groups or steps that a client draws in advance and then repeats
READ_EVERY = 16  # commits of a client between two that are read back
REFUSED_EVERY = 16  # heartbeats of a client of which one, on average, must be refused
HEARTBEAT_STEPS, COMMITS, READ_STEPS, VISIT_STEPS = 65, 23, 7, 5  # of 100 steps in the mixed workload
WAVES = 4  # of expiries in the mixed workload
RECORDED_GROUPS = 4  # groups whose requests are replayed afterwards


class Plan(NamedTuple):
    """The size of a run. ``clients``: the number of requests in flight."""

    groups: int
    members: int
    clients: int
    seconds: float
    seed: int


class WorkloadSetup(NamedTuple):
    """Groups and clients of a run. ``expiring_members``: by group, the members whose sessions must have expired."""

    run_state: RunState
    seeds: Callable[[], Iterator[Seed]]
    clients: list[Client]
    expiring_members: dict[str, frozenset[str]]


class WorkloadSpec(NamedTuple):
    """``groups``: the default numbers of groups. ``members``: the number of members in each.

    ``clients`` 0: one for each member. ``is_fixed``: responses and states do not depend on concurrent requests, so that
    the requests can be replayed.
    """

    label: str
    shows: str
    groups: tuple[int, ...]
    members: int
    clients: int
    is_fixed: bool
    make: Callable[[Plan], WorkloadSetup]

    def plan(self, groups: int, seconds: float, seed: int, members: int = 0, clients: int = 0) -> Plan:
        """A plan with this workload's defaults for arguments of 0, and at most one client per member.

        In a workload with one member per group ``members`` is ignored.
        """
        members = members if members and self.members > 1 else self.members
        member_count = groups * members
        return Plan(groups, members, min(clients or self.clients or member_count, member_count), seconds, seed)


class LoadedMember(NamedTuple):
    """A member of a loaded group."""

    group_id: str
    member_id: str
    partition: int  # the partition that it commits


# Groups and members -------------------------------------------------------------------------------------------------


def group_ids(plan: Plan) -> list[str]:
    return [f"group-{number}" for number in range(plan.groups)]


def member_value(member_id: str, session_timeout_ms: int = SESSION_MS) -> MemberValue:
    return MemberValue(
        member_id, None, "lab", "/127.0.0.1", REBALANCE_TIMEOUT_MS, session_timeout_ms, SUBSCRIPTION, b""
    )


def seed_of(group_id: str, members: Sequence[MemberValue]) -> Seed:
    leader_id = members[0].member_id
    return Seed(group_id, GroupValue("consumer", GENERATION, PROTOCOL, leader_id, 0, tuple(members)))


def loaded_members(plan: Plan) -> list[LoadedMember]:
    """All members of all groups, group by group."""
    return [
        LoadedMember(group_id, f"{group_id}-{number}", number)
        for group_id in group_ids(plan)
        for number in range(plan.members)
    ]


def stable_groups(plan: Plan, script: Callable[[RunState, int, list[LoadedMember], Ledger], Script]) -> WorkloadSetup:
    """Stable groups with ``plan.members`` members each, distributed evenly over the clients."""
    chance = Random(plan.seed)
    run_state = RunState(group_ids(plan), chance.sample(range(plan.groups), min(plan.groups, RECORDED_GROUPS)))
    members = loaded_members(plan)
    clients = [
        Client(_bind_script(script, run_state, number, members[number :: plan.clients]))
        for number in range(plan.clients)
    ]
    return WorkloadSetup(run_state, lambda: loaded(plan), clients, {})


def loaded(plan: Plan) -> Iterator[Seed]:
    for group_id in group_ids(plan):
        yield seed_of(group_id, [member_value(f"{group_id}-{number}") for number in range(plan.members)])


def _bind_script(
    script: Callable[[RunState, int, list[LoadedMember], Ledger], Script],
    run_state: RunState,
    number: int,
    members: list[LoadedMember],
) -> Callable[[Ledger], Script]:
    return lambda ledger: script(run_state, number, members, ledger)


# Heartbeats ---------------------------------------------------------------------------------------------------------


def heartbeats(plan: Plan) -> WorkloadSetup:
    def script(run_state: RunState, number: int, members: list[LoadedMember], ledger: Ledger) -> Script:
        return _beat(run_state, _beats(members, Random(f"{plan.seed} {number}")), ledger)

    return stable_groups(plan, script)


def hot(plan: Plan) -> WorkloadSetup:
    """Requests are distributed by Zipf's law: most to group 0, then group 1. Clients share the members."""
    weights = list(accumulate(1 / rank**ZIPF_EXPONENT for rank in range(1, plan.groups + 1)))
    members = loaded_members(plan)

    def script(run_state: RunState, number: int, _members: list[LoadedMember], ledger: Ledger) -> Script:
        chance = Random(f"{plan.seed} {number}")
        groups = chance.choices(range(plan.groups), cum_weights=weights, k=PRECOMPUTED_STEPS)
        drawn_members = [members[group * plan.members + chance.randrange(plan.members)] for group in groups]
        return _beat(run_state, _beats(drawn_members, chance), ledger)

    return stable_groups(plan, script)


Beat = tuple[Heartbeat, ErrorCode]  # a heartbeat and its expected response


def _beat(run_state: RunState, beats: Sequence[Beat], ledger: Ledger) -> Script:
    monotonic_ms, heartbeats_ms = run_state.clock.monotonic_ms, ledger.heartbeats_ms
    for request, expected in cycle(beats):
        if run_state.over:
            return
        sent_ms = monotonic_ms()
        answer = yield request
        if answer is not expected:
            ledger.fail_on_response(answer, request)
        if answer is ErrorCode.NONE:
            heartbeats_ms[request.group_id, request.member_id] = sent_ms


def _beats(members: Sequence[LoadedMember], chance: Random) -> list[Beat]:
    """A heartbeat of each member, and some that must be refused: an engine must ask the group about each.

    The second one is always refused.
    """
    beats: list[Beat] = []
    for member in members:
        beats.append((Heartbeat(member.group_id, member.member_id, None, GENERATION), ErrorCode.NONE))
        if len(beats) == 1 or chance.randrange(REFUSED_EVERY) == 0:
            beats.append(_refused_heartbeat(member, chance))
    return beats


def _refused_heartbeat(member: LoadedMember, chance: Random) -> Beat:
    """A heartbeat of a past generation or of an unknown member."""
    if chance.randrange(2):
        return Heartbeat(member.group_id, member.member_id, None, GENERATION - 1), ErrorCode.ILLEGAL_GENERATION
    unknown_id = f"{member.member_id}-unknown"
    return Heartbeat(member.group_id, unknown_id, None, GENERATION), ErrorCode.UNKNOWN_MEMBER_ID


# Commits ------------------------------------------------------------------------------------------------------------


def commits(plan: Plan) -> WorkloadSetup:
    def script(run_state: RunState, _number: int, members: list[LoadedMember], ledger: Ledger) -> Script:
        return _commit_all(run_state, members, ledger)

    return stable_groups(plan, script)


def _commit_all(run_state: RunState, members: list[LoadedMember], ledger: Ledger) -> Script:
    """Commit increasing offsets. Some acknowledged offsets are immediately read back and compared."""
    for offset, member in enumerate(cycle(members), start=1):
        if run_state.over:
            return
        yield from _commit(run_state, member, GENERATION, offset, ledger)
        if offset % READ_EVERY == 0:
            yield from _read_again(member, ledger)


def _commit(
    run_state: RunState, member: LoadedMember, generation: int, offset: int, ledger: Ledger
) -> Generator[Request, Any, None]:
    commit = Commit(TOPIC, member.partition, offset, -1, "")
    request = OffsetCommit(member.group_id, member.member_id, None, generation, (commit,))
    answer = yield request
    if answer != Committed((ErrorCode.NONE,)):
        ledger.fail_on_response(answer, request)
    durable = run_state.durable
    if durable is not None and durable.offsets.get((member.group_id, member.partition), -1) < offset:
        ledger.fail_on_response(f"{answer} before its record was written", request)
    ledger.acked[member.group_id, member.partition] = offset
    ledger.commits[member.group_id] = ledger.commits.get(member.group_id, 0) + 1


def _read_again(member: LoadedMember, ledger: Ledger) -> Generator[Request, Any, None]:
    request = OffsetFetch(member.group_id, ((TOPIC, (member.partition,)),))
    answer = yield request
    acked = ledger.acked.get((member.group_id, member.partition), -1)
    if answer.topics[0][1][0].offset != acked:
        ledger.fail_on_response(answer, f"{request}, after {acked} was acknowledged,")


# Joins --------------------------------------------------------------------------------------------------------------


def join_one(plan: Plan) -> WorkloadSetup:
    """All members join at once, and rejoin with another subscription as soon as they have their assignment.

    So the group is always rebalancing, and all members wait for the slowest. At the end all leave, since a remaining
    member would wait for the others forever.
    """
    run_state = RunState(group_ids(plan))

    def script(group_id: str) -> Callable[[Ledger], Script]:
        return lambda ledger: _rejoin_repeatedly(run_state, DynamicMember(run_state, group_id, ledger))

    clients = [Client(script(f"group-{number % plan.groups}")) for number in range(plan.groups * plan.members)]
    return WorkloadSetup(run_state, lambda: (Seed(group_id, None) for group_id in group_ids(plan)), clients, {})


def _rejoin_repeatedly(run_state: RunState, dynamic_member: DynamicMember) -> Script:
    times = 0
    while not run_state.over:
        times += yield from dynamic_member.join(times.to_bytes(8))
    if dynamic_member.member_id:
        yield from dynamic_member.leave()


def join_many(plan: Plan) -> WorkloadSetup:
    """Each client has its own groups. In each it joins as the only member, gets its assignment and leaves."""
    all_group_ids = group_ids(plan)
    run_state = RunState(all_group_ids)

    def script(number: int) -> Callable[[Ledger], Script]:
        own_groups = all_group_ids[number :: plan.clients]
        return lambda ledger: _join_and_leave_each(run_state, own_groups, ledger)

    clients = [Client(script(number)) for number in range(plan.clients)]
    return WorkloadSetup(run_state, lambda: (Seed(group_id, None) for group_id in group_ids(plan)), clients, {})


def _join_and_leave_each(run_state: RunState, own_groups: Sequence[str], ledger: Ledger) -> Script:
    """At the end of the run the last member may remain in its group, which the oracle takes into account."""
    for group_id in cycle(own_groups):
        dynamic_member = DynamicMember(run_state, group_id, ledger)
        yield from dynamic_member.join()
        if run_state.over:
            return
        yield from dynamic_member.leave()


# Mixed --------------------------------------------------------------------------------------------------------------


def mixed(plan: Plan) -> WorkloadSetup:
    """Groups with one active and several silent members, which expire in waves, thousands in one tick.

    The active member then has to rejoin. Each client also joins and leaves an auxiliary group. Some heartbeats must be
    refused, and committed offsets are read at once and later.
    """
    plan = plan._replace(clients=min(plan.clients, plan.groups))
    all_group_ids = group_ids(plan)
    dynamic_group_ids = [f"lobby-{number}" for number in range(plan.clients)]
    run_state = RunState([*all_group_ids, *dynamic_group_ids])

    def script(number: int) -> Callable[[Ledger], Script]:
        own_groups = all_group_ids[number :: plan.clients]
        steps = Random(f"{plan.seed} {number}").choices(
            ("beat", "commit", "read", "visit"),
            (HEARTBEAT_STEPS, COMMITS, READ_STEPS, VISIT_STEPS),
            k=PRECOMPUTED_STEPS,
        )
        return lambda ledger: _run_mixed_steps(run_state, steps, own_groups, dynamic_group_ids[number], ledger)

    def seeds() -> Iterator[Seed]:
        for number, group_id in enumerate(all_group_ids):
            wave_ms = int(plan.seconds * 1000 * (number % WAVES + 1) / (WAVES + 1))
            silent_members = [member_value(member_id, wave_ms) for member_id in _silent(plan, group_id)]
            yield seed_of(group_id, [member_value(f"{group_id}-0"), *silent_members])
        yield from (Seed(group_id, None) for group_id in dynamic_group_ids)

    expiring_members = {group_id: frozenset(_silent(plan, group_id)) for group_id in all_group_ids}
    return WorkloadSetup(run_state, seeds, [Client(script(number)) for number in range(plan.clients)], expiring_members)


def _silent(plan: Plan, group_id: str) -> list[str]:
    return [f"{group_id}-{number}" for number in range(1, plan.members)]


def _run_mixed_steps(
    run_state: RunState, steps: Sequence[str], own_groups: Sequence[str], lobby: str, ledger: Ledger
) -> Script:
    members = [DynamicMember(run_state, group_id, ledger, f"{group_id}-0", GENERATION) for group_id in own_groups]
    for member in members:
        ledger.joined[member.group_id] = {member.member_id}
    for offset, (step, member) in enumerate(zip(cycle(steps), cycle(members), strict=False), start=1):
        if run_state.over:
            return
        loaded_member = LoadedMember(member.group_id, member.member_id, 0)
        if step == "commit":
            yield from _commit(run_state, loaded_member, member.generation, offset, ledger)
            yield from _read_again(loaded_member, ledger)
        elif step == "read":
            yield from _read_again(loaded_member, ledger)
        elif step == "visit":
            yield from _join_and_leave(DynamicMember(run_state, lobby, ledger))
        elif offset % REFUSED_EVERY == 0:
            yield from member.beat_of_past_generation()
        elif not (yield from member.beat()):
            yield from _rejoin(member)


def _rejoin(member: DynamicMember) -> Generator[Request, Any, None]:
    while not (yield from member.join()):
        """Another rebalance started meanwhile."""


def _join_and_leave(dynamic_member: DynamicMember) -> Generator[Request, Any, None]:
    yield from dynamic_member.join()
    yield from dynamic_member.leave()


WORKLOADS: dict[str, WorkloadSpec] = {
    "heartbeats": WorkloadSpec(
        "heartbeats, evenly distributed",
        "the cost of a turn with little contention",
        groups=(100, 1000, 10_000),
        members=2,
        clients=64,
        is_fixed=True,
        make=heartbeats,
    ),
    "hot": WorkloadSpec(
        "heartbeats, one hot group (Zipf)",
        "the effect of a hot group on other groups",
        groups=(1000,),
        members=4,
        clients=64,
        is_fixed=True,
        make=hot,
    ),
    "join-one": WorkloadSpec(
        "1,000 members join one group repeatedly",
        "turns of one group cannot run in parallel; one turn sends a thousand responses",
        groups=(1,),
        members=1000,
        clients=0,
        is_fixed=False,
        make=join_one,
    ),
    "join-many": WorkloadSpec(
        "one member joins each of many groups at once",
        "many groups in flight, each using timer and writer",
        groups=(10_000,),
        members=1,
        clients=0,
        is_fixed=False,
        make=join_many,
    ),
    "commits": WorkloadSpec(
        "commits with a writer that takes 1 ms per round",
        "groups are not blocked during writes; group commit",
        groups=(1000,),
        members=2,
        clients=256,
        is_fixed=True,
        make=commits,
    ),
    "mixed": WorkloadSpec(
        "heartbeats, commits and joins during mass expiry",
        "thousands of expiries at once, with other load",
        groups=(1000,),
        members=4,
        clients=256,
        is_fixed=False,
        make=mixed,
    ),
}


def find_workload(name: str) -> WorkloadSpec:
    """A workload by its id, or by MODULE:NAME. Raises UnknownName."""
    if name in WORKLOADS:
        return WORKLOADS[name]
    found = import_object("workload", name, list(WORKLOADS))
    if not isinstance(found, WorkloadSpec):
        raise UnknownName(f"bad workload {name!r}: found {found!r}, expected a {WorkloadSpec.__module__}.WorkloadSpec")
    return found
