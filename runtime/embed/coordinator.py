"""Coordinator: a node embedded in a program, on the program's event loop.

    async with Coordinator(data="state", listen="127.0.0.1:0") as coordinator:
        ...                                             # Kafka's clients connect to coordinator.bootstrap
        async with coordinator.member("resize-images", resources={"jobs": 12}) as member: ...

Options and settings are those of ``callboard serve``, with the same checks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack, get_args
from weakref import WeakSet

from ..common.errors import StartError
from ..disk.disk import FILE_MODE, Disk
from ..node.environment import MEMORY, Environment, in_memory
from ..settings import table as config
from ..settings.dynamic import OURSELVES
from ..settings.file_mode import parse_file_mode
from ..settings.table import Address, Options, Settings
from .forked import close_in_forked_children
from .lifecycle import AsyncCoordinator, EndMode
from .thread import ThreadCoordinator

if TYPE_CHECKING:
    from socket import socket

    from ..kafka.interceptor import Interceptor
    from ..member.local import LocalConnector
    from ..member.member import Member
    from ..member.options import MemberArguments
    from ..node.node import Node

log = logging.getLogger("callboard.runtime")


class Coordinator(AsyncCoordinator):
    """One coordinator, used once: ``async with``, or ``start`` and ``stop``.

    ``data``: its folder, created if missing. None keeps everything in memory: nothing outlives the object, and the log
    is never compacted, so this is meant for tests. ``listen``: "host:port" for Kafka's clients, where port 0 is any
    free port; None: no socket. ``advertised``: the address for clients if it differs from ``listen``. ``sync``: as
    ``--sync``. ``topics``: partition counts by name; missing topics are created. ``file_mode``: permissions of new
    files, as in 0o640. ``environment``: for tests, see ``Environment``. ``unsafe_settings``: ``set`` accepts values
    below their safe minimum. Other arguments are settings (``callboard settings`` lists them; ``DEFAULTS`` has the
    defaults that differ). Raises StartError for an invalid argument.
    """

    DEFAULTS: ClassVar[Mapping[str, float | bool]] = {
        "group_initial_rebalance_delay_ms": 0,  # groups are often small, so the first member should not wait
        "group_generation_from_clock": True,  # tokens grow even if the group is deleted
        "offsets_retention_minutes": config.INT_MAX,  # offsets are kept until they are deleted
    }
    """Defaults that differ from ``callboard serve``, which has Kafka's."""

    def __init__(
        self,
        data: str | Path | None = None,
        listen: str | None = None,
        *,
        advertised: str | None = None,
        sync: str = "always",
        topics: Mapping[str, int] | None = None,
        file_mode: int = FILE_MODE,
        environment: Environment | None = None,
        unsafe_settings: bool = False,
        **settings: float | bool,
    ) -> None:
        self._settings: Settings = config.load_settings({**self.DEFAULTS, **settings})
        self._options = replace(
            _options(data, listen, advertised, sync, topics or {}, file_mode),
            unsafe_settings=unsafe_settings,
            given=dict.fromkeys(settings, OURSELVES),
        )
        self._is_listening = listen is not None
        self._environment = environment or (
            in_memory() if data is None else Environment(disk=Disk(self._options.file_mode))
        )
        self._interceptor: Interceptor | None = None
        self._node: Node | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connector: LocalConnector | None = None
        self._members: WeakSet[Member] = WeakSet()

    @staticmethod
    def in_thread(
        data: str | Path | None = None,
        listen: str | None = None,
        *,
        advertised: str | None = None,
        sync: str = "always",
        topics: Mapping[str, int] | None = None,
        file_mode: int = FILE_MODE,
        environment: Environment | None = None,
        unsafe_settings: bool = False,
        **settings: float | bool,
    ) -> ThreadCoordinator:
        """The same on a thread of its own, for a program without an event loop: ``with Coordinator.in_thread(...)``."""
        options: dict[str, Any] = {"advertised": advertised, "sync": sync, "topics": topics, "environment": environment}
        options["unsafe_settings"] = unsafe_settings
        options["file_mode"] = file_mode
        return ThreadCoordinator(Coordinator(data, listen, **options | settings))

    # Start and stop --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Recover the data folder and serve. Raises StartError for a problem that an operator can fix."""
        if self._loop is not None:
            raise RuntimeError("this Coordinator was started before: make another one")
        self._loop = asyncio.get_running_loop()
        await self._start_node()

    async def stop(self) -> None:
        """Make this coordinator's members leave, refuse new requests, answer accepted ones, sync and close the log.

        Tasks on the members' shards are cancelled and awaited. Continues to the end even if the caller is cancelled.
        Does nothing if it is not running. Raises RuntimeError in a task that runs on a shard, since it would wait for
        that task.
        """
        if self._node is not None:
            self._running_node()
            if any(member.is_run_by(asyncio.current_task()) for member in self._members):
                raise RuntimeError(
                    "stop() waits for the end of the task that it is called from: call it after `async with "
                    "assignment`, or from a task that is not a handler"
                )
            await self._run_to_completion(self._stop())

    async def _stop(self) -> None:
        results = await asyncio.gather(*(member.leave() for member in self._members), return_exceptions=True)
        for error in filter(None, results):
            log.warning("a member could not leave: %r", error)
        await self._stop_node()

    async def _stop_node(self) -> None:
        node, self._node = self._running_node(), None
        try:
            await node.stop()
        finally:
            self._connect_members_to(None)  # after stop(): pending requests of members are answered first

    async def _run_to_completion(self, coro: Coroutine[Any, Any, None]) -> None:
        """Await a coroutine to its end, even if the caller is cancelled."""
        stopping = asyncio.ensure_future(coro)
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            await asyncio.wait({stopping})
            raise

    async def restart(self, end: EndMode = "stopped") -> None:
        """End the coordinator and start another one on the same data and address, for tests.

        ``killed``: as by ``kill -9``; pending requests are not answered. ``power lost``: writes that were not synced
        may be lost; ValueError unless the disk simulates it, as that of ``callboard.testing`` in memory.
        """
        node = self._running_node()
        if end not in get_args(EndMode):
            raise ValueError(f"end {end!r}: expected one of {', '.join(map(repr, get_args(EndMode)))}")
        if end == "power lost" and not self._environment.disk.simulates_power_loss:
            raise ValueError("power lost: expected a Coordinator of callboard.testing in memory (data=None)")
        if end == "stopped":
            await self._run_to_completion(self._stop_node())
        else:
            self._node = None
            node.halt()
            self._connect_members_to(None)
            self._environment = replace(self._environment, disk=_disk_after_end(self._environment.disk, end))
        await self._start_node()

    async def _start_node(self) -> None:
        from ..node.descriptors import ExclusiveDescriptors
        from ..node.node import Node

        listening, descriptors = self._listen(), ExclusiveDescriptors()
        close_in_forked_children(descriptors)
        try:
            self._node = await Node.open(
                self._settings,
                self._options,
                self._environment,
                listening,
                interceptor=self._interceptor,
                descriptors=descriptors,
            )
        except BaseException:
            if listening is not None:
                listening.close()
            raise
        self._connect_members_to(self._node)

    def _listen(self) -> socket | None:
        if not self._is_listening:
            return None
        from ..node.listening import bind

        listening = bind(self._options, "listen", "advertised")
        self._options = replace(self._options, listen_port=listening.getsockname()[1])  # for a restart
        return listening

    def _connect_members_to(self, node: Node | None) -> None:
        """Connect members in this process to ``node``."""
        if self._connector is not None:
            self._connector.node = node

    # While running ---------------------------------------------------------------------------------------------------

    @property
    def node(self) -> Node:
        """The node, for tests and tools. Its methods are no stable API."""
        return self._running_node()

    @property
    def interceptor(self) -> Interceptor | None:
        """Observes and may change every request and answer. It is kept over a restart."""
        return self._interceptor

    @interceptor.setter
    def interceptor(self, interceptor: Interceptor | None) -> None:
        self._interceptor = interceptor
        if self._node is not None:
            self._node.services.interceptor = interceptor

    @property
    def bootstrap(self) -> str:
        """The address for Kafka's clients, "host:port". Raises RuntimeError if it does not listen."""
        if not self._is_listening:
            raise RuntimeError("this Coordinator does not listen: create it with listen='127.0.0.1:0'")
        return str(self._address())

    def _address(self) -> Address:
        if self._node is None:
            raise RuntimeError(self._not_running_message())
        services = self._node.services
        return Address(services.cluster.advertised_host, services.cluster.advertised_port)

    async def loaded(self) -> None:
        """Wait until the log is loaded. Groups that are loaded are served meanwhile."""
        await self._loaded()

    @property
    def settings(self) -> Settings:
        """The current settings."""
        return self._settings if self._node is None else self._node.settings

    @property
    def connector(self) -> LocalConnector:
        """The connector for members in this process. After a restart it reaches the new node."""
        if self._connector is None:
            from ..member.local import LocalConnector

            self._connector = LocalConnector(self._node, self._loop)
        return self._connector

    def member(self, group: str, **options: Unpack[MemberArguments]) -> Member:
        """A member of a group, in this process. See ``Member`` for its options."""
        from ..member.member import Member

        self._running_node()
        member = Member(self.connector, group, **options)
        self._members.add(member)
        return member

    def _running_node(self) -> Node:
        if self._node is None:
            raise RuntimeError(self._not_running_message())
        running = None
        with suppress(RuntimeError):
            running = asyncio.get_running_loop()
        if running is not self._loop:
            raise RuntimeError(
                "this Coordinator runs on another event loop: call it there, or create it with "
                "Coordinator.in_thread(), which any thread may call"
            )
        return self._node

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise RuntimeError(self._not_running_message())
        return self._loop

    def _not_running_message(self) -> str:
        if self._loop is None:
            return "this Coordinator is not running yet: use it inside `async with`, or await start() first"
        return "this Coordinator has stopped: make another one"


