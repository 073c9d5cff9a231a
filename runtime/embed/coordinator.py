"""Coordinator: a node embedded in a program, on the program's event loop.

    async with Coordinator(data="state", listen="127.0.0.1:0") as coordinator:
        ...                                             # Kafka's clients connect to coordinator.bootstrap
        async with coordinator.member("resize-images", resources={"jobs": 12}) as member: ...

Options and settings are those of ``callboard serve``, with the same checks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack, get_args
from weakref import WeakSet

from ...actors.assignors.base import AssignFunction
from ..common.errors import StartError
from ..disk.disk import FILE_MODE, Disk
from ..engine.completion import run_to_completion
from ..engine.waiting import require_asyncio_loop
from ..node.environment import MEMORY, Environment, in_memory
from ..settings import table as config
from ..settings.address import DEFAULT_LISTEN, parse_address, parse_advertised
from ..settings.dynamic import OURSELVES
from ..settings.file_mode import parse_file_mode
from ..settings.listeners import Listener
from ..settings.paths import parse_path
from ..settings.rows import INT_MAX
from ..settings.table import Options, Settings
from .cluster_arguments import FREE_PORT, check_observer, make_cluster_options
from .embedded_node import EmbeddedNode
from .lifecycle import ON_ANOTHER_LOOP, AsyncCoordinator, EndMode
from .listener_security import ListenerSecurity, check_users, secured, set_users
from .node_requests import NodeRequests
from .results import Health
from .thread import ThreadCoordinator

if TYPE_CHECKING:
    from ..kafka.interceptor import Interceptor
    from ..member.channel import Connector
    from ..member.member import Member
    from ..member.options import MemberArguments
    from ..node.node import Node
    from .admin_requests import AdminRequests

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

    ``security``: the protocol of the listener, "security.protocol", and its settings, by Kafka's names; without it
    PLAINTEXT. ``users``: passwords by name, for SASL; at the start each is stored, without the password, unless it is
    there already.

    ``cluster``: the URL of a store that several nodes share; this one owns some of the partitions, and keeps nothing
    else in ``data``. It listens, by default on a free port of 127.0.0.1. ``node_name``: its name there, by default made
    of host and port. ``observer``: own nothing; members and admin methods use the nodes of the cluster.
    """

    DEFAULTS: ClassVar[Mapping[str, float | bool | str]] = {
        "group_initial_rebalance_delay_ms": 0,  # groups are often small, so the first member should not wait
        "group_generation_from_clock": True,  # tokens grow even if the group is deleted
        "offsets_retention_minutes": INT_MAX,  # offsets are kept until they are deleted
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
        cluster: str | None = None,
        node_name: str = "",
        observer: bool = False,
        assignors: Mapping[str, AssignFunction] | None = None,
        security: ListenerSecurity | None = None,
        users: Mapping[str, str] | None = None,
        **settings: float | bool | str,
    ) -> None:
        cluster_options = make_cluster_options(cluster, node_name, observer)
        if observer:
            check_observer(
                data=data,
                listen=listen,
                advertised=advertised,
                topics=topics,
                assignors=assignors,
                security=security,
                users=users,
                **settings,
            )
        elif cluster and listen is None:
            listen = FREE_PORT
        options = replace(
            _options(data, listen, advertised, sync, topics or {}, file_mode),
            unsafe_settings=unsafe_settings,
            given=dict.fromkeys(settings, OURSELVES),
            cluster=cluster_options,
        )
        if security is not None:
            listener = secured(options.listeners[0], security)
            options = replace(options, listeners=(listener,), inter_broker_listener=listener.name)
        check_users(users or {})
        environment = environment or (in_memory() if data is None else Environment(disk=Disk(options.file_mode)))
        if assignors:
            environment = replace(environment, assignors=_checked(assignors))
        self._embedded = EmbeddedNode(
            config.load_settings({**self.DEFAULTS, **settings}),
            options,
            environment,
            is_listening=listen is not None,
            is_observer=observer,
        )
        self._users = dict(users or {})
        self._loop: asyncio.AbstractEventLoop | None = None
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
        cluster: str | None = None,
        node_name: str = "",
        observer: bool = False,
        assignors: Mapping[str, AssignFunction] | None = None,
        security: ListenerSecurity | None = None,
        users: Mapping[str, str] | None = None,
        **settings: float | bool | str,
    ) -> ThreadCoordinator:
        """The same on a thread of its own, for a program without an event loop: ``with Coordinator.in_thread(...)``."""
        options: dict[str, Any] = {"advertised": advertised, "sync": sync, "topics": topics, "environment": environment}
        options["unsafe_settings"] = unsafe_settings
        options |= {"file_mode": file_mode, "cluster": cluster, "node_name": node_name, "observer": observer}
        options |= {"assignors": assignors, "security": security, "users": users}
        return ThreadCoordinator(Coordinator(data, listen, **options | settings))

    # Start and stop --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Recover the data folder and serve.

        Raises StartError for a problem that an operator can fix, RuntimeError if no asyncio loop runs.
        """
        if self._loop is not None:
            raise RuntimeError("this Coordinator was started before: make another one")
        self._loop = require_asyncio_loop()
        await self._start_node()

    async def stop(self) -> None:
        """Make this coordinator's members leave, refuse new requests, answer accepted ones, sync and close the log.

        Tasks on the members' shards are cancelled and awaited. Continues to the end even if the caller is cancelled.
        Does nothing if it is not running. Raises RuntimeError in a task that runs on a shard, since it would wait for
        that task.
        """
        if self._embedded.is_running:
            self._check_running()
            if any(member.is_run_by(asyncio.current_task()) for member in self._members):
                raise RuntimeError(
                    "stop() waits for the end of the task that it is called from: call it after `async with "
                    "assignment`, or from a task that is not a handler"
                )
            await run_to_completion(self._stop())

    async def _stop(self) -> None:
        results = await asyncio.gather(*(member.leave() for member in self._members), return_exceptions=True)
        for error in filter(None, results):
            log.warning("a member could not leave: %r", error)
        await self._embedded.stop()

    async def restart(self, end: EndMode = "stopped") -> None:
        """End the coordinator and start another one on the same data and address, for tests.

        ``killed``: as by ``kill -9``; pending requests are not answered. ``power lost``: writes that were not synced
        may be lost; ValueError unless the disk simulates it, as that of ``callboard.testing`` in memory.
        """
        self._running_node()
        if end not in get_args(EndMode):
            raise ValueError(f"end {end!r}: expected one of {', '.join(map(repr, get_args(EndMode)))}")
        if end == "power lost" and not self._embedded.environment.disk.simulates_power_loss:
            raise ValueError("power lost: expected a Coordinator of callboard.testing in memory (data=None)")
        if end == "stopped":
            await run_to_completion(self._embedded.stop())
        else:
            await self._embedded.kill(end)
        await self._start_node()

    async def _start_node(self) -> None:
        await self._embedded.start()
        if self._users:
            try:
                await set_users(self._running_node().services.security, self._users)
            except BaseException:
                await run_to_completion(self._embedded.stop())
                raise

    # While running ---------------------------------------------------------------------------------------------------

    @property
    def node(self) -> Node:
        """The node, for tests and tools. Its methods are no stable API."""
        return self._running_node()

    @property
    def interceptor(self) -> Interceptor | None:
        """Observes and may change every request and answer. It is kept over a restart."""
        return self._embedded.interceptor

    @interceptor.setter
    def interceptor(self, interceptor: Interceptor | None) -> None:
        self._embedded.interceptor = interceptor
        if self._embedded.node is not None:
            self._embedded.node.services.interceptor = interceptor

    @property
    def bootstrap(self) -> str:
        """The address for Kafka's clients, "host:port". Raises RuntimeError if it does not listen."""
        if not self._embedded.is_listening:
            raise RuntimeError("this Coordinator does not listen: create it with listen='127.0.0.1:0'")
        if self._embedded.node is None:
            raise RuntimeError(self._not_running_message())
        return str(self._embedded.node.services.cluster.addresses[self._embedded.options.listeners[0].name])

    async def loaded(self) -> None:
        """Wait until the log is loaded. Groups that are loaded are served meanwhile."""
        if not self._embedded.is_observer:
            await NodeRequests(self._running_node()).loaded()

    def health(self) -> Health:
        """Whether the coordinator serves its clients, as ``/readyz`` of ``callboard serve``. Never raises."""
        cluster = self._embedded.cluster
        if cluster is not None and cluster.refusal:
            return Health(False, f"the cluster cannot be used: {cluster.refusal}")
        is_running_observer = self._embedded.is_observer and self._embedded.is_running
        return Health(True, "") if is_running_observer else super().health()

    def _requests(self) -> AdminRequests:
        self._check_running()
        return self._embedded.requests()

    @property
    def settings(self) -> Settings:
        """The current settings."""
        return self._embedded.settings

    @property
    def connector(self) -> Connector:
        """The connector for members in this process. After a restart it reaches the new node."""
        return self._embedded.connector(self._loop)

    def member(self, group: str, **options: Unpack[MemberArguments]) -> Member:
        """A member of a group, in this process. See ``Member`` for its options."""
        from ..member.member import Member

        self._check_running()
        member = Member(self.connector, group, **options)
        self._members.add(member)
        return member

    def _running_node(self) -> Node:
        self._check_running()
        return self._embedded.running_node()

    def _check_running(self) -> None:
        """Raises RuntimeError if it does not run, or on another event loop."""
        if not self._embedded.is_running:
            raise RuntimeError(self._not_running_message())
        running = None
        with suppress(RuntimeError):
            running = asyncio.get_running_loop()
        if running is not self._loop:
            raise RuntimeError(ON_ANOTHER_LOOP)

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
    address = DEFAULT_LISTEN if listen is None else parse_address("listen", listen)
    shown = None if advertised is None else parse_advertised(advertised)
    return Options(
        listeners=(Listener(listen=address, advertised=shown),),
        data=MEMORY if data is None else parse_path("data", data).absolute(),  # the program may change its folder later
        sync=config.parse_sync(sync),
        topics=tuple(config.check_topic(name, partitions) for name, partitions in topics.items()),
        file_mode=parse_file_mode(file_mode),
    )


def _checked(assignors: Mapping[str, AssignFunction]) -> dict[str, AssignFunction]:
    from ..node.server_assignors import check_assignor

    if not isinstance(assignors, Mapping):
        raise StartError(f"bad assignors {assignors!r}: expected functions by name, as in {{'by-rack': by_rack}}")
    for name, function in assignors.items():
        check_assignor(name, function)
    return dict(assignors)


def _check_text(name: str, value: object, expected: str) -> None:
    if value is not None and not isinstance(value, str):
        raise StartError(f"bad {name} {value!r}: expected {expected}")
