"""The scenarios of the simulation. Each covers one kind of load; the seed draws its details and its faults."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from callboard.runtime.member.channel import ChannelLost
from callboard.runtime.testing.simulation.chaos import Action, Chaos
from callboard.runtime.testing.simulation.scenario import Sim

from .consumer_members import consumer_churn, consumer_members, lowered_session_timeout
from .mixed_members import mixed_members
from .players import TOPIC, Committer, Deleter, InvalidClient, Producer
from .racers import ExpiryRacer, LateHeartbeats, TransactionalRacer
from .resets import resets
from .shared_log import AWAY_S, MovingPartitions
from .worker_groups import GROUP, MemberGroup, WorkerGroup

ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
POWER_LOSSES = ("power cut", "power cut in a write")
CHANGES: Mapping[str, tuple[int, ...]] = {
    "group_initial_rebalance_delay_ms": (0, 500, 3000),
    "group_max_size": (1, 2, 100),
    "offset_metadata_max_bytes": (100, 4096),
    "offsets_retention_check_interval_ms": (1000, 600_000),
}


async def members(sim: Sim) -> None:
    """Workers join, leave, are killed and are disconnected; the coordinator keeps running."""
    workers_group = WorkerGroup(sim, sim.random.randint(1, 6))
    workers_group.join()
    action_names = (*workers_group.actions(), "cut off", "hang up", "slow member", "lossy network", "compaction")
    await Chaos(sim, workers_group.actions()).run(18, action_names)
    await sim.calm()
    await workers_group.settle()


async def overload(sim: Sim) -> None:
    """The coordinator has too many requests: it reads its sockets seldom, and deadlines pass meanwhile."""
    workers_group = WorkerGroup(sim, sim.random.randint(1, 6))
    workers_group.join()
    workers_group.join()
    action_names = ("overload", "join", "leave", "die", "cut off", "crash")
    await Chaos(sim, workers_group.actions()).run(25, action_names, pause_s=3.0)
    await sim.calm()
    await workers_group.settle()


async def static_members(sim: Sim) -> None:
    """Workers with instance ids, which restart within their session or later; the coordinator crashes."""
    workers_group = WorkerGroup(sim, sim.random.randint(1, 6), is_static=True)
    workers_group.join()
    workers_group.join()
    await Chaos(sim, workers_group.actions()).run(14)
    await sim.calm()
    await workers_group.settle()


async def crashes(sim: Sim) -> None:
    """The coordinator stops, crashes and loses power, with workers and committers."""
    workers_group = WorkerGroup(sim, 3)
    workers_group.join()
    Committer(sim, "c1", "simple")
    Committer(sim, "c2", "simple")
    action_names = ("crash", "power cut", "power cut in a write", "clean restart", "compaction", "join", "leave")
    await Chaos(sim, workers_group.actions()).run(10, action_names)
    await sim.calm()
    await workers_group.settle()


async def commits(sim: Sim) -> None:
    """Many commits to few partitions, some sent twice, with all faults."""
    for number in range(3):
        Committer(sim, f"c{number}", "simple", partitions=1 + number)
    await Chaos(sim).run(12)
    await sim.calm()
    await sim.sleep(2)


async def full_disk(sim: Sim) -> None:
    """Disks fill up and fail."""
    workers_group = WorkerGroup(sim, 2)
    workers_group.join()
    Committer(sim, "c1", "simple")
    await Chaos(sim).run(14, ("full disk", "disk error", "compaction", "crash"))
    await sim.calm()
    await workers_group.settle()


async def refused_appends(sim: Sim) -> None:
    """The log refuses appends during rebalances, takeovers of static members, commits and transactions."""
    is_static = sim.random.random() < 0.8
    is_embedded = sim.random.random() < 0.5
    workers_group = (
        MemberGroup(sim, {"jobs": 3}, is_static, rebalance_timeouts_ms=(8000, 20_000), session_timeout_ms=6000)
        if is_embedded
        else WorkerGroup(sim, 3, is_static)
    )
    for _ in range(3):
        workers_group.join()
    Committer(sim, "c1", "simple", stable=1.0)
    Producer(sim, "tx1", ("simple", "other"))

    async def change_while_refused() -> None:
        """A member restarts, joins or leaves while the log refuses all appends."""
        sim.refuse_appends()
        sim.random.choice((workers_group.restart, workers_group.join, workers_group.leave))()
        await sim.sleep(3 * sim.random.random())
        sim.mend_disk()

    actions: dict[str, Action] = {**workers_group.actions(), "change while refused": change_while_refused}
    action_names = (*actions, "appends refused", "crash", "hang up")
    await Chaos(sim, actions).run(25, action_names, pause_s=3)
    await sim.calm()
    await workers_group.settle()


async def sessions(sim: Sim) -> None:
    """Members that keep their sessions by heartbeats, by commits, or not any more; others send late heartbeats."""
    workers_group = WorkerGroup(sim, 3, is_static=sim.random.random() < 0.3, commits=0.4)
    workers_group.join()
    workers_group.join()
    LateHeartbeats(sim, "late", GROUP)
    action_names = ("join", "leave", "die", "worker restarts", "cut off", "overload", "crash", "lossy network")
    await Chaos(sim, workers_group.actions()).run(30, action_names, pause_s=8)
    await sim.calm()
    await workers_group.settle()


async def expiring_transactions(sim: Sim) -> None:
    """Offsets expire while transactions that commit them again are open."""
    retention_min = 1
    await sim.begin(
        offsets_retention_minutes=retention_min,
        offsets_retention_check_interval_ms=sim.random.choice((500, 5000)),
        group_generation_from_clock=True,
    )
    sim.registers.retention_s = retention_min * 60
    for number, group_id in enumerate(("simple", "simple", "other")):
        TransactionalRacer(sim, f"tx{number}", group_id, retention_min * 60)
    action_names = ("appends refused", "crash", "power cut", "compaction", "hang up")
    await Chaos(sim).run(200, action_names, pause_s=60)
    await sim.calm()
    await sim.sleep(1)


async def transactions(sim: Sim) -> None:
    """Producers commit offsets in transactions, to groups with plain commits, too."""
    Producer(sim, "tx1", ("simple",))
    Producer(sim, "tx2", ("simple", "other"))
    Committer(sim, "c1", "simple", stable=1.0)
    action_names = (
        "crash",
        "power cut",
        "power cut in a write",
        "clean restart",
        "compaction",
        "hang up",
        "lossy network",
    )
    await Chaos(sim).run(5, action_names)
    await sim.calm()
    await sim.sleep(1)


async def deletions(sim: Sim) -> None:
    """Offsets and groups are deleted while others commit."""
    Committer(sim, "c1", "simple", repeats=0)
    Committer(sim, "c2", "simple", repeats=0)
    Deleter(sim, "e1", "simple")
    action_names = ("crash", "power cut", "power cut in a write", "clean restart", "compaction", "hang up")
    await Chaos(sim).run(12, action_names)
    await sim.calm()
    await sim.sleep(1)


async def invalid_requests(sim: Sim) -> None:
    """A client repeats requests of others and sends invalid ones."""
    workers_group = WorkerGroup(sim, 4, is_static=sim.random.random() < 0.5)
    workers_group.join()
    InvalidClient(sim, "n1", GROUP)
    Committer(sim, "c1", "simple", repeats=0.5)
    await Chaos(sim, workers_group.actions()).run(
        12, (*workers_group.actions(), "crash", "lossy network", "compaction")
    )
    await sim.calm()
    await workers_group.settle()


async def embedded_members(sim: Sim) -> None:
    """Members of ``callboard.member`` with every assignor, with all faults."""
    parts = sim.random.randint(1, 6)
    member_group = MemberGroup(
        sim,
        {"jobs": parts},
        is_static=sim.random.random() < 0.3,
        assignor=sim.random.choice(ASSIGNORS),
        rebalance_timeouts_ms=sim.random.choice(((8000,), (20_000,), (8000, 20_000))),
        session_timeout_ms=sim.random.choice((6000, 10_000)),
    )
    member_group.join()
    member_group.join()
    await Chaos(sim, member_group.actions()).run(18)
    await sim.calm()
    await member_group.settle()


async def named_resources(sim: Sim) -> None:
    """Named resources that appear and disappear, and are reassigned."""
    names = {"acme"}
    member_group = MemberGroup(
        sim,
        {"tenants": lambda: sorted(names)},
        is_static=sim.random.random() < 0.3,
        session_timeout_ms=6000,
        rebalance_timeouts_ms=(sim.random.choice((8000, 15_000)),),
    )

    def change() -> None:
        name = sim.random.choice(("acme", "b.c", "zenith", "ümlaut", "x y"))
        names.symmetric_difference_update({name})
        names.add("acme")

    member_group.join()
    member_group.join()
    await Chaos(sim, {**member_group.actions(), "names change": change}).run(18)
    await sim.calm()
    await member_group.settle()


async def unsynced_commits(sim: Sim) -> None:
    """Commits are answered before they are synced: a power loss may drop only the newest."""
    await sim.begin(
        sync=sim.random.choice(("interval", "interval", "none")),
        log_flush_interval_ms=sim.random.choice((50, 1000, 4000)),
        offsets_topic_num_partitions=sim.random.choice((1, 3)),
        offsets_topic_segment_bytes=sim.random.choice((300, 2000)),
    )
    workers_group = WorkerGroup(sim, 2, is_watched=False)
    workers_group.join()
    for number, group_id in enumerate(("simple", "simple", "other")):
        Committer(sim, f"c{number}", group_id, repeats=0, pause_s=0.2)
    action_names = (*POWER_LOSSES, "crash", "clean restart", "compaction", "hang up", "join", "die")
    await Chaos(sim, workers_group.actions()).run(8, action_names)
    await sim.calm()
    await sim.sleep(1)


async def passivated_groups(sim: Sim) -> None:
    """Groups that are seldom used are passivated and activated, and old offsets expire."""
    retention_min, check_s = sim.random.choice((1, 4)), sim.random.choice((5, 30))
    await sim.begin(
        offsets_retention_minutes=retention_min,
        offsets_retention_check_interval_ms=check_s * 1000,
        offsets_topic_num_partitions=sim.random.choice((1, 3)),
        log_roll_ms=sim.random.choice((20_000, 1_000_000)),
        group_generation_from_clock=True,
    )
    sim.registers.retention_s = retention_min * 60
    workers_group = WorkerGroup(sim, 2)
    for number in range(4):
        pause_s, rests = sim.random.choice((3.0, 20.0)), sim.random.choice((0.1, 0.4))
        Committer(sim, f"c{number}", f"simple{number % 3}", pause_s=pause_s, rests=rests)
    ExpiryRacer(sim, "b", "brink", retention_min * 60)

    def set_pause() -> None:
        sim.set(offsets_retention_check_interval_ms=sim.random.choice((5000, 30_000)))

    extra_actions: dict[str, Action] = {
        **workers_group.actions(),
        "another pause": set_pause,
        "delete topic": lambda: delete_topic(sim),
    }
    action_names = (*extra_actions, *POWER_LOSSES, "crash", "clean restart", "compaction", "hang up")
    await Chaos(sim, extra_actions).run(220, action_names, pause_s=45)
    await sim.calm()
    sim.set(offsets_retention_check_interval_ms=5000)
    sim.kill_all()
    kept_s = retention_min * 60 + 60
    await sim.until(lambda: not sim.coordinator.groups(), kept_s, "all old offsets are deleted")


async def shared_partition(sim: Sim) -> None:
    """Several groups in one partition, some deleted; topics that are deleted and grow; settings that change."""
    await sim.begin(offsets_topic_num_partitions=1, group_generation_from_clock=True)
    worker_groups = [WorkerGroup(sim, 2, group_id=group_id) for group_id in (GROUP, "night")]
    for workers_group in worker_groups:
        workers_group.join()
    Committer(sim, "c1", "simple", repeats=0)
    Committer(sim, "c2", "other", repeats=0)
    Deleter(sim, "e1", "simple")
    Deleter(sim, "e2", "night")
    expected_settings: dict[str, int] = {}

    def grow() -> None:
        incarnation = sim.coordinator.current
        if incarnation is not None:
            with suppress(ChannelLost):
                incarnation.ensure_topics({TOPIC: sim.random.randint(1, 9)})

    def change() -> None:
        name = sim.random.choice(sorted(CHANGES))
        value = sim.random.choice(CHANGES[name])
        expected_settings.pop(name, None)
        if sim.set(**{name: value}):
            expected_settings[name] = value

    def are_settings_kept() -> bool:
        incarnation = sim.coordinator.current
        return incarnation is not None and all(
            getattr(incarnation.node.settings, name) == value for name, value in expected_settings.items()
        )

    extra_actions: dict[str, Action] = {"topic grows": grow, "settings change": change}
    extra_actions["delete topic"] = lambda: delete_topic(sim)
    extra_actions |= {
        f"{workers_group.group_id} {name}": action
        for workers_group in worker_groups
        for name, action in workers_group.actions().items()
    }
    await Chaos(sim, extra_actions).run(10, (*extra_actions, *POWER_LOSSES, "crash", "clean restart", "compaction"))
    await sim.calm()
    await sim.until(are_settings_kept, 1, f"the changed settings are kept: {expected_settings}")
    for workers_group in worker_groups:
        await workers_group.settle()


async def moving_partitions(sim: Sim) -> None:
    """A shared store, whose partitions other nodes take and give back while clients commit."""
    partitions = MovingPartitions(sim)
    sim.coordinator.setup = sim.coordinator.setup._replace(store=partitions.make)
    await sim.begin(group_generation_from_clock=sim.random.random() < 0.5)
    workers_group = WorkerGroup(sim, 3)
    workers_group.join()
    Committer(sim, "c1", "simple", stable=1.0)
    Committer(sim, "c2", "other", repeats=0)
    Producer(sim, "tx1", ("simple", "third"))
    actions: dict[str, Action] = {f"partition moves, {number}": partitions.move for number in range(5)}
    actions |= workers_group.actions()
    action_names = (*actions, "power cut", "crash", "clean restart", "hang up")
    await Chaos(sim, actions).run(12, action_names, pause_s=1.5)
    await sim.calm()
    await sim.until(partitions.are_complete, 2 * max(AWAY_S), "all partitions are back")
    await workers_group.settle()


def delete_topic(sim: Sim) -> None:
    """Delete the topic of all commits. Its workers create it again."""
    sim.delete_topic(TOPIC)
    incarnation = sim.coordinator.current
    if incarnation is not None:
        with suppress(ChannelLost):
            incarnation.ensure_topics({TOPIC: 2})


async def growing_resource(sim: Sim) -> None:
    """A resource gets more shards while members work on it, and static members restart."""
    parts = [1]

    def grow() -> None:
        parts[0] = min(parts[0] + sim.random.randint(1, 2), 9)

    is_static = sim.random.random() < 0.4
    member_group = MemberGroup(
        sim, {"jobs": lambda: parts[0]}, is_static=is_static, rebalance_timeouts_ms=(8000,), session_timeout_ms=6000
    )
    member_group.join()
    member_group.join()
    await Chaos(sim, {**member_group.actions(), "parts are added": grow}).run(16)
    await sim.calm()
    await member_group.settle()


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        members,
        overload,
        static_members,
        crashes,
        commits,
        full_disk,
        refused_appends,
        sessions,
        expiring_transactions,
        transactions,
        deletions,
        invalid_requests,
        embedded_members,
        named_resources,
        unsynced_commits,
        passivated_groups,
        shared_partition,
        growing_resource,
        moving_partitions,
        consumer_members,
        consumer_churn,
        lowered_session_timeout,
        mixed_members,
        resets,
    )
}


async def scenario_of_seed(sim: Sim) -> None:
    """The scenario of a seed, so that a range of seeds covers all scenarios."""
    names = list(SCENARIOS)
    await SCENARIOS[names[sim.loop.seed % len(names)]](sim)
