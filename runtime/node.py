"""Node: everything of one coordinator, put together: data folder, log, actors, topics, listener.

Start: folder, log, topics, actors, the listener, groups. A request for a group that was not loaded yet is refused, and
the log is read meanwhile (``loading``); a small one is read before the server listens. Stop: the opposite way, and
nothing that was decided is left unanswered.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pykka
import structlog

from ..actors.base import ActorRef
from ..actors.coordinator import CoordinatorActor, Directory
from ..actors.errors import CoordinatorError
from ..actors.messages import Drain, Shutdown
from ..actors.transaction_coordinator import TransactionsActor, TransactionSurroundings
from ..actors.transactions import Transaction
from ..actors.writer import OffsetWriterActor
from .arrival import Arrival
from .cleaner import Cleaner
from .clock import SystemClock, SystemRandom
from .config import LISTEN_BACKLOG
from .descriptors import Places, connections_max
from .dynamic import DynamicSettings
from .errors import StartError
from .kafka.connection import Connection
from .kafka.idle import IdleWatch
from .kafka.topics.catalogue import TopicCatalogue
from .load_child import Job, Report
from .loading import AT_ONCE_BYTES, load_at_once, load_beside, make_job
from .log.folder import DataFolder
from .log.offsets_log import OffsetsLog
from .log.partition import TRANSACTIONS_TOPIC, folder_name
from .system import System

if TYPE_CHECKING:
    from .config import Options, Settings

log = structlog.get_logger()

NODE_ID = 1
TOPICS_SYNC_INTERVAL_S = 1.0  # end offsets of topics survive a crash of the process at once, a power cut after this
STOP_TIMEOUT_S = 5.0  # to answer and sync what was decided; then the connections are closed all the same


class Node:
    """One coordinator that serves Kafka clients. ``start`` and ``stop`` once each, on the loop that it lives on."""

    node_id = NODE_ID

    def __init__(self, settings: Settings, options: Options) -> None:
        self.configs = DynamicSettings(settings)
        self.settings: Settings = self.configs.settings
        self.options = options
        self.clock = SystemClock()
        self.random = SystemRandom()
        self.connections: set[Connection] = set()
        self.places: Places
        self._idle_watch = IdleWatch(self.connections, settings.connections_max_idle_ms, self.later)
        self._cleaner = Cleaner(options.data, self.settings)
        self._unsent: list[Connection] = []
        self._loop: asyncio.AbstractEventLoop
        self.groups = Directory(self.settings)
        self.advertised_host = ""
        self.advertised_port = 0
        self.cluster_id = ""
        self.topics: TopicCatalogue
        self._folder: DataFolder | None = None
        self._log: OffsetsLog | None = None
        self.system: System
        self.transactions: ActorRef
        self.transaction_table: dict[str, Transaction]
        self._writer: ActorRef
        self._server: asyncio.Server
        self._topics_sync: asyncio.Task[None]
        self._arrival: Arrival
        self._loading: asyncio.Task[None]

    async def start(self, listening_socket: socket.socket) -> None:
        """Recover, accept connections, load; a small log is loaded before. StartError where a person can mend it.

        Groups and transactional ids that are not loaded yet are refused, see ``wait_until_loaded``.
        """
        self._loop = loop = asyncio.get_running_loop()
        host, port = listening_socket.getsockname()[:2]
        self.advertised_host, self.advertised_port = self.options.advertised or (self.options.listen_host or host, port)
        try:
            offsets_log, folder = self._open_data(self.options.data)
            jobs = self._jobs(offsets_log)
            self._start_actors(offsets_log, folder)
            self._arrival = Arrival(self.groups, self.topics, offsets_log, self.clock)
            loads_beside = sum(job.log_bytes for job in jobs) > AT_ONCE_BYTES
            if not loads_beside:
                load_at_once(jobs, self._arrival.take)
                await self._arrival.finish(self.transactions)
        except BaseException:
            self._close_data()
            raise
        self._topics_sync = loop.create_task(self._sync_topics())
        self._idle_watch.start()
        self._cleaner.start()
        self._server = await loop.create_server(lambda: Connection(self), sock=listening_socket, backlog=LISTEN_BACKLOG)
        self._loading = loop.create_task(self._load_beside(jobs) if loads_beside else asyncio.sleep(0))

    async def stop(self) -> None:
        """Take nothing new, answer what was decided, sync, close."""
        self._server.close()
        self._loading.cancel()
        await asyncio.wait({self._loading})  # what has failed there was told, and is no reason not to stop
        for connection in self.connections:
            connection.stop_reading()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._settle()
        except (TimeoutError, pykka.ActorDeadError) as error:
            log.error("not everything could be written in time", timeout_s=STOP_TIMEOUT_S, reason=repr(error))
        for connection in list(self.connections):
            connection.close()
        self._topics_sync.cancel()
        self._idle_watch.stop()
        await self._cleaner.stop()
        self.system.stop_all(block=False)
        await asyncio.to_thread(self._close_data)

    @property
    def offsets_log(self) -> OffsetsLog | None:
        """The log, as soon as it is there."""
        return self._log

    @property
    def compactions(self) -> int:
        """How often this server has begun to compact its log."""
        return self._cleaner.runs

    @property
    def log_failure(self) -> str:
        """Why commits were refused, or kept in the journal alone, since the disk failed; empty when it did not."""
        if self._log is None:
            return ""
        stats = self._log.stats()
        return "; ".join((stats.failure, *stats.failures.values())).strip("; ")

    async def _settle(self) -> None:
        """See every request that came in to its end: decided, durable, answered.

        Each step asks behind all that is in a mailbox already: transactions and coordinator hand on what they have, the
        groups decide and give up what is parked, the writer drains, and groups and transactions answer what has become
        durable.
        """
        await self.transactions.ask(Shutdown(), block=False)
        await self.groups.coordinator.ask(Shutdown(), block=False)
        await self._shut_groups()
        await self._writer.ask(Drain(), block=False)
        await self._shut_groups()
        await self.transactions.ask(Shutdown(), block=False)

    async def _shut_groups(self) -> None:
        replies = [ref.ask(Shutdown(), block=False) for ref in self.groups.groups.values()]
        for reply in replies:
            with suppress(pykka.ActorDeadError):
                await reply

    def later(self, delay_ms: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call back on the loop in so many milliseconds, unless the handle is cancelled."""
        return self._loop.call_later(delay_ms / 1000, callback)

    def send_soon(self, connection: Connection) -> None:
        """Send a connection's answers when this turn of the loop is over."""
        self._unsent.append(connection)
        if len(self._unsent) == 1:
            self._loop.call_soon(self._send_all)

    def _send_all(self) -> None:
        unsent, self._unsent = self._unsent, []
        for connection in unsent:
            try:
                connection.send_answers()
            except Exception:  # the others behind it must not pay for it
                log.exception("a connection could not be answered")
                connection.close()

    # Data ------------------------------------------------------------------------------------------------------------

    def _open_data(self, path: Path) -> tuple[OffsetsLog, DataFolder]:
        settings = self.settings
        self._folder = DataFolder(
            path, settings.offsets_topic_num_partitions, settings.transaction_state_log_num_partitions
        )
        self.cluster_id = self._folder.cluster_id
        partitions = self._folder.offsets_partitions + self._folder.transactions_partitions
        self.places = Places(connections_max(partitions), self.clock.monotonic_ms)
        self.configs.load(path)
        self._log = OffsetsLog(
            path,
            self._folder.offsets_partitions,
            transactions_partitions=self._folder.transactions_partitions,
            sync=self.options.sync,
            segment_bytes=settings.offsets_topic_segment_bytes,
            segment_ms=settings.log_roll_ms,
            max_message_bytes=settings.message_max_bytes,
            flush_interval_ms=settings.log_flush_interval_ms,
        )
        self._log.open()
        own = self._folder.offsets_partitions, self._folder.transactions_partitions
        self.topics = TopicCatalogue(path, settings, self.random, own)
        for name, partitions in self.options.topics:
            self._make_topic(name, partitions)
        return self._log, self._folder

    def _make_topic(self, name: str, partitions: int) -> None:
        topic = self.topics.get(name)
        if topic is None:
            try:
                self.topics.create(name, partitions)
            except CoordinatorError as error:
                raise StartError(f"--topic {name}:{partitions}: {error}") from error
        elif len(topic.partitions) != partitions:
            log.warning("the topic exists with another number of partitions", topic=name, has=len(topic.partitions))

    def _close_data(self) -> None:
        with ExitStack() as closing:  # all of them, whatever goes wrong with one
            if self._folder is not None:
                closing.callback(self._folder.close)
            if self._log is not None:
                closing.callback(self._log.close)
            if hasattr(self, "topics"):
                closing.callback(self.topics.close)

    async def _sync_topics(self) -> None:
        while True:
            await asyncio.sleep(TOPICS_SYNC_INTERVAL_S)
            try:
                await asyncio.to_thread(self.topics.sync)
            except OSError as error:
                log.error("the end offsets of topics could not be synced", reason=str(error))

    # Actors ----------------------------------------------------------------------------------------------------------

    def _start_actors(self, offsets_log: OffsetsLog, folder: DataFolder) -> None:
        self.system = system = System.on_loop(self._loop, self.clock)
        timer = system.start_timer()
        self._writer = system.spawn(OffsetWriterActor, offsets_log, self.clock)
        self.groups.unserved.loading.update(offsets_log.partitions_with_data())
        settings, partitions = self.settings, folder.offsets_partitions
        surroundings = self.clock, self.random, settings, timer, self._writer, partitions
        system.spawn(CoordinatorActor, self.groups, *surroundings, {})
        self._start_transactions(timer, folder)

    def _start_transactions(self, timer: ActorRef, folder: DataFolder) -> None:
        surroundings = TransactionSurroundings(
            self.settings,
            self.clock,
            timer,
            self._writer,
            self.groups,
            self.topics,
            folder.offsets_partitions,
            folder.transactions_partitions,
        )
        self.transaction_table = {}
        self.transactions = self.system.spawn(TransactionsActor, surroundings, self.transaction_table, {}, True)

    # Loading ---------------------------------------------------------------------------------------------------------

    @property
    def is_loading(self) -> bool:
        """Whether some of the log was not read yet."""
        return not self._arrival.is_over

    async def wait_until_loaded(self) -> Arrival:
        """Until everything is served that can be; what it took."""
        await asyncio.wait({self._loading})
        return self._arrival

    def _jobs(self, offsets_log: OffsetsLog) -> list[Job]:
        root, first = self.options.data, offsets_log.first_transactions_partition
        groups = [make_job(number, root / folder_name(number), False) for number in offsets_log.partitions_with_data()]
        transactions = [
            make_job(number, root / folder_name(number - first, TRANSACTIONS_TOPIC), True)
            for number in offsets_log.transactions_with_data()
        ]
        return [*transactions, *groups]

    async def _load_beside(self, jobs: list[Job]) -> None:
        try:
            await load_beside(jobs, self._arrival.take)
        except Exception as error:
            log.exception("the log could not be loaded")
            for partition in tuple(self.groups.unserved.loading):
                self._arrival.take(Job(partition, str(self.options.data), False, 0), Report(failure=repr(error)))
            self._arrival.take(Job(-1, str(self.options.data), True, 0), Report(failure=repr(error)))
        try:
            await self._arrival.finish(self.transactions)
        except Exception:
            log.exception("what was loaded could not be taken up")
