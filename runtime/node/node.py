"""Node: assembles one coordinator from data folder, log, actors, topics and listener.

The start opens the folder, the log and the topics, starts the actors and the listener, and loads the groups. A small
log is loaded before the server listens. A large log is loaded in the background (``loading.py``), and requests to
groups that are not loaded are refused. The stop runs in reverse order, and answers every request whose decision was
made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import pykka

from ...actors.coordinator.directory import Directory
from ...actors.steps import run_steps
from ..common.logs import get_logger
from ..disk.disk import Disk
from ..engine.system import System
from ..kafka.api import APIS, NODE_APIS, OWN_APIS, Routes
from ..kafka.cluster_view import ClusterView, SingleNode
from ..kafka.connections.client_buffers import ClientBuffers
from ..kafka.connections.connection_places import ConnectionPlaces
from ..kafka.connections.connection_pool import ConnectionPool
from ..kafka.connections.connection_turns import ConnectionTurns
from ..kafka.connections.over_limit import OverLimitReports
from ..kafka.connections.time_budget import TimeBudget
from ..kafka.quotas.client_quotas import ClientQuotas
from ..kafka.quotas.request_meter import RequestMeter
from ..kafka.request_counts import RequestCounts
from ..kafka.response_queue import ResponseQueue
from ..kafka.slices import Slices
from ..security.document import QUOTAS
from ..settings.admin import GroupConfigAdmin, SettingsAdmin
from ..settings.dynamic import DynamicSettings
from ..topics.admin import Admins, TopicAdmin
from .accepting import AcceptingListeners, closing_unused, open_tls
from .actors import NodeActors, start_actors
from .audit import close_audit, open_audit
from .authorization import make_authorizer
from .cleaner import Cleaner
from .cluster import Cluster, LogCleaner
from .connection_limit import DescriptorLimit
from .data import NodeData, lock_fds, open_data
from .descriptors import ExclusiveDescriptors
from .environment import Environment
from .expiry_log import log_expiry
from .listening import NO_SOCKETS, Sockets, advertised_addresses
from .loading import LogLoading
from .local_requests import LocalRequests
from .memory import count_memory
from .recording import Recording
from .reset_records import ResetRecords
from .sasl import SaslListeners
from .services import NodeServices, ServiceAdmins
from .topic_cleaning import clean_topics
from .tracing import RebalanceTracer

if TYPE_CHECKING:
    from ..kafka.interceptor import Interceptor
    from ..loading.sink import LoadSink
    from ..log.folder import DataFolder
    from ..log.store import LogStore
    from ..settings.table import Options, Settings
    from ..tls.listener_tls import ListenerTls
    from ..topics.catalogue import TopicCatalogue

log = get_logger("callboard.runtime")

TOPICS_SYNC_INTERVAL_S = 1.0  # end offsets of topics survive a crash of the process at once, a power cut after this
NODE_ID = 1
OPEN_ROUTE_PAUSE_S = 0.005
STOP_TIMEOUT_S = 5.0  # for answers and the last sync; then the connections are closed


def _ignore() -> None:
    """The default of ``on_folder_lost``."""


async def _open_routes(routes: Routes) -> None:
    """Of a node that joins a cluster: else the first clients of its partitions would wait for imports."""
    for _ in routes.open_ahead():
        await asyncio.sleep(OPEN_ROUTE_PAUSE_S)


class Node:
    """One coordinator, from ``open`` to ``stop`` or ``halt``, on one event loop.

    It serves Kafka clients over TCP, and code in this process by ``local.ask``.
    """

    def __init__(
        self,
        environment: Environment,
        services: NodeServices,
        data: NodeData,
        actors: NodeActors,
        loading: LogLoading,
        descriptors: ExclusiveDescriptors,
        turns: ConnectionTurns,
        tls: Mapping[str, ListenerTls],
    ) -> None:
        """Use ``open``, which starts these parts."""
        self._loop = loop = asyncio.get_running_loop()
        self.environment = environment
        self.services = services
        self.data = data
        self.actors = actors
        self.loading = loading
        self.connection_limit = DescriptorLimit(data.connections_max, environment.clock.monotonic_ms)
        places = ConnectionPlaces(
            *(services.settings, data.configs.listener_limits, services.options.inter_broker_listener),
            *(environment.clock.monotonic_ms, services.later),
        )
        services.settings_admin.on_change(places.settings_changed)
        self.connections = ConnectionPool(
            services,
            self.connection_limit,
            services.settings.connections_max_idle_ms,
            services.later,
            loop.call_soon,
            turns,
            places,
        )
        RequestMeter(services.quotas, self.connections, services.slices, environment.work_clocks.slice_ns)
        self.local = LocalRequests(actors, services, actors.system.dispatcher)
        self._recording = Recording(actors.groups.event_log.recorder, data, environment, loop)
        self._cleaner = _make_cleaner(environment, data, services.settings)
        self._descriptors = descriptors
        self.listeners = AcceptingListeners(self.connections, turns, tls)
        self._tasks: list[asyncio.Task[None]] = []  # the first one loads the log
        count_memory(actors, services.buffers, self.connections, data.topics)
        descriptors.add(self.connections.filenos)
        descriptors.add(self.listeners.filenos)

    @classmethod
    async def open(
        cls,
        settings: Settings,
        options: Options,
        environment: Environment | None = None,
        listening_sockets: Sockets = NO_SOCKETS,
        *,
        interceptor: Interceptor | None = None,
        on_folder_lost: Callable[[], None] = _ignore,
        descriptors: ExclusiveDescriptors | None = None,
    ) -> Self:
        """Recover, accept connections and load, a small log before. StartError for an error that the user can fix.

        In a cluster connections are accepted later, when the node can answer them, see ``AcceptingListeners``.

        Requests to groups and transactional ids that are not loaded yet are refused, see ``wait_until_loaded``. Without
        sockets there are no TCP connections. ``interceptor``: for tests, may observe and change requests and
        responses. ``on_folder_lost`` is called on the loop when the data folder was moved or another process has taken
        it; commits are refused then. ``descriptors`` gets what a forked process must close.
        """
        tls = open_tls(options)  # before any file is touched
        environment = environment or Environment(disk=Disk(options.file_mode))
        descriptors = descriptors or ExclusiveDescriptors()
        loop = asyncio.get_running_loop()
        configs = DynamicSettings(
            settings, options.given, allows_unsafe=options.unsafe_settings, listeners=options.listeners
        )
        with ExitStack() as on_error:

            def add_lock(folder: DataFolder) -> None:
                if environment.disk.is_real:
                    descriptors.add(partial(lock_fds, folder))

            data = open_data(options, configs, environment, loop, on_folder_lost, add_lock)
            on_error.callback(data.close)
            on_error.callback(data.files.halt)
            system = System(environment.dispatcher(loop), environment.clock)
            on_error.callback(system.halt)
            groups = Directory(configs.settings, data.folder.offsets_partitions)
            groups.on_offsets_expired = partial(log_expiry, configs)
            groups.event_log.observers.append(RebalanceTracer())
            if environment.group_observer is not None:
                groups.event_log.observers.append(environment.group_observer)
            budget = TimeBudget(loop.call_soon, environment.work_clocks.budget_ns)
            turns = ConnectionTurns(loop.call_soon, environment.clock.monotonic_ms, budget)
            actors = start_actors(system, groups, data, environment, environment.when_read or turns.when_read)
            loading = LogLoading(data, actors, environment)
            slice_ns, jobs_max = environment.work_clocks.slice_ns, configs.settings.max_sliced_requests
            slices = Slices(loop.call_soon, slice_ns, jobs_max, budget)
            services = _make_services(
                options, data, actors, loading, environment, listening_sockets, slices, interceptor
            )
            node = cls(environment, services, data, actors, loading, descriptors, turns, tls)
            await node._start(listening_sockets)
            on_error.pop_all()
        return node

    async def _start(self, listening_sockets: Sockets) -> None:
        await self.loading.start()
        if not self.loading.is_in_background:
            await self.loading.load_now()
        self.data.use_file_thread()
        self.connections.start_idle_checks()
        self._start_task(self._load_and_clean())
        cluster = self.environment.cluster
        if cluster is None:
            await self.accept_from(listening_sockets)
        else:
            self._start_task(self._accept_when_ready(cluster, listening_sockets))
        self._start_task(self._check_topics())
        if self.environment.cluster is not None and listening_sockets:
            self._start_task(_open_routes(self.services.routes))
        self._start_task(clean_topics(self.topics, self.settings, self.environment))
        self._start_task(self.listeners.watch_certificates(self.environment))
        self._start_task(self.services.sasl.keep_keys_fresh())

    async def _accept_when_ready(self, cluster: Cluster, listening_sockets: Sockets) -> None:
        with closing_unused(listening_sockets):
            await cluster.wait_until_ready()
            await self.accept_from(listening_sockets)

    async def accept_from(self, listening_sockets: Sockets) -> None:
        """Accept connections. Other processes may do the same with the same sockets."""
        await self.listeners.accept_from(listening_sockets, self.settings.socket_receive_buffer_bytes)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(self._loop.create_task(work))

    async def _load_and_clean(self) -> None:
        """Start the log cleaner after loading, which has checked that all groups are in the right partitions."""
        if self.loading.is_in_background:
            await self.loading.load_in_background()
        if self._cleaner is not None and self.environment.may_use_subprocesses and not self.loading.sink.failure:
            self._cleaner.start()

    async def _check_topics(self) -> None:
        while True:
            await asyncio.sleep(TOPICS_SYNC_INTERVAL_S)
            self.data.check_topics()

    # Stop ------------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Reject new requests, answer the decided ones, sync and close."""
        await self._leave_cluster()
        await self._stop_accepting()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self.actors.finish_requests(self.data.files)
        except (TimeoutError, pykka.ActorDeadError) as error:
            log.error("not everything could be written in time", timeout_s=STOP_TIMEOUT_S, reason=repr(error))
        self.services.response_queue.deliver_all()
        self.services.slices.finish_active()
        self.connections.send_responses()
        self.connections.close()
        self._cancel_tasks()
        if self._cleaner is not None:
            await self._cleaner.stop()
        self.actors.system.stop_all(block=False)
        await self._recording.close(STOP_TIMEOUT_S)
        await close_audit(self.services.audit, STOP_TIMEOUT_S)
        self.data.files.close()
        await self.environment.run_blocking(self.data.close)
        if self.environment.cluster is not None:
            await self.environment.cluster.close()
        self.local.close()

    async def _leave_cluster(self) -> None:
        """Give all partitions to other nodes. Meanwhile clients are told which node that is."""
        if self.environment.cluster is not None:
            try:
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await self.environment.cluster.leave()
            except TimeoutError:
                log.error("the other nodes have to take over", reason=f"leaving took more than {STOP_TIMEOUT_S:.0f} s")

    async def _stop_accepting(self) -> None:
        self._close_listener()
        loading = self._tasks[0]
        loading.cancel()
        await asyncio.wait({loading})  # its errors were logged, and must not prevent the stop
        await self.loading.stop()
        self.connections.stop_reading()

    def _close_listener(self) -> None:
        self.local.stop_accepting()
        self.listeners.close()

    def _cancel_tasks(self) -> None:
        self.services.sasl.close()
        self.connections.stop_idle_checks()
        for task in self._tasks:
            task.cancel()

    def halt(self) -> None:
        """Stop like a killed process: answer nothing, write nothing.

        Another node on the same disk, or on that of ``MemoryDisk.for_next_process``, acts as the next process.
        """
        self._close_listener()
        self.connections.abort()
        self.services.response_queue.drop()
        self.services.slices.drop_all()
        self._cancel_tasks()
        self.loading.halt()
        if self.environment.cluster is not None:
            self.environment.cluster.halt()
        if self._cleaner is not None:
            self._cleaner.halt()
        with ExitStack() as callbacks:  # runs all of them in reverse order, even if one raises
            callbacks.callback(self.local.close)
            callbacks.callback(self.actors.system.halt)
            callbacks.callback(self.data.halt)
            callbacks.callback(self._recording.halt)

    # What others use --------------------------------------------------------------------------------------------------

    def exclusive_fds(self) -> list[int]:
        """Descriptors that a forked process must close: the listener, the connections, the locks of the folder."""
        return self._descriptors.all()

    @property
    def settings(self) -> Settings:
        """The effective settings."""
        return self.services.settings

    @property
    def configs(self) -> DynamicSettings:
        return self.data.configs

    @property
    def groups(self) -> Directory:
        return self.actors.groups

    @property
    def topics(self) -> TopicCatalogue:
        return self.data.topics

    @property
    def offsets_log(self) -> LogStore:
        return self.data.log

    @property
    def cleaner(self) -> LogCleaner | None:
        """What compacts the log; None if nothing does."""
        is_there = self.environment.may_use_subprocesses and not self.is_loading and not self.loading.sink.failure
        return self._cleaner if is_there else None

    @property
    def compactions(self) -> int:
        """How many compactions this server has started."""
        return 0 if self._cleaner is None else self._cleaner.runs

    @property
    def log_failure(self) -> str:
        """Why commits were refused, or kept in the journal only, after a disk error; empty if there was none."""
        stats = self.data.log.stats()
        return "; ".join(filter(None, (self.loading.sink.failure, stats.failure, *stats.failures.values())))

    @property
    def is_loading(self) -> bool:
        """Whether a part of the log is not loaded yet."""
        return not self.loading.sink.is_finished

    async def wait_until_loaded(self) -> LoadSink:
        """Wait until loading has ended. Returns its statistics."""
        await asyncio.wait({self._tasks[0]})
        return self.loading.sink


