"""A storm of faults, ready made: ``await chaos(sim, seconds=60)``. The seed says what happens and when.

Each fault asks ``sim.faults`` first, so a failing run can be repeated without it. After the storm the caller should
give the members time to settle (``sim.calm``, ``sim.until``).
"""

from __future__ import annotations

import errno
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from ...disk.faulty import Fault

if TYPE_CHECKING:
    from .scenario import Sim

PAUSE_S = (1.5, 4.0, 8.0)  # between two faults, at most: a storm may be dense
DOWN_S = (0.01, 0.5, 8.0)  # how long a coordinator stays away: shorter and longer than a session
CUT_S = (0.5, 4.0, 15.0)
CHANGES_MAX = 40  # of the disk until the power goes, when it goes in the middle of one
ROOM_BYTES = 3000  # that a full disk may still have
WHILE_FULL_S = 3.0
LOSS = 0.1
ALL_AT_ONCE, ALONE = 0.2, 0.7  # how often compaction is one step, and how often no more than one is under way
COMPACTION_DIES = 0.2
TOMBSTONES_MS = (0, 3000)  # how long they are kept
GRACE_MS = (0, 3000)  # for those who read files that compaction has replaced

DISK_ERRORS = (("sync", errno.EIO), ("write", errno.EIO), ("read", errno.EIO), ("write", 0), ("write", 0))
"""Operations and what becomes of them; 0: they are short, which is no error, and must be seen."""

Action = Callable[[], Awaitable[object] | None]


class Chaos:
    """One storm. ``more``: what else may happen, by name; what it calls may take time."""

    def __init__(self, sim: Sim, more: Mapping[str, Action] | None = None) -> None:
        self._sim = sim
        self._plan = random.Random(sim.random.random())
        self._draw = self._plan  # then each action's own: one that is left out draws nothing away from the others
        self._more = dict(more or {})

    def actions(self) -> dict[str, Action]:
        """All that may happen, by name."""
        return {
            "crash": self.crash,
            "power cut": self.power_cut,
            "power cut in a write": self.torn_write,
            "clean restart": self.restart,
            "cut off": self.cut_off,
            "hang up": self.disconnect,
            "slow member": self.slow_down,
            "lossy network": self.lossy,
            "compaction": self.compact,
            "full disk": self.full_disk,
            "disk error": self.disk_error,
            **self._more,
        }

    async def run(self, seconds: float, only: tuple[str, ...] = (), pause_s: float | None = None) -> None:
        """For so long. ``only``: names of actions; all by default. ``pause_s``: between two, at most."""
        sim, draw = self._sim, self._plan
        actions = {name: action for name, action in self.actions().items() if not only or name in only}
        pause_s = draw.choice(PAUSE_S) if pause_s is None else pause_s
        end_s = sim.now_s + seconds
        while sim.now_s < end_s:
            await sim.sleep(draw.random() * pause_s)
            name = draw.choice(list(actions))
            self._draw = random.Random(draw.random())
            if sim.faults.permits(name):
                awaitable = actions[name]()
                if awaitable is not None:
                    await awaitable

    async def _down_for_a_while(self) -> None:
        await self._sim.sleep(self._draw.random() * self._draw.choice(DOWN_S))
        await self._sim.start()

    async def crash(self) -> None:
        self._sim.crash()
        await self._down_for_a_while()

    async def power_cut(self) -> None:
        self._sim.power_cut()
        await self._down_for_a_while()

    async def torn_write(self) -> None:
        """It may take a while until the disk has changed so often; another fault may come first."""
        sim = self._sim
        sim.power_cut(self._draw.randint(1, CHANGES_MAX))
        for _ in range(10):
            if sim.coordinator.current is None:
                break
            await sim.sleep(self._draw.random())
        await sim.start()

    async def restart(self) -> None:
        await self._sim.restart()

    async def cut_off(self) -> None:
        """Nothing passes for a while; the channel may live on, as TCP does, or not."""
        sim, draw = self._sim, self._draw
        if hosts := sim.hosts():
            host = draw.choice(hosts)
            sim.network.cut(host.name, breaks=draw.random() < 0.5)
            sim.loop.call_later(draw.random() * draw.choice(CUT_S), sim.network.heal, host.name)

    async def disconnect(self) -> None:
        if hosts := self._sim.hosts():
            self._sim.network.disconnect(self._draw.choice(hosts).name)

    async def slow_down(self) -> None:
        if hosts := self._sim.hosts():
            host = self._draw.choice(hosts)
            host.is_slow = not host.is_slow

    async def lossy(self) -> None:
        network = self._sim.network
        network.loss = 0.0 if network.loss else LOSS * self._draw.random()

    async def compact(self) -> None:
        """At once, or by one or two processes beside the coordinator, which may die too."""
        sim, draw = self._sim, self._draw
        choice = draw.random()
        if choice < ALL_AT_ONCE:
            sim.compact()
            return
        for _ in range(1 if choice < ALONE else 2):
            sim.coordinator.compact_in_subprocess(draw.choice(TOMBSTONES_MS), draw.choice(GRACE_MS))
        if draw.random() < COMPACTION_DIES:
            sim.loop.call_later(draw.random(), sim.coordinator.kill_subprocesses)

    async def full_disk(self) -> None:
        """Room for a little more; then there is room again."""
        sim, disk = self._sim, self._sim.coordinator.disk
        sim.coordinator.mark_disk_faulty()
        disk.capacity_bytes = disk.used_bytes() + self._draw.randint(0, ROOM_BYTES)
        await sim.sleep(self._draw.random() * WHILE_FULL_S)
        sim.coordinator.disk.capacity_bytes = float("inf")

    async def disk_error(self) -> None:
        """After an error of the disk only a restart helps; so there is one."""
        sim, draw = self._sim, self._draw
        operation, error = draw.choice(DISK_ERRORS)
        sim.fail_disk(Fault(operation, error, skip=draw.randrange(20)))
        await sim.sleep(draw.random() * WHILE_FULL_S)
        sim.mend_disk()
        sim.crash()
        await self._down_for_a_while()
