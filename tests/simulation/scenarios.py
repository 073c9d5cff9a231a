"""What the coordinator is put through. Each scenario is one kind of life; the seed draws its details and its storms."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from callboard.runtime.member.channel import ChannelLost
from callboard.runtime.member.errors import Fenced, ShardLost
from callboard.runtime.member.work import Shard
from callboard.runtime.testing.simulation.chaos import Action, Chaos
from callboard.runtime.testing.simulation.scenario import Sim

from .players import TOPIC, Brinkman, Committer, Eraser, Nuisance, Producer, Worker

GROUP = "work"
ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
Amount = int | Callable[[], int | list[str]]
Resources = Mapping[str, Amount]
POWER = ("power cut", "power cut in a write")
CHANGES: Mapping[str, tuple[int, ...]] = {
    "group_initial_rebalance_delay_ms": (0, 500, 3000),
    "group_max_size": (1, 2, 100),
    "offset_metadata_max_bytes": (100, 4096),
    "offsets_retention_check_interval_ms": (1000, 600_000),
}
SETTLE_S = 120.0  # after a storm all shards are owned again within this


class Crew:
    """The workers of one group: they come, leave, die; those of them that are static come back under their name."""

    def __init__(
        self, sim: Sim, partitions: int, is_static: bool = False, group_id: str = GROUP, is_watched: bool = True
    ) -> None:
        self.group_id = group_id
        self.is_watched = is_watched
        self.sim = sim
        self.partitions = partitions
        self.is_static = is_static
        self.workers: dict[str, Worker] = {}
        self._count = 0
        self._starts: dict[str, int] = {}

    def join(self) -> None:
        if len(self.workers) < 5:
            self._count += 1
            name = f"{self.group_id[0]}{self._count % 7 if self.is_static else self._count}"
            self.start(name)

    def start(self, name: str) -> None:
        if name in self.workers:
            return
        self._starts[name] = self._starts.get(name, 0) + 1
        session_s = self.sim.random.choice((6.0, 10.0))
        instance_id = name if self.is_static else None
        starts = self._starts[name]
        self.workers[name] = Worker(
            self.sim,
            name,
            self.group_id,
            self.partitions,
            instance_id=instance_id,
            session_s=session_s,
            starts=starts,
            is_watched=self.is_watched,
        )

    def leave(self) -> None:
        if len(self.workers) > 1:
            name = self.sim.random.choice(sorted(self.workers))
            self.workers.pop(name).leave()

    def die(self) -> None:
        if self.workers:
            name = self.sim.random.choice(sorted(self.workers))
            self.sim.kill(name)
            del self.workers[name]

    def restart(self) -> None:
        """A worker dies, and is there again at once."""
        if self.workers:
            name = self.sim.random.choice(sorted(self.workers))
            self.die_and_come_back(name)

    def die_and_come_back(self, name: str) -> None:
        self.sim.kill(name)
        del self.workers[name]
        self.start(name)

    def actions(self) -> dict[str, Action]:
        return {"join": self.join, "leave": self.leave, "die": self.die, "worker restarts": self.restart}

    async def settle(self) -> None:
        """Everybody who is left works, and on everything; and again when one of them has died."""
        if not self.workers:
            self.start(f"{self.group_id[0]} last")
        await self.sim.until(self.is_settled, SETTLE_S, "all shards are worked on, by one worker each")
        if len(self.workers) > 1:
            self.die()
            await self.sim.until(self.is_settled, SETTLE_S, "the shards of one who died are worked on by others")

    def is_settled(self) -> bool:
        held = self.sim.holders.held(self.group_id)
        return len(held) == self.partitions and all(len(who) == 1 for who in held.values())


async def members(sim: Sim) -> None:
    """Workers join, leave, die and are cut off; the coordinator lives."""
    crew = Crew(sim, sim.random.randint(1, 6))
    crew.join()
    only = (*crew.actions(), "cut off", "hang up", "slow member", "lossy network", "compaction")
    await Chaos(sim, crew.actions()).run(18, only)
    await sim.calm()
    await crew.settle()


async def static_members(sim: Sim) -> None:
    """Workers with an instance id, who come back within their session or later; coordinators that die."""
    crew = Crew(sim, sim.random.randint(1, 6), is_static=True)
    crew.join()
    crew.join()
    await Chaos(sim, crew.actions()).run(14)
    await sim.calm()
    await crew.settle()


async def crashes(sim: Sim) -> None:
    """The coordinator dies in every way, under workers and committers."""
    crew = Crew(sim, 3)
    crew.join()
    Committer(sim, "c1", "simple")
    Committer(sim, "c2", "simple")
    only = ("crash", "power cut", "power cut in a write", "clean restart", "compaction", "join", "leave")
    await Chaos(sim, crew.actions()).run(10, only)
    await sim.calm()
    await crew.settle()


async def commits(sim: Sim) -> None:
    """Many commits to few places, by clients that repeat themselves, while everything goes wrong."""
    for number in range(3):
        Committer(sim, f"c{number}", "simple", partitions=1 + number)
    await Chaos(sim).run(12)
    await sim.calm()
    await sim.sleep(2)


async def full_disk(sim: Sim) -> None:
    """Disks that fill up and fail."""
    crew = Crew(sim, 2)
    crew.join()
    Committer(sim, "c1", "simple")
    await Chaos(sim).run(14, ("full disk", "disk error", "compaction", "crash"))
    await sim.calm()
    await crew.settle()


async def transactions(sim: Sim) -> None:
    """Producers commit offsets in transactions, to groups that are committed to plainly too."""
    Producer(sim, "tx1", ("simple",))
    Producer(sim, "tx2", ("simple", "other"))
    Committer(sim, "c1", "simple", stable=1.0)
    only = ("crash", "power cut", "power cut in a write", "clean restart", "compaction", "hang up", "lossy network")
    await Chaos(sim).run(5, only)
    await sim.calm()
    await sim.sleep(1)


async def deletions(sim: Sim) -> None:
    """Offsets and groups are deleted while others commit."""
    Committer(sim, "c1", "simple", repeats=0)
    Committer(sim, "c2", "simple", repeats=0)
    Eraser(sim, "e1", "simple")
    only = ("crash", "power cut", "power cut in a write", "clean restart", "compaction", "hang up")
    await Chaos(sim).run(12, only)
    await sim.calm()
    await sim.sleep(1)


async def nuisances(sim: Sim) -> None:
    """Clients that repeat what others have said, and say nonsense."""
    crew = Crew(sim, 4, is_static=sim.random.random() < 0.5)
    crew.join()
    Nuisance(sim, "n1", GROUP)
    Committer(sim, "c1", "simple", repeats=0.5)
    await Chaos(sim, crew.actions()).run(12, (*crew.actions(), "crash", "lossy network", "compaction"))
    await sim.calm()
    await crew.settle()


def parts_of(amount: Amount) -> Iterable[str | int]:
    """What there is of a resource now."""
    now = amount if isinstance(amount, int) else amount()
    return range(now) if isinstance(now, int) else now


class Troupe(Crew):
    """A crew of the product's own members."""

    def __init__(self, sim: Sim, resources: Resources, is_static: bool = False, **options: Any) -> None:
        super().__init__(sim, 0, is_static)
        self.resources = resources
        self.options = options
        self.leaving: dict[str, asyncio.Event] = {}
        self.ending: set[str] = set()

    def start(self, name: str) -> None:
        if name not in self.leaving and name not in self.ending:
            self._starts[name] = self._starts.get(name, 0) + 1
            self.leaving[name] = asyncio.Event()
            self.sim.spawn(name, self._live(name, self.leaving[name], self._starts[name]))

    async def _live(self, name: str, leaving: asyncio.Event, starts: int) -> None:
        who = name if self.is_static else f"{name}/{starts}"
        while not leaving.is_set():
            with suppress(Fenced):  # by what its predecessor had sent before it was killed; a supervisor starts it anew
                await self._serve(name, leaving, who)
        self.ending.discard(name)

    async def _serve(self, name: str, leaving: asyncio.Event, who: str) -> None:
        instance_id = name if self.is_static else None
        member = self.sim.member(GROUP, resources=self.resources, instance_id=instance_id, **self.options)
        serving = asyncio.create_task(self.sim.serve(member, self._work, who))
        asked = asyncio.create_task(leaving.wait())
        await asyncio.wait({serving, asked}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if serving.done():
            serving.result()
        serving.cancel()
        await asyncio.wait({serving})

    async def _work(self, shard: Shard) -> None:
        next_offset = shard.next_offset or 0
        try:
            while True:
                await asyncio.sleep(2 * self.sim.random.random())
                next_offset += 1
                await shard.commit(next_offset, f"{shard.token}")
        except asyncio.CancelledError:
            if self.sim.random.random() < 0.3:
                await asyncio.sleep(self.sim.random.random())
            if not shard.is_lost and self.sim.random.random() < 0.5:
                with suppress(ShardLost):
                    await shard.commit(next_offset + 1, f"{shard.token} last")
            raise

    def join(self) -> None:
        if len(self.leaving) < 4:
            self._count += 1
            self.start(f"m{self._count % 5}" if self.is_static else f"m{self._count}")

    def leave(self) -> None:
        if len(self.leaving) > 1:
            name = self._drawn()
            self.ending.add(name)
            self.leaving.pop(name).set()

    def die(self) -> None:
        if self.leaving:
            name = self._drawn()
            self.sim.kill(name)
            del self.leaving[name]

    def restart(self) -> None:
        if self.leaving:
            name = self._drawn()
            self.sim.kill(name)
            del self.leaving[name]
            self.start(name)

    async def stand_still(self) -> None:
        """A member's process is frozen for a while, perhaps for longer than its session."""
        if self.leaving:
            name = self._drawn()
            self.sim.freeze(name)
            await self.sim.sleep(12 * self.sim.random.random())
            if name in self.leaving:
                self.sim.thaw(name)

    def actions(self) -> dict[str, Action]:
        return {**super().actions(), "freeze": self.stand_still}

    def _drawn(self) -> str:
        return self.sim.random.choice(sorted(self.leaving))

    async def settle(self) -> None:
        if not self.leaving:
            self.start("last")
        await self.sim.until(self.is_settled, SETTLE_S, "all shards are worked on, by one member each")

    def is_settled(self) -> bool:
        wanted = {(name, part) for name, amount in self.resources.items() for part in parts_of(amount)}
        held = self.sim.holders.held(GROUP)
        return set(held) == wanted and all(len(who) == 1 for who in held.values())


async def embedded_members(sim: Sim) -> None:
    """The product's own members, with every assignor; everything goes wrong."""
    parts = sim.random.randint(1, 6)
    troupe = Troupe(
        sim,
        {"jobs": parts},
        is_static=sim.random.random() < 0.3,
        assignor=sim.random.choice(ASSIGNORS),
        session_timeout_ms=sim.random.choice((6000, 10_000)),
        rebalance_timeout_ms=sim.random.choice((8000, 20_000)),
    )
    troupe.join()
    troupe.join()
    await Chaos(sim, troupe.actions()).run(18)
    await sim.calm()
    await troupe.settle()


async def named_resources(sim: Sim) -> None:
    """Names that come and go are shared out among members who ask for them again and again."""
    names = {"acme"}
    troupe = Troupe(
        sim,
        {"tenants": lambda: sorted(names)},
        session_timeout_ms=6000,
        rebalance_timeout_ms=sim.random.choice((8000, 15_000)),
    )

    def change() -> None:
        name = sim.random.choice(("acme", "b.c", "zenith", "ümlaut", "x y"))
        names.symmetric_difference_update({name})
        names.add("acme")

    troupe.join()
    troupe.join()
    await Chaos(sim, {**troupe.actions(), "names change": change}).run(18)
    await sim.calm()
    await troupe.settle()


async def relaxed(sim: Sim) -> None:
    """Commits are answered before they are synced; of them a loss of power may take the last, and nothing else may."""
    await sim.begin(
        sync=sim.random.choice(("interval", "interval", "none")),
        log_flush_interval_ms=sim.random.choice((50, 1000, 4000)),
        offsets_topic_num_partitions=sim.random.choice((1, 3)),
        offsets_topic_segment_bytes=sim.random.choice((300, 2000)),
    )
    crew = Crew(sim, 2, is_watched=False)
    crew.join()
    for number, group_id in enumerate(("simple", "simple", "other")):
        Committer(sim, f"c{number}", group_id, repeats=0, pause_s=0.2)
    only = (*POWER, "crash", "clean restart", "compaction", "hang up", "join", "die")
    await Chaos(sim, crew.actions()).run(8, only)
    await sim.calm()
    await sim.sleep(1)


async def sleepers(sim: Sim) -> None:
    """Days in the life of groups that are seldom used: they fall asleep and wake, and what is old is deleted."""
    retention_min, check_s = sim.random.choice((1, 4)), sim.random.choice((5, 30))
    await sim.begin(
        offsets_retention_minutes=retention_min,
        offsets_retention_check_interval_ms=check_s * 1000,
        offsets_topic_num_partitions=sim.random.choice((1, 3)),
        log_roll_ms=sim.random.choice((20_000, 1_000_000)),
        group_generation_from_clock=True,
    )
    sim.registers.retention_s = retention_min * 60
    crew = Crew(sim, 2)
    for number in range(4):
        pause_s, rests = sim.random.choice((3.0, 20.0)), sim.random.choice((0.1, 0.4))
        Committer(sim, f"c{number}", f"simple{number % 3}", pause_s=pause_s, rests=rests)
    Brinkman(sim, "b", "brink", retention_min * 60)

    def set_pause() -> None:
        sim.set(offsets_retention_check_interval_ms=sim.random.choice((5000, 30_000)))

    more: dict[str, Action] = {**crew.actions(), "another pause": set_pause, "delete topic": lambda: delete_topic(sim)}
    only = (*more, *POWER, "crash", "clean restart", "compaction", "hang up")
    await Chaos(sim, more).run(220, only, pause_s=45)
    await sim.calm()
    sim.set(offsets_retention_check_interval_ms=5000)
    sim.kill_all()
    kept_s = retention_min * 60 + 60
    await sim.until(lambda: not sim.coordinator.groups(), kept_s, "all that is old is deleted")


async def crowd(sim: Sim) -> None:
    """Several groups in one partition, of which some are deleted; topics that go and grow, settings that change."""
    await sim.begin(offsets_topic_num_partitions=1, group_generation_from_clock=True)
    crews = [Crew(sim, 2, group_id=group_id) for group_id in (GROUP, "night")]
    for crew in crews:
        crew.join()
    Committer(sim, "c1", "simple", repeats=0)
    Committer(sim, "c2", "other", repeats=0)
    Eraser(sim, "e1", "simple")
    Eraser(sim, "e2", "night")
    kept: dict[str, int] = {}

    def grow() -> None:
        incarnation = sim.coordinator.current
        if incarnation is not None:
            with suppress(ChannelLost):
                incarnation.ensure_topics({TOPIC: sim.random.randint(1, 9)})

    def change() -> None:
        name = sim.random.choice(sorted(CHANGES))
        value = sim.random.choice(CHANGES[name])
        kept.pop(name, None)
        if sim.set(**{name: value}):
            kept[name] = value

    def are_kept() -> bool:
        incarnation = sim.coordinator.current
        return incarnation is not None and all(
            getattr(incarnation.node.settings, name) == value for name, value in kept.items()
        )

    more: dict[str, Action] = {"topic grows": grow, "settings change": change}
    more["delete topic"] = lambda: delete_topic(sim)
    more |= {f"{crew.group_id} {name}": action for crew in crews for name, action in crew.actions().items()}
    await Chaos(sim, more).run(10, (*more, *POWER, "crash", "clean restart", "compaction"))
    await sim.calm()
    await sim.until(are_kept, 1, f"settings are what they were changed to: {kept}")
    for crew in crews:
        await crew.settle()


def delete_topic(sim: Sim) -> None:
    """The one that everybody commits to; those who work on it make it anew."""
    sim.delete_topic(TOPIC)
    incarnation = sim.coordinator.current
    if incarnation is not None:
        with suppress(ChannelLost):
            incarnation.ensure_topics({TOPIC: 2})


async def growing(sim: Sim) -> None:
    """A resource gets more and more parts while members work on it."""
    parts = [1]

    def grow() -> None:
        parts[0] = min(parts[0] + sim.random.randint(1, 2), 9)

    troupe = Troupe(sim, {"jobs": lambda: parts[0]}, session_timeout_ms=6000, rebalance_timeout_ms=8000)
    troupe.join()
    troupe.join()
    await Chaos(sim, {**troupe.actions(), "parts are added": grow}).run(16)
    await sim.calm()
    await troupe.settle()


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        members,
        static_members,
        crashes,
        commits,
        full_disk,
        transactions,
        deletions,
        nuisances,
        embedded_members,
        named_resources,
        relaxed,
        sleepers,
        crowd,
        growing,
    )
}


async def scenario_of_seed(sim: Sim) -> None:
    """One of them: so a range of seeds covers all."""
    names = list(SCENARIOS)
    await SCENARIOS[names[sim.loop.seed % len(names)]](sim)
