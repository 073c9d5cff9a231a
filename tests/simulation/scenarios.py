"""What the coordinator is put through. Each scenario is one kind of life; the seed draws its details and its storms."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from callboard.runtime.member.errors import Fenced, WorkLost
from callboard.runtime.member.work import Share
from callboard.runtime.testing.chaos import Action, Chaos
from callboard.runtime.testing.scenario import Sim

from .players import Committer, Eraser, Nuisance, Producer, Worker

GROUP = "work"
ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
Resources = Mapping[str, int | Callable[[], list[str]]]
SETTLE_S = 120.0  # after a storm all shares are owned again within this


class Crew:
    """The workers of one group: they come, leave, die; those of them that are static come back under their name."""

    def __init__(self, sim: Sim, partitions: int, is_static: bool = False) -> None:
        self.sim = sim
        self.partitions = partitions
        self.is_static = is_static
        self.workers: dict[str, Worker] = {}
        self._count = 0
        self._starts: dict[str, int] = {}

    def join(self) -> None:
        if len(self.workers) < 5:
            self._count += 1
            self.start(f"w{self._count % 7}" if self.is_static else f"w{self._count}")

    def start(self, name: str) -> None:
        if name in self.workers:
            return
        self._starts[name] = self._starts.get(name, 0) + 1
        session_s = self.sim.random.choice((6.0, 10.0))
        instance_id = name if self.is_static else None
        starts = self._starts[name]
        self.workers[name] = Worker(
            self.sim, name, GROUP, self.partitions, instance_id=instance_id, session_s=session_s, starts=starts
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
            self.start("last")
        await self.sim.until(self.is_settled, SETTLE_S, "all shares are worked on, by one worker each")
        if len(self.workers) > 1:
            self.die()
            await self.sim.until(self.is_settled, SETTLE_S, "the shares of one who died are worked on by others")

    def is_settled(self) -> bool:
        held = self.sim.holders.held(GROUP)
        return len(held) == self.partitions and all(len(who) == 1 for who in held.values())


async def members(sim: Sim) -> None:
    """Workers join, leave, die and are cut off; the coordinator lives."""
    crew = Crew(sim, sim.random.randint(1, 6))
    crew.join()
    only = (*crew.actions(), "cut off", "hang up", "slow member", "lossy network", "compaction")
    await Chaos(sim, crew.actions()).run(25, only)
    await sim.calm()
    await crew.settle()


async def static_members(sim: Sim) -> None:
    """Workers with an instance id, who come back within their session or later; coordinators that die."""
    crew = Crew(sim, sim.random.randint(1, 6), is_static=True)
    crew.join()
    crew.join()
    await Chaos(sim, crew.actions()).run(25)
    await sim.calm()
    await crew.settle()


async def crashes(sim: Sim) -> None:
    """The coordinator dies in every way, under workers and committers."""
    crew = Crew(sim, 3)
    crew.join()
    Committer(sim, "c1", "simple")
    Committer(sim, "c2", "simple")
    only = ("crash", "power cut", "power cut in a write", "clean restart", "compaction", "join", "leave")
    await Chaos(sim, crew.actions()).run(20, only)
    await sim.calm()
    await crew.settle()


async def commits(sim: Sim) -> None:
    """Many commits to few places, by clients that repeat themselves, while everything goes wrong."""
    for number in range(3):
        Committer(sim, f"c{number}", "simple", partitions=1 + number)
    await Chaos(sim).run(15)
    await sim.calm()
    await sim.sleep(2)


async def full_disk(sim: Sim) -> None:
    """Disks that fill up and fail."""
    crew = Crew(sim, 2)
    crew.join()
    Committer(sim, "c1", "simple")
    await Chaos(sim).run(20, ("full disk", "disk error", "compaction", "crash"))
    await sim.calm()
    await crew.settle()


async def transactions(sim: Sim) -> None:
    """Producers commit offsets in transactions, to groups that are committed to plainly too."""
    Producer(sim, "tx1", ("simple",))
    Producer(sim, "tx2", ("simple", "other"))
    Committer(sim, "c1", "simple", stable=1.0)
    only = ("crash", "power cut", "power cut in a write", "clean restart", "compaction", "hang up", "lossy network")
    await Chaos(sim).run(20, only)
    await sim.calm()
    await sim.sleep(3)


async def deletions(sim: Sim) -> None:
    """Offsets and groups are deleted while others commit."""
    Committer(sim, "c1", "simple", repeats=0)
    Committer(sim, "c2", "simple", repeats=0)
    Eraser(sim, "e1", "simple")
    only = ("crash", "power cut", "power cut in a write", "clean restart", "compaction", "hang up")
    await Chaos(sim).run(15, only)
    await sim.calm()
    await sim.sleep(2)


async def nuisances(sim: Sim) -> None:
    """Clients that repeat what others have said, and say nonsense."""
    crew = Crew(sim, 4, is_static=sim.random.random() < 0.5)
    crew.join()
    Nuisance(sim, "n1", GROUP)
    Committer(sim, "c1", "simple", repeats=0.5)
    await Chaos(sim, crew.actions()).run(20, (*crew.actions(), "crash", "lossy network", "compaction"))
    await sim.calm()
    await crew.settle()


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

    async def _work(self, share: Share) -> None:
        position = share.position or 0
        try:
            while True:
                await asyncio.sleep(2 * self.sim.random.random())
                position += 1
                await share.commit(position, f"{share.token}")
        except asyncio.CancelledError:
            if self.sim.random.random() < 0.3:
                await asyncio.sleep(self.sim.random.random())
            if not share.is_lost and self.sim.random.random() < 0.5:
                with suppress(WorkLost):
                    await share.commit(position + 1, f"{share.token} last")
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
        await self.sim.until(self.is_settled, SETTLE_S, "all shares are worked on, by one member each")

    def is_settled(self) -> bool:
        wanted = {
            (name, part)
            for name, amount in self.resources.items()
            for part in (range(amount) if isinstance(amount, int) else amount())
        }
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
    await Chaos(sim, troupe.actions()).run(25)
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
    await Chaos(sim, {**troupe.actions(), "names change": change}).run(25)
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
    )
}


async def scenario_of_seed(sim: Sim) -> None:
    """One of them: so a range of seeds covers all."""
    names = list(SCENARIOS)
    await SCENARIOS[names[sim.loop.seed % len(names)]](sim)
