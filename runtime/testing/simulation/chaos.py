"""Random faults: ``await Chaos(sim).run(seconds=60)``. The seed decides which faults happen and when.

Each fault is numbered through ``sim.faults``, so a failing run can be repeated without it. Afterwards the caller should
end all faults and give the members time to settle (``sim.calm``, ``sim.until``).
"""

from __future__ import annotations

import errno
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from ..disk.faulty import Fault

if TYPE_CHECKING:
    from .scenario import Sim

PAUSE_S = (1.5, 4.0, 8.0)  # the longest pause between two faults
DOWN_S = (0.01, 0.5, 8.0)  # the longest downtime of a coordinator: shorter and longer than a session
CUT_S = (0.5, 4.0, 15.0)
BUSY_S = (0.5, 4.0, 12.0)
KILLED_S = (0.01, 4.0, 15.0)  # the longest time until a killed process starts again
FROZEN_S = (0.5, 10.0, 30.0)  # the longest time for which a process is frozen: shorter and longer than a session
CHANGES_MAX = 40  # disk changes until a power loss in the middle of one
ROOM_BYTES = 3000  # space left on a full disk
WHILE_FULL_S = 3.0
REFUSED_S = (0.1, 1.0, 5.0)  # the longest time in which all appends are refused
LOSS = 0.1
ALL_AT_ONCE, ALONE = 0.2, 0.7  # probability of compaction in one step; of that, or compaction by one process
COMPACTION_DIES = 0.2
TOMBSTONES_MS = (0, 3000)  # retention of tombstones
GRACE_MS = (0, 3000)  # grace period of replaced files

DISK_ERRORS = (("sync", errno.EIO), ("write", errno.EIO), ("read", errno.EIO), ("write", 0), ("write", 0))
"""Operations and their error; 0: a short read or write, which is not an error and must be handled."""

Action = Callable[[], Awaitable[object] | None]


class Chaos:
    """A run of random faults. ``more``: further actions, by name; they may be coroutines."""

    def __init__(self, sim: Sim, more: Mapping[str, Action] | None = None) -> None:
        self._sim = sim
        self._plan = random.Random(sim.random.random())
        self._draw = self._plan  # each action has its own source, so leaving one out does not change the others
        self._more = dict(more or {})

    def actions(self) -> dict[str, Action]:
        """All actions, by name."""
        return {
            "crash": self.crash,
            "power cut": self.power_cut,
            "power cut in a write": self.torn_write,
            "clean restart": self.restart,
            "cut off": self.cut_off,
            "hang up": self.disconnect,
            "slow member": self.slow_down,
            "lossy network": self.lossy,
            "overload": self.overload,
            "process killed": self.kill_process,
            "process frozen": self.freeze_process,
            "compaction": self.compact,
            "appends refused": self.refuse_appends,
            "full disk": self.full_disk,
            "disk error": self.disk_error,
            **self._more,
        }

    async def run(self, seconds: float, only: tuple[str, ...] = (), pause_s: float | None = None) -> None:
        """Run for so long. ``only``: names of actions; default all. ``pause_s``: the longest pause between two."""
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
        """Lose power in the middle of a write. Another fault may come first."""
        sim = self._sim
        sim.power_cut(self._draw.randint(1, CHANGES_MAX))
        for _ in range(10):
            if sim.coordinator.is_down:
                break
            await sim.sleep(self._draw.random())
        await sim.start()

    async def restart(self) -> None:
        await self._sim.restart()

    async def cut_off(self) -> None:
        """Disconnect a host for a while. Its channels survive, as with TCP, or break."""
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

    async def overload(self) -> None:
        """Let the coordinator fall behind for a while, perhaps for longer than a session."""
        sim, draw = self._sim, self._draw
        sim.network.overload(draw.random() * draw.choice(BUSY_S))

    def kill_process(self) -> None:
        """Kill a process that ``sim.spawn`` has started with a function. It starts again after a while."""
        if names := self._sim.spawned.restartable():
            self._sim.kill_for(self._draw.choice(names), self._draw.random() * self._draw.choice(KILLED_S))

    def freeze_process(self) -> None:
        """Suspend a process that ``sim.spawn`` has started, perhaps for longer than its session."""
        if names := self._sim.spawned.running():
            self._sim.freeze_for(self._draw.choice(names), self._draw.random() * self._draw.choice(FROZEN_S))

    async def compact(self) -> None:
        """Compact in one step, or in one or two subprocesses, which may be killed."""
        sim, draw = self._sim, self._draw
        choice = draw.random()
        if choice < ALL_AT_ONCE:
            sim.compact()
            return
        for _ in range(1 if choice < ALONE else 2):
            sim.coordinator.compactions.compact_in_subprocess(draw.choice(TOMBSTONES_MS), draw.choice(GRACE_MS))
        if draw.random() < COMPACTION_DIES:
            sim.loop.call_later(draw.random(), sim.coordinator.compactions.kill_subprocesses)

    def refuse_appends(self) -> None:
        """Refuse all appends to the log for a while, and go on with other faults meanwhile."""
        sim, draw = self._sim, self._draw
        sim.refuse_appends()
        sim.loop.call_later(draw.random() * draw.choice(REFUSED_S), sim.mend_disk)

    async def full_disk(self) -> None:
        """Fill the disk up to a few bytes, then free it."""
        sim, disk = self._sim, self._sim.coordinator.disk
        sim.coordinator.mark_disk_faulty()
        disk.capacity_bytes = disk.used_bytes() + self._draw.randint(0, ROOM_BYTES)
        await sim.sleep(self._draw.random() * WHILE_FULL_S)
        sim.coordinator.disk.capacity_bytes = float("inf")

    async def disk_error(self) -> None:
        """Make the disk fail, then restart: the log works again only after a restart."""
        sim, draw = self._sim, self._draw
        operation, error = draw.choice(DISK_ERRORS)
        sim.fail_disk(Fault(operation, error, skip=draw.randrange(20)))
        await sim.sleep(draw.random() * WHILE_FULL_S)
        sim.mend_disk()
        sim.crash()
        await self._down_for_a_while()
