"""Node: assembles one coordinator from data folder, log, actors, topics and listener.

The start opens the folder, the log and the topics, starts the actors and the listener, and loads the groups. A small
log is loaded before the server listens. A large log is loaded in the background (``loading``), and requests to groups
that are not loaded are refused. The stop runs in reverse order, and answers every request whose decision was made.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pykka

from ...actors.base import ActorRef
from ...actors.coordinator.actor import CoordinatorActor, Directory
from ...actors.engine_ports import ReplyTo
from ...actors.messages import Drain, GroupRequest, Shutdown, TxnOffsetCommit
from ...actors.transactions.actor import TransactionEnvironment, TransactionsActor
from ...actors.transactions.rules import Transaction
from ...actors.writer import OffsetWriterActor
from ..common.logs import get_logger
from ..disk.disk import Disk
from ..disk.file_work import FileThread, FileWork, InlineFileWork
from ..engine.system import System
from ..kafka.connection_pool import ConnectionPool
from ..kafka.interceptor import Interceptor
from ..kafka.response_queue import ResponseQueue
from ..kafka.services import Origin
from ..loading.loader import AT_ONCE_BYTES, load_in_subprocesses, load_inline, make_jobs
from ..loading.pieces import LoadJob, LoadReport
from ..loading.sink import LoadSink
from ..log.folder import DataFolder, random_cluster_id
from ..log.journal import random_salt
from ..log.offsets_log import OffsetsLog
from ..settings.dynamic import DynamicSettings
from ..settings.table import LISTEN_BACKLOG
from ..topics.catalogue import TopicCatalogue
from .connection_limit import DescriptorLimit, connections_max
from .environment import Environment, LocalChannel
from .expiry_log import log_expiry

if TYPE_CHECKING:
    from ..engine.reply import Reply
    from ..settings.table import Options, Settings
    from .cleaner import Cleaner

log = get_logger("callboard.runtime")

NODE_ID = 1
TOPICS_SYNC_INTERVAL_S = 1.0  # end offsets of topics survive a crash of the process at once, a power cut after this
STOP_TIMEOUT_S = 5.0  # for answers and the last sync; then the connections are closed


class Node:
    """One coordinator. Call ``start``, then ``stop`` or ``halt``, once each, on its event loop.

    It serves Kafka clients over TCP, and code in this process by ``ask``. ``interceptor``: for tests, may observe and
    change requests and responses.
    """

    node_id = NODE_ID

    def __init__(self, settings: Settings, options: Options, environment: Environment | None = None) -> None:
        self.environment = environment or Environment(disk=Disk(options.file_mode))
        self.interceptor: Interceptor | None = None
        self.configs = DynamicSettings(settings, options.given, allows_unsafe=options.unsafe_settings)
        self.settings: Settings = self.configs.settings
        self.options = options
        self.clock = self.environment.clock
        self.random = self.environment.random
        self.connection_limit = DescriptorLimit(sys.maxsize, self.clock.monotonic_ms)
        self.connections = ConnectionPool(
            self, self.connection_limit, settings.connections_max_idle_ms, self.later, self._soon
        )
        self._cleaner: Cleaner | None = None
        self.response_queue = ResponseQueue(self._soon)
        self._accepts_requests = True
        self._pending_replies: set[Reply] = set()  # of ``ask``
        self.channels: dict[LocalChannel, None] = {}  # of members in this process; closed by ``stop``
        self._loop: asyncio.AbstractEventLoop
        self.groups = Directory(self.settings)
        self.groups.on_offsets_expired = partial(log_expiry, self.configs)
        self.advertised_host = ""
        self.advertised_port = 0
        self.cluster_id = ""
        self.topics: TopicCatalogue
        self._files: FileWork = InlineFileWork()
        self._folder: DataFolder | None = None
        self.on_folder_lost: Callable[[], None] = lambda: None  # called on the loop; commits are refused then
        self._log: OffsetsLog | None = None
        self.system: System
        self.transactions: ActorRef
        self.transaction_table: dict[str, Transaction]
        self._writer: ActorRef
        self._server: asyncio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._load_sink: LoadSink
        self._loading: asyncio.Task[None]

    async def start(self, listening_socket: socket.socket | None = None) -> None:
        """Recover, accept connections and load, a small log before. StartError for an error that the user can fix.

        Requests to groups and transactional ids that are not loaded yet are refused, see ``wait_until_loaded``. Without
        a socket there are no TCP connections.
        """
        self._loop = asyncio.get_running_loop()
        self._advertise(listening_socket)
        try:
            offsets_log, folder = self._open_data()
            jobs = make_jobs(self.options.data, offsets_log, self.environment.disk)
            self._start_actors(offsets_log, folder)
            self._load_sink = LoadSink(self.groups, self.topics, offsets_log, self.clock)
            is_large = sum(job.log_bytes for job in jobs) > AT_ONCE_BYTES
            loads_in_background = (self._may_use_subprocesses and is_large) or self.environment.load is not None
            if not loads_in_background:
                load_inline(jobs, self._load_sink.accept, self.environment.disk)
                await self._load_sink.finish(self.transactions)
            self._start_file_thread()
            if listening_socket is not None:
                self._server = await self._loop.create_server(
                    self.connections.new_connection, sock=listening_socket, backlog=LISTEN_BACKLOG
                )
        except BaseException:
            self._clean_up_failed_start()
            raise
        self.connections.start_idle_checks()
        self._loading = self._start_task(self._load(jobs) if loads_in_background else self._start_cleaner())
        self._start_task(self._sync_topics())

    def _clean_up_failed_start(self) -> None:
        if hasattr(self, "system"):
            self.system.halt()
        self._files.halt()
        self._close_data()

    def _advertise(self, listening_socket: socket.socket | None) -> None:
        """Set the address that clients connect to."""
        if self.options.advertised:
            self.advertised_host, self.advertised_port = self.options.advertised
        elif listening_socket is not None:
            host, self.advertised_port = listening_socket.getsockname()[:2]
            self.advertised_host = self.options.listen_host or host

    async def stop(self) -> None:
        """Reject new requests, answer the decided ones, sync and close."""
        await self._stop_accepting()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._finish_requests()
        except (TimeoutError, pykka.ActorDeadError) as error:
            log.error("not everything could be written in time", timeout_s=STOP_TIMEOUT_S, reason=repr(error))
        self.response_queue.deliver_all()
        self.connections.send_responses()
        self.connections.close()
        self._cancel_tasks()
        if self._cleaner is not None:
            await self._cleaner.stop()
        self.system.stop_all(block=False)
        self._files.close()
        await self._run_blocking(self._close_data)
        self._fail_pending_requests()

    async def _stop_accepting(self) -> None:
        self._accepts_requests = False
        if self._server is not None:
            self._server.close()
        self._loading.cancel()
        await asyncio.wait({self._loading})  # its errors were logged, and must not prevent the stop
        self.connections.stop_reading()

    def _cancel_tasks(self) -> None:
        self.connections.stop_idle_checks()
        for task in self._tasks:
            task.cancel()

    def halt(self) -> None:
        """Stop like a killed process: answer nothing, write nothing.

        Another node on the same disk, or on the disk of ``FaultyDisk.kill`` or ``crash``, acts as the next process.
        """
        self._accepts_requests = False
        if self._server is not None:
            self._server.close()
        self.connections.abort()
        self.response_queue.drop()
        self._cancel_tasks()
        if self._cleaner is not None:
            self._cleaner.halt()
        with ExitStack() as callbacks:  # runs all of them in reverse order, even if one raises
            callbacks.callback(self._fail_pending_requests)
            callbacks.callback(self.system.halt)
            if self._folder is not None:
                callbacks.callback(self._folder.close)
            callbacks.callback(self.topics.halt)
            callbacks.callback(self._files.halt)
            if self._log is not None:
                callbacks.callback(self._log.halt)

    def exclusive_fds(self) -> list[int]:
        """Descriptors that a forked process must close: the listener, the connections, the locks of the folder."""
        sockets = [] if self._server is None else [listener.fileno() for listener in self._server.sockets]
        sockets += self.connections.filenos()
        lock = self._folder.lock if self._folder is not None and self.environment.disk.is_real else None
        return [fd for fd in (*sockets, *(lock.fds if lock is not None else ())) if fd >= 0]

    # In this process -------------------------------------------------------------------------------------------------

    def ask(self, message: GroupRequest, origin: Origin) -> Reply:
        """Send a request to a group like a client, without a socket. The reply is set when a client would get it.

        The reply has no timeout. pykka.ActorDeadError if the node has stopped before it answered.
        """
        reply = self.system.dispatcher.new_reply()
        reply.timeout_s = float("inf")
        if not self._accepts_requests:
            reply.set_exception(_stopped())
        elif self.interceptor is None:
            self.post(message, reply)
        else:
            self.interceptor.ask(self, message, origin, reply)
        if not reply.done():
            self._pending_replies.add(reply)
            reply.on_done(self._pending_replies.discard)
        return reply

    def _fail_pending_requests(self) -> None:
        """Fail every unanswered request of this process."""
        for channel in tuple(self.channels):
            channel.close()
        for reply in tuple(self._pending_replies):
            reply.set_exception(_stopped())

    def post(self, message: GroupRequest, reply_to: ReplyTo) -> None:
        """Send a request to its group, or by way of the transactions actor."""
        if isinstance(message, TxnOffsetCommit):
            self.transactions.post(message, reply_to)
        else:
            self.groups.post(message, reply_to)

    @property
    def is_writing(self) -> bool:
        """Whether records are on their way to the log. Read it on the loop, between turns of actors."""
        writer: OffsetWriterActor | None = self._writer.actor_inbox.actor
        return writer is not None and not writer.is_idle

    async def drain(self) -> None:
        """Wait until all records that were sent to the log are durable."""
        await self._writer.ask(Drain(), block=False)

    @property
    def offsets_log(self) -> OffsetsLog | None:
        """The log; None before it is open."""
        return self._log

    @property
    def compactions(self) -> int:
        """How many compactions this server has started."""
        return 0 if self._cleaner is None else self._cleaner.runs

    @property
    def log_failure(self) -> str:
        """Why commits were refused, or kept in the journal only, after a disk error; empty if there was none."""
        if self._log is None:
            return ""
        stats = self._log.stats()
        loading = self._load_sink.failure if hasattr(self, "_load_sink") else ""
        return "; ".join(filter(None, (loading, stats.failure, *stats.failures.values())))

    async def _finish_requests(self) -> None:
        """Wait until every received request is decided, durable and answered.

        Each step comes after all messages that are in a mailbox already: transactions and coordinator pass on their
        requests, the groups decide and fail parked requests, the writer drains, and groups and transactions answer the
        requests that have become durable.
        """
        await self.transactions.ask(Shutdown(), block=False)
        await self.groups.coordinator.ask(Shutdown(), block=False)
        await self._shut_down_groups()
        await self.drain()
        await self._shut_down_groups()
        await self.transactions.ask(Shutdown(), block=False)
        await self._files.wait_until_idle()

    async def _shut_down_groups(self) -> None:
        replies = [ref.ask(Shutdown(), block=False) for ref in self.groups.groups.values()]
        for reply in replies:
            with suppress(pykka.ActorDeadError):
                await reply

    def later(self, delay_ms: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call ``callback`` on the loop after ``delay_ms``, unless the handle is cancelled."""
        return self._loop.call_later(delay_ms / 1000, callback)

    def _soon(self, callback: Callable[[], None]) -> object:
        return self._loop.call_soon(callback)

    # Data ------------------------------------------------------------------------------------------------------------

    def _open_data(self) -> tuple[OffsetsLog, DataFolder]:
        settings, path, environment = self.settings, self.options.data, self.environment
        self._folder = folder = DataFolder(
            path,
            settings.offsets_topic_num_partitions,
            settings.transaction_state_log_num_partitions,
            disk=environment.disk,
            new_cluster_id=lambda: random_cluster_id(lambda: UUID(self.random.uuid())),
        )
        self.cluster_id = folder.cluster_id
        self._set_connection_limit(folder.offsets_partitions + folder.transactions_partitions)
        self.configs.load(path, environment.disk, ignore=self.options.ignore_saved_settings)
        self._log = OffsetsLog(
            path,
            folder.offsets_partitions,
            transactions_partitions=folder.transactions_partitions,
            sync=self.options.sync,
            segment_bytes=settings.offsets_topic_segment_bytes,
            segment_ms=settings.log_roll_ms,
            max_message_bytes=settings.message_max_bytes,
            flush_interval_ms=settings.log_flush_interval_ms,
            checkpoint_bytes=environment.checkpoint_bytes,
            checkpoint_interval_ms=environment.checkpoint_interval_ms,
            disk=environment.disk,
            clock=environment.log_clock,
            threads=environment.threads(),
            new_salt=lambda: random_salt(lambda: UUID(self.random.uuid())),
            lock=folder.lock if environment.disk.is_real else None,
            on_lost=self._report_folder_lost,
        )
        internal = folder.offsets_partitions, folder.transactions_partitions
        self.topics = TopicCatalogue(path, settings, self.random, internal, environment.disk)  # before the journal
        self._log.open()
        for name, partitions in self.options.topics:
            self.topics.ensure(name, partitions)
        return self._log, folder

    def _report_folder_lost(self) -> None:
        """Called in the log's thread."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.on_folder_lost)

    def _set_connection_limit(self, partitions: int) -> None:
        """Reserve descriptors for the files of the log. A log in memory needs none."""
        if self.environment.disk.is_real:
            has_http = self.options.metrics is not None
            self.connection_limit.maximum = connections_max(partitions, has_http=has_http)

    def _close_data(self) -> None:
        with ExitStack() as callbacks:  # runs all of them, even if one raises
            if self._folder is not None:
                callbacks.callback(self._folder.close)
            if self._log is not None:
                callbacks.callback(self._log.close)
            if hasattr(self, "topics"):
                callbacks.callback(self.topics.close if self._may_write_folder() else self.topics.halt)

    async def _sync_topics(self) -> None:
        while True:
            await asyncio.sleep(TOPICS_SYNC_INTERVAL_S)
            if self._may_write_folder():
                self.topics.check_files()

    def _may_write_folder(self) -> bool:
        """False if the data folder was moved or deleted, or another server may use it."""
        return self._log is None or self._log.may_write_folder()

    def _start_file_thread(self) -> None:
        """Write files in a thread from now on, if the environment allows it, so that no write blocks the loop."""
        if self.environment.allows_workers:
            self._files = FileThread(self._loop)
        self.topics.run_on(self._files)
        self.configs.run_on(self._files)

    async def _run_blocking(self, call: Callable[[], object]) -> None:
        """Run a blocking call in another thread, if the environment allows it."""
        if self.environment.allows_workers:
            await asyncio.to_thread(call)
        else:
            call()

    @property
    def _may_use_subprocesses(self) -> bool:
        """Whether the environment allows subprocesses, and they can open the files."""
        return self.environment.allows_workers and self.environment.disk.is_real

    async def _start_cleaner(self) -> None:
        """Start it after loading, which has checked that all groups are in the right partitions."""
        if self._may_use_subprocesses and self.settings.log_cleaner_enable:
            from .cleaner import Cleaner

            self._cleaner = Cleaner(self.options.data, self.settings)
            self._cleaner.start()

    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.append(task)
        return task

    # Actors ----------------------------------------------------------------------------------------------------------

    def _start_actors(self, offsets_log: OffsetsLog, folder: DataFolder) -> None:
        self.system = system = System(self.environment.dispatcher(self._loop), self.clock)
        timer = system.start_timer()
        self._writer = system.spawn(OffsetWriterActor, offsets_log, self.clock)
        self.groups.availability.loading.update(offsets_log.offsets_partitions_with_data())
        settings, partitions = self.settings, folder.offsets_partitions
        arguments = self.clock, self.random, settings, timer, self._writer, partitions
        system.spawn(CoordinatorActor, self.groups, *arguments, {})
        self._start_transactions(timer, folder)

    def _start_transactions(self, timer: ActorRef, folder: DataFolder) -> None:
        environment = TransactionEnvironment(
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
        self.transactions = self.system.spawn(TransactionsActor, environment, self.transaction_table, {}, True)

    # Loading ---------------------------------------------------------------------------------------------------------

    @property
    def is_loading(self) -> bool:
        """Whether a part of the log is not loaded yet."""
        return not self._load_sink.is_finished

    async def wait_until_loaded(self) -> LoadSink:
        """Wait until loading has ended. Returns its statistics."""
        await asyncio.wait({self._loading})
        return self._load_sink

    async def _load(self, jobs: list[LoadJob]) -> None:
        try:
            await (self.environment.load or load_in_subprocesses)(jobs, self._load_sink.accept)
        except Exception as error:
            if self._load_sink.failure:
                return
            log.exception("the log could not be loaded")
            for partition in tuple(self.groups.availability.loading):
                self._load_sink.accept(
                    LoadJob(partition, str(self.options.data), False, 0), LoadReport(failure=repr(error))
                )
            self._load_sink.accept(LoadJob(-1, str(self.options.data), True, 0), LoadReport(failure=repr(error)))
        try:
            await self._load_sink.finish(self.transactions)
        except Exception:
            log.exception("loading could not be finished")
        await self._start_cleaner()


def _stopped() -> tuple[type[BaseException], BaseException, None]:
    """The error of requests to a stopped node, in the form of ``sys.exc_info()``."""
    return pykka.ActorDeadError, pykka.ActorDeadError("the coordinator has stopped"), None