def _make_services(
    options: Options,
    data: NodeData,
    actors: NodeActors,
    loading: LogLoading,
    environment: Environment,
    listening_sockets: Sockets,
    slices: Slices,
    interceptor: Interceptor | None,
) -> NodeServices:
    admins = _admins(options, data, actors, environment)
    settings_admin = SettingsAdmin(data.configs, admins.groups)
    settings_admin.on_change(actors.groups.notify_of_settings)
    return NodeServices(
        cluster=_cluster_view(options, data, environment, listening_sockets),
        buffers=ClientBuffers(lambda: data.configs.settings, OverLimitReports()),
        clock=environment.clock,
        settings=data.configs.settings,
        options=options,
        admins=ServiceAdmins(
            settings_admin,
            admins.topics,
            data.security,
            lambda: ResetRecords(environment.disk, data.folder.path, data.files),
        ),
        groups=actors.groups,
        actors=actors,
        topics=data.topics,
        load_sink=loading.sink,
        response_queue=ResponseQueue(asyncio.get_running_loop().call_soon),
        slices=slices,
        routes=_routes(options, data, environment),
        sasl=SaslListeners(options.listeners, data.security, environment),
        interceptor=interceptor,
    )


def _quotas(data: NodeData, environment: Environment) -> ClientQuotas:
    quotas = ClientQuotas(environment.clock, data.configs.settings.offset_commit_rate_per_group)
    run_steps(quotas.use(data.security.get(QUOTAS)))
    data.security.on_change(QUOTAS, quotas.use)
    return quotas


