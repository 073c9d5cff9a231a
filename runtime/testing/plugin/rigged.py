"""The coordinator that tests are given: as any other, with a clock that moves, faults and a timeline."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from ...embed.coordinator import Coordinator
from ...embed.lifecycle import EndMode
from ...embed.thread import ThreadCoordinator
from ...node.environment import Environment, in_memory
from .faults import Faults
from .moving import BlockingTime, VirtualTime
from .rig import Rig
from .timeline import Timeline

LISTEN = "127.0.0.1:0"

ENDS: Mapping[EndMode, str] = {
    "stopped": "restart",
    "killed": "crash, as by kill -9, and restart",
    "power lost": "loss of power, and restart",
}


class RiggedCoordinator(Coordinator):
    """See ``Coordinator``; it listens, on a free port, unless ``listen=None``.

    ``clock``: ``await clock.advance(45)``. ``faults``: what goes wrong. ``timeline``: what has happened.
    New groups do not wait for more members before their first rebalance, unless the settings say so.
    """

    DEFAULTS: ClassVar[Mapping[str, float | bool]] = {"group_initial_rebalance_delay_ms": 0}
    """All else is as in ``callboard serve``: what is tested was made for a Kafka."""

    def __init__(
        self,
        data: str | Path | None = None,
        listen: str | None = LISTEN,
        *,
        advertised: str | None = None,
        sync: str = "always",
        topics: Mapping[str, int] | None = None,
        environment: Environment | None = None,
        unsafe_settings: bool = True,
        **settings: float | bool,
    ) -> None:
        self._rig = Rig()
        environment = self._rig.environment(environment or (in_memory() if data is None else Environment()))
        others: Any = settings  # file_mode, too
        super().__init__(
            data,
            listen,
            advertised=advertised,
            sync=sync,
            topics=topics,
            environment=environment,
            unsafe_settings=unsafe_settings,
            **others,
        )
        self.interceptor = self._rig.interceptor
        self.clock = VirtualTime(self._rig)
        self.faults: Faults[Awaitable[None]] = self._rig.faults.with_restart(self.restart)

    @staticmethod
    def in_thread(
        data: str | Path | None = None,
        listen: str | None = LISTEN,
        *,
        advertised: str | None = None,
        sync: str = "always",
        topics: Mapping[str, int] | None = None,
        environment: Environment | None = None,
        unsafe_settings: bool = True,
        **settings: float | bool,
    ) -> RiggedThread:
        """The same on a thread of its own: ``with RiggedCoordinator.in_thread() as coordinator``."""
        options: dict[str, Any] = {"advertised": advertised, "sync": sync, "topics": topics, "environment": environment}
        options |= {"unsafe_settings": unsafe_settings, **settings}
        return RiggedThread(RiggedCoordinator(data, listen, **options))

    @property
    def timeline(self) -> Timeline:
        """All that has happened, also in the coordinators before a restart."""
        return self._rig.timeline

    async def stop(self) -> None:
        self._rig.detach()
        await super().stop()

    async def restart(self, end: EndMode = "stopped") -> None:
        self.faults.note(ENDS[end])
        self._rig.detach()
        await super().restart(end)

    async def _start_node(self) -> None:
        self._rig.forget()
        await super()._start_node()
        self._rig.attach(self.node)


class RiggedThread(ThreadCoordinator):
    """``RiggedCoordinator.in_thread(...)``: any thread may use it, and what takes a while blocks."""

    def __init__(self, coordinator: RiggedCoordinator) -> None:
        super().__init__(coordinator)
        self.clock = BlockingTime(coordinator.clock, self.run)
        self.faults: Faults[None] = coordinator.faults.with_restart(self.restart)
        self.timeline = coordinator.timeline
