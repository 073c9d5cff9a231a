"""The coordinator for tests: a ``Coordinator`` with a movable clock, faults and a timeline."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from ....actors.assignors.base import AssignFunction
from ...embed.coordinator import Coordinator
from ...embed.lifecycle import EndMode
from ...embed.results import GroupDescription
from ...embed.thread import ThreadCoordinator
from ...node.environment import Environment, in_memory
from ..disk.faulty import FaultyDisk
from .faults import Faults
from .harness import Harness
from .helpers import WAIT_S, check_stable, produce, wait_until_stable
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
    New groups do not wait for more members before their first rebalance, and groups of the consumer protocol not for
    their assignment interval, unless the settings say so.
    """

    DEFAULTS: ClassVar[Mapping[str, float | bool | str]] = {
        "group_initial_rebalance_delay_ms": 0,
        "group_consumer_assignment_interval_ms": 0,
        "group_consumer_min_session_timeout_ms": 1,
        "group_consumer_min_heartbeat_interval_ms": 1,
    }
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
        assignors: Mapping[str, AssignFunction] | None = None,
        **settings: float | bool | str,
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
            assignors=assignors,
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
        **other_options: Any,
    ) -> HarnessThread:
        """The same on a thread of its own: ``with HarnessCoordinator.in_thread() as coordinator``."""
        options: dict[str, Any] = {"advertised": advertised, "sync": sync, "topics": topics, "environment": environment}
        options |= {"unsafe_settings": unsafe_settings, **other_options}
        return HarnessThread(HarnessCoordinator(data, listen, **options))

    @property
    def timeline(self) -> Timeline:
        """All events, including those before a restart."""
        return self._harness.timeline

    async def wait_until_stable(self, group: str, members: int = 1, *, timeout: float = WAIT_S) -> GroupDescription:
        """Wait until the group has stored the assignment of exactly so many members.

        A client applies its assignment soon after that. ``timeout``: in seconds of the machine's clock. Raises
        TimeoutError, with the state of the group.
        """
        return await wait_until_stable(lambda: self.node, group, members, timeout)

    async def produce(
        self, topic: str, value: bytes | str | None, *, key: bytes | str | None = None, partition: int = 0
    ) -> int:
        """Append a record to a topic. Returns its offset. Text is encoded as UTF-8; a value of None is a tombstone.

        Raises CoordinatorError for an unknown topic or partition, TypeError for a value or key of another type.
        """
        await self.loaded()
        return produce(self.node, topic, value, key, partition)

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
        self._harness_coordinator = coordinator

    def wait_until_stable(
        self,
        group: str,
        members: int = 1,
        *,
        timeout: float = WAIT_S,
        poll: Callable[[], object] | None = None,
    ) -> GroupDescription:
        """See ``HarnessCoordinator.wait_until_stable``.

        ``poll`` is called again and again meanwhile, in this thread: clients such as confluent_kafka's take part in a
        rebalance only while they are polled.
        """
        coordinator = self._harness_coordinator
        if poll is None:
            return self.run(coordinator.wait_until_stable(group, members, timeout=timeout))
        end_s = time.monotonic() + timeout
        while isinstance(found := self.run(_check_stable(coordinator, group, members)), str):
            if time.monotonic() > end_s:
                raise TimeoutError(f"{found} after {timeout:g} s")
            poll()
        return found

    def produce(
        self, topic: str, value: bytes | str | None, *, key: bytes | str | None = None, partition: int = 0
    ) -> int:
        """See ``HarnessCoordinator.produce``."""
        return self.run(self._harness_coordinator.produce(topic, value, key=key, partition=partition))


async def _check_stable(coordinator: HarnessCoordinator, group: str, members: int) -> GroupDescription | str:
    return await check_stable(coordinator.node, group, members)