def _options(
    data: str | Path | None,
    listen: str | None,
    advertised: str | None,
    sync: str,
    topics: Mapping[str, int],
    file_mode: int,
) -> Options:
    """The options, as ``settings.load.load`` creates them from a command line. Raises StartError."""
    if data == "":
        raise StartError("bad data '': expected the path of a folder, '.' for this one, or None to keep all in memory")
    if not isinstance(topics, Mapping):
        raise StartError(f"bad topics {topics!r}: expected partition counts by name, as in {{'jobs': 3}}")
    if data is not None and not isinstance(data, str | Path):
        raise StartError(f"bad data {data!r}: expected the path of a folder, or None to keep all in memory")
    _check_text("listen", listen, "HOST:PORT, as in '127.0.0.1:9092', or None not to listen")
    _check_text("advertised", advertised, "HOST:PORT, as in 'example.org:9092'")
    for name in topics:
        _check_text("topic name", name, "text, as in {'jobs': 3}")
    address = config.DEFAULT_LISTEN if listen is None else config.parse_address("listen", listen)
    return Options(
        listen_host=address.host,
        listen_port=address.port,
        advertised=None if advertised is None else config.parse_advertised(advertised),
        data=MEMORY if data is None else Path(data),
        sync=config.parse_sync(sync),
        topics=tuple(config.check_topic(name, partitions) for name, partitions in topics.items()),
        file_mode=parse_file_mode(file_mode),
    )


def _check_text(name: str, value: object, expected: str) -> None:
    if value is not None and not isinstance(value, str):
        raise StartError(f"bad {name} {value!r}: expected {expected}")


def _disk_after_end(disk: Disk, end: EndMode) -> Disk:
    """The disk as a process that ended this way leaves it."""
    if disk.is_real:
        return disk
    from ..disk.memory import MemoryDisk

    assert isinstance(disk, MemoryDisk)
    return disk.for_next_process(is_power_lost=end == "power lost")
