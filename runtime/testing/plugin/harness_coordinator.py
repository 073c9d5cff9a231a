"""The coordinator for tests: a ``Coordinator`` with a movable clock, faults and a timeline."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from ...embed.coordinator import Coordinator
from ...embed.lifecycle import EndMode
from ...embed.thread import ThreadCoordinator
from ...node.environment import Environment, in_memory
from ..disk.faulty import FaultyDisk
from .faults import Faults
from .harness import Harness
from .timeline import Timeline
from .virtual_time import BlockingTime, VirtualTime

LISTEN = "127.0.0.1:0"

ENDS: Mapping[EndMode, str] = {
    "stopped": "restart",
    "killed": "crash, as by kill -9, and restart",
    "power lost": "loss of power, and restart",
}


class HarnessCoordinator(Coordinator):
    """See ``Coordinator``; it listens, on a free port, unless ``listen=None``.

    ``clock``: ``await clock.advance(45)``. ``faults``: injects faults. ``timeline``: the recorded events.
    New groups do not wait for more members before their first rebalance, unless the settings say so.
    """

    DEFAULTS: ClassVar[Mapping[str, float | bool]] = {"group_initial_rebalance_delay_ms": 0}
    """All other defaults are those of ``callboard serve``, since programs under test are written for Kafka."""

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
        self._harness = Harness()
        environment = self._harness.environment(
            environment or (in_memory(FaultyDisk()) if data is None else Environment())
        )
        other_settings: Any = settings  # includes file_mode
        super().__init__(
            data,
            listen,
            advertised=advertised,
            sync=sync,
            topics=topics,
            environment=environment,
            unsafe_settings=unsafe_settings,
            **other_settings,
        )
        self.interceptor = self._harness.interceptor
        self.clock = VirtualTime(self._harness)
        self.faults: Faults[Awaitable[None]] = self._harness.faults.with_restart(self.restart)

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
    ) -> HarnessThread:
        """The same on a thread of its own: ``with HarnessCoordinator.in_thread() as coordinator``."""
        options: dict[str, Any] = {"advertised": advertised, "sync": sync, "topics": topics, "environment": environment}
        options |= {"unsafe_settings": unsafe_settings, **settings}
        return HarnessThread(HarnessCoordinator(data, listen, **options))

    @property
    def timeline(self) -> Timeline:
        """All events, including those before a restart."""
        return self._harness.timeline

    async def stop(self) -> None:
        self._harness.detach()
        await super().stop()

    async def restart(self, end: EndMode = "stopped") -> None:
        self.faults.note(ENDS[end])
        self._harness.detach()
        await super().restart(end)

    async def _start_node(self) -> None:
        self._harness.reset()
        await super()._start_node()
        self._harness.attach(self.node)


class HarnessThread(ThreadCoordinator):
    """``HarnessCoordinator.in_thread(...)``: may be used from any thread; its methods block."""

    def __init__(self, coordinator: HarnessCoordinator) -> None:
        super().__init__(coordinator)
        self.clock = BlockingTime(coordinator.clock, self.run)
        self.faults: Faults[None] = coordinator.faults.with_restart(self.restart)
        self.timeline = coordinator.timeline