def _routes(options: Options, data: NodeData, environment: Environment) -> Routes:
    cluster, audit = environment.cluster, open_audit(options, data, environment)
    counts = RequestCounts(environment.work_clocks.slice_ns) if options.metric_options.has_requests else None
    authorizer = environment.authorizer or make_authorizer(data.configs.settings, data.security)
    if cluster is None:
        return Routes(authorizer, audit=audit, quotas=_quotas(data, environment), counts=counts)
    return Routes(
        authorizer,
        (*APIS, *NODE_APIS, *OWN_APIS),
        cluster.has_lease,
        cluster.peer_gate,
        audit,
        _quotas(data, environment),
        counts,
    )


def _admins(options: Options, data: NodeData, actors: NodeActors, environment: Environment) -> Admins:
    groups = actors.groups
    if environment.cluster is None:
        return Admins(TopicAdmin(data.topics, groups.delete_topic_offsets), GroupConfigAdmin(data.configs))
    admins = environment.cluster.follow_topics(
        data.topics,
        data.configs,
        environment.random,
        groups.delete_topic_offsets,
        lambda partition: groups.partitions[partition].is_active,
        options.topics,
    )
    environment.cluster.follow_security(data.security)
    return admins


def _make_cleaner(environment: Environment, data: NodeData, settings: Settings) -> LogCleaner | None:
    """None if the log is neither in local files nor in the store of a cluster."""
    if environment.cluster is not None:
        return environment.cluster.cleaner(settings)
    return Cleaner(data.folder.path, settings) if data.log.has_local_files else None


def _cluster_view(
    options: Options, data: NodeData, environment: Environment, listening_sockets: Sockets
) -> ClusterView:
    if environment.cluster is not None:
        return environment.cluster.view
    return SingleNode(data.folder.cluster_id, NODE_ID, advertised_addresses(options, listening_sockets))
