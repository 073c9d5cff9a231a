"""Groups of workers for the scenarios: they join, leave, are killed and restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from callboard.runtime.member.errors import Fenced, ShardLost
from callboard.runtime.member.member import Member
from callboard.runtime.member.shards import Shard
from callboard.runtime.testing.simulation.chaos import Action
from callboard.runtime.testing.simulation.scenario import Sim

from .players import Worker

GROUP = "work"
Amount = int | Callable[[], int | list[str]]
Resources = Mapping[str, Amount]
REFRESH_MS = (300, 1000, 4000)  # some members see new resources long before others
SETTLE_S = 120.0  # after the faults all shards have an owner within this


class WorkerGroup:
    """The workers of one group: they join, leave and are killed. Static members restart with the same instance id."""

    def __init__(
        self,
        sim: Sim,
        partitions: int,
        is_static: bool = False,
        group_id: str = GROUP,
        is_watched: bool = True,
        commits: float = 0,
    ) -> None:
        """``commits``: the fraction of workers that keep their session by commits, with few heartbeats."""
        self.commits = commits
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
        is_committing = self.commits > 0 and self.sim.random.random() < self.commits
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
            heartbeat_s=1.3 * session_s if is_committing else None,
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
        """Kill a worker and restart it at once."""
        if self.workers:
            name = self.sim.random.choice(sorted(self.workers))
            self.kill_and_restart(name)

    def kill_and_restart(self, name: str) -> None:
        self.sim.kill(name)
        del self.workers[name]
        self.start(name)

    def actions(self) -> dict[str, Action]:
        return {"join": self.join, "leave": self.leave, "die": self.die, "worker restarts": self.restart}

    async def settle(self) -> None:
        """Wait until the workers own all shards, kill one worker, and wait again."""
        if not self.workers:
            self.start(f"{self.group_id[0]} last")
        await self.sim.until(self.is_settled, SETTLE_S, "all shards have one owner")
        if len(self.workers) > 1:
            self.die()
            await self.sim.until(self.is_settled, SETTLE_S, "the shards of a killed worker have new owners")

    def is_settled(self) -> bool:
        holders = self.sim.holders.held(self.group_id)
        return len(holders) == self.partitions and all(len(owners) == 1 for owners in holders.values())


def current_shards(amount: Amount) -> Iterable[str | int]:
    """The current shards of a resource."""
    now = amount if isinstance(amount, int) else amount()
    return range(now) if isinstance(now, int) else now


class MemberGroup(WorkerGroup):
    """A group of members of ``callboard.member``."""

    def __init__(
        self,
        sim: Sim,
        resources: Resources,
        is_static: bool = False,
        *,
        rebalance_timeouts_ms: Sequence[int],
        **options: Any,
    ) -> None:
        """``rebalance_timeouts_ms``: each member draws one. With a short one it may lose its shards while it joins."""
        super().__init__(sim, 0, is_static)
        self.resources = resources
        self.rebalance_timeouts_ms = rebalance_timeouts_ms
        self.options = options
        self.leaving: dict[str, asyncio.Event] = {}
        self.ending: set[str] = set()

    def start(self, name: str) -> None:
        if name not in self.leaving and name not in self.ending:
            self._starts[name] = self._starts.get(name, 0) + 1
            self.leaving[name] = asyncio.Event()
            self.sim.spawn(name, self._live(name, self.leaving[name], self._starts[name]))

    async def _live(self, name: str, leaving: asyncio.Event, starts: int) -> None:
        owner = name if self.is_static else f"{name}/{starts}"
        while not leaving.is_set():
            with suppress(Fenced):  # by a request of its killed predecessor; as under a supervisor, it restarts
                await self._serve(name, leaving, owner)
        self.ending.discard(name)

    async def _serve(self, name: str, leaving: asyncio.Event, owner: str) -> None:
        options = {
            "resources": self.resources,
            "instance_id": name if self.is_static else None,
            "refresh_interval_ms": self.sim.random.choice(REFRESH_MS),
            "rebalance_timeout_ms": self.sim.random.choice(self.rebalance_timeouts_ms),
            **self.options,
        }
        member = self.sim.member(GROUP, **options)
        serving = asyncio.create_task(self._run(member, owner))
        stop_request = asyncio.create_task(leaving.wait())
        await asyncio.wait({serving, stop_request}, return_when=asyncio.FIRST_COMPLETED)
        stop_request.cancel()
        if serving.done():
            serving.result()
        serving.cancel()
        await asyncio.wait({serving})

    async def _run(self, member: Member, owner: str) -> None:
        await self.sim.serve(member, self._work, owner)

    async def _work(self, shard: Shard) -> None:
        next_offset = shard.next_offset or 0
        try:
            while True:
                await asyncio.sleep(2 * self.sim.random.random())
                self._check_look(shard)
                next_offset += 1
                await shard.commit(next_offset, f"{shard.token}")
        except asyncio.CancelledError:
            await self._end_work(shard)
            if not shard.is_lost and self.sim.random.random() < 0.5:
                with suppress(ShardLost):
                    await shard.commit(next_offset + 1, f"{shard.token} last")
            raise

    async def _end_work(self, _shard: Shard) -> None:
        """What work on a shard takes to end."""
        if self.sim.random.random() < 0.3:
            await asyncio.sleep(self.sim.random.random())

    def _check_look(self, shard: Shard) -> None:
        """A shard that is not lost has no newer owner, also after its process was frozen."""
        resource = GROUP, shard.resource, shard.name
        if not shard.is_lost and not self.sim.holders.write(resource, shard.token):
            self.sim.fail(f"{shard!r} is not lost, but has a newer owner")

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

    async def freeze(self) -> None:
        """Freeze a member's process for a while, perhaps for longer than its session."""
        if self.leaving:
            name = self._drawn()
            self.sim.freeze(name)
            await self.sim.sleep(12 * self.sim.random.random())
            if name in self.leaving:
                self.sim.thaw(name)

    def actions(self) -> dict[str, Action]:
        return {**super().actions(), "freeze": self.freeze}

    def _drawn(self) -> str:
        return self.sim.random.choice(sorted(self.leaving))

    async def settle(self) -> None:
        if not self.leaving:
            self.start("last")
        await self.sim.until(self.is_settled, SETTLE_S, "all shards have one owner")

    def is_settled(self) -> bool:
        expected = {(name, part) for name, amount in self.resources.items() for part in current_shards(amount)}
        holders = self.sim.holders.held(GROUP)
        return set(holders) == expected and all(len(owners) == 1 for owners in holders.values())
