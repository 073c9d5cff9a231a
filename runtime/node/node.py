"""Node: everything of one coordinator, put together: data folder, log, actors, topics, listener.

Start: folder, log, topics, actors, the listener, groups. A request for a group that was not loaded yet is refused, and
the log is read meanwhile (``loading``); a small one is read before the server listens. Stop: the opposite way, and
nothing that was decided is left unanswered.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
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
from ..disk.file_work import FileThread, FileWork, OnCaller
from ..engine.system import System
from ..kafka.connection import Connection
from ..kafka.idle import IdleConnectionCloser
from ..kafka.interceptor import Interceptor
from ..kafka.response_queue import ResponseQueue
from ..kafka.services import Origin
from ..loading.loader import AT_ONCE_BYTES, load_at_once, load_beside, make_jobs
from ..loading.pieces import Job, Report
from ..loading.sink import Arrival
from ..log.folder import DataFolder, random_cluster_id
from ..log.journal import random_salt
from ..log.offsets_log import OffsetsLog
from ..settings.dynamic import DynamicSettings
from ..settings.table import LISTEN_BACKLOG
from ..topics.catalogue import TopicCatalogue
from .connection_limit import Places, connections_max
from .environment import Environment, LocalChannel
from .expiry_log import log_expiry

if TYPE_CHECKING:
    from ..engine.reply import Reply
    from ..settings.table import Options, Settings
    from .cleaner import Cleaner

log = get_logger("callboard.runtime")

NODE_ID = 1
TOPICS_SYNC_INTERVAL_S = 1.0  # end offsets of topics survive a crash of the process at once, a power cut after this
CROWD_A_TURN = 64  # requests that come in crowds: half a millisecond's
STOP_TIMEOUT_S = 5.0  # to answer and sync what was decided; then the connections are closed all the same


class Node:
    """One coordinator. ``start``, then ``stop`` or ``halt``, once each, on the loop that it lives on.

    It serves Kafka's clients by a socket, and whoever is in this process by ``ask``. ``interceptor``:
    for tests, may observe and change requests and answers.
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
        self.connections: set[Connection] = set()
        self.places: Places
        self._idle_closer = IdleConnectionCloser(self.connections, settings.connections_max_idle_ms, self.later)
        self._cleaner: Cleaner | None = None
        self._unsent: list[Connection] = []
        self._untaken: deque[Connection] = deque()
        self.backlog = ResponseQueue(self._soon)
        self._takes_requests = True
        self._asked: set[Reply] = set()  # in this process, and not answered yet
        self.channels: dict[LocalChannel, None] = {}  # of members in this process: they are closed at the end
        self._loop: asyncio.AbstractEventLoop
        self.groups = Directory(self.settings)
        self.groups.on_swept = partial(log_expiry, self.configs)
        self.advertised_host = ""
        self.advertised_port = 0
        self.cluster_id = ""
        self.topics: TopicCatalogue
        self._files: FileWork = OnCaller()
        self._folder: DataFolder | None = None
        self.on_folder_lost: Callable[[], None] = lambda: None  # called on the loop; nothing is acknowledged any more
        self._log: OffsetsLog | None = None
        self.system: System
        self.transactions: ActorRef
        self.transaction_table: dict[str, Transaction]
        self._writer: ActorRef
        self._server: asyncio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._arrival: Arrival
        self._loading: asyncio.Task[None]

    async def start(self, listening_socket: socket.socket | None = None) -> None:
        """Recover, accept connections, load; a small log is loaded before. StartError where a person can mend it.

        Groups and transactional ids that are not loaded yet are refused, see ``wait_until_loaded``. Without a socket
        nobody can connect.
        """
        self._loop = asyncio.get_running_loop()
        self._advertise(listening_socket)
        try:
            offsets_log, folder = self._open_data()
            jobs = make_jobs(self.options.data, offsets_log, self.environment.disk)
            self._start_actors(offsets_log, folder)
            self._arrival = Arrival(self.groups, self.topics, offsets_log, self.clock)
            is_large = sum(job.log_bytes for job in jobs) > AT_ONCE_BYTES
            loads_beside = (self._has_others and is_large) or self.environment.load is not None
            if not loads_beside:
                load_at_once(jobs, self._arrival.take, self.environment.disk)
                await self._arrival.finish(self.transactions)
            self._write_files_beside()
            if listening_socket is not None:
                self._server = await self._loop.create_server(
                    lambda: Connection(self), sock=listening_socket, backlog=LISTEN_BACKLOG
                )
        except BaseException:
            self._give_up()
            raise
        self._idle_closer.start()
        self._loading = self._start_task(self._load_beside(jobs) if loads_beside else self._start_cleaner())
        self._start_task(self._keep_topics())

    def _give_up(self) -> None:
        """The start has failed, or somebody has cancelled it."""
        if hasattr(self, "system"):
            self.system.halt()
        self._files.halt()
        self._close_data()

    def _advertise(self, listening_socket: socket.socket | None) -> None:
        """Where clients are told to go."""
        if self.options.advertised:
            self.advertised_host, self.advertised_port = self.options.advertised
        elif listening_socket is not None:
            host, self.advertised_port = listening_socket.getsockname()[:2]
            self.advertised_host = self.options.listen_host or host

    async def stop(self) -> None:
        """Take nothing new, answer what was decided, sync, close."""
        await self._take_nothing_new()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._settle()
        except (TimeoutError, pykka.ActorDeadError) as error:
            log.error("not everything could be written in time", timeout_s=STOP_TIMEOUT_S, reason=repr(error))
        self.backlog.deliver_all()
        self._send_all()
        for connection in list(self.connections):
            connection.close()
        self._cancel_tasks()
        if self._cleaner is not None:
            await self._cleaner.stop()
        self.system.stop_all(block=False)
        self._files.close()
        await self._beside(self._close_data)
        self._disappoint()

    async def _take_nothing_new(self) -> None:
        self._takes_requests = False
        if self._server is not None:
            self._server.close()
        self._loading.cancel()
        await asyncio.wait({self._loading})  # what has failed there was told, and is no reason not to stop
        for connection in self.connections:
            connection.stop_reading()

    def _cancel_tasks(self) -> None:
        self._idle_closer.stop()
        for task in self._tasks:
            task.cancel()

    def halt(self) -> None:
        """End as a process does that is killed: nobody is answered, nothing is tidied, the disk stays as it is.

        Another node on the same disk, or on what ``FaultyDisk.kill`` or ``crash`` left of it, is the next process.
        """
        self._takes_requests = False
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.abort()
        self.backlog.drop()
        self._cancel_tasks()
        if self._cleaner is not None:
            self._cleaner.halt()
        with ExitStack() as ending:  # last first; all of them, whatever goes wrong with one
            ending.callback(self._disappoint)
            ending.callback(self.system.halt)
            if self._folder is not None:
                ending.callback(self._folder.close)
            ending.callback(self.topics.halt)
            ending.callback(self._files.halt)
            if self._log is not None:
                ending.callback(self._log.halt)

    def own_files(self) -> list[int]:
        """Descriptors of what no other process may hold: the listener, the connections, the locks of the folder."""
        sockets = [] if self._server is None else [listener.fileno() for listener in self._server.sockets]
        sockets += [connection.fileno() for connection in self.connections]
        lock = self._folder.lock if self._folder is not None and self.environment.disk.is_real else None
        return [fd for fd in (*sockets, *(lock.fds if lock is not None else ())) if fd >= 0]

    # In this process -------------------------------------------------------------------------------------------------

    def ask(self, message: GroupRequest, origin: Origin) -> Reply:
        """Ask a group as a client does, without a socket. The answer comes when it would leave for a client.

        It is waited for as long as it takes. pykka.ActorDeadError when the node has stopped before it answered.
        """
        reply = self.system.dispatcher.new_reply()
        reply.timeout_s = float("inf")
        if not self._takes_requests:
            reply.set_exception(_stopped())
        elif self.interceptor is None:
            self.post(message, reply)
        else:
            self.interceptor.ask(self, message, origin, reply)
        if not reply.done():
            self._asked.add(reply)
            reply.on_done(self._asked.discard)
        return reply

    def _disappoint(self) -> None:
        """Nobody will answer any more what was asked in this process."""
        for channel in tuple(self.channels):
            channel.close()
        for reply in tuple(self._asked):
            reply.set_exception(_stopped())

    def post(self, message: GroupRequest, reply_to: ReplyTo) -> None:
        """Send a request to where it belongs."""
        if isinstance(message, TxnOffsetCommit):
            self.transactions.post(message, reply_to)
        else:
            self.groups.post(message, reply_to)

    @property
    def is_writing(self) -> bool:
        """Whether something is on its way to the log. To be asked on the loop, between two turns of actors."""
        writer: OffsetWriterActor | None = self._writer.actor_inbox.actor
        return writer is not None and not writer.is_idle

    async def drain(self) -> None:
        """Until nothing is on its way to the log any more."""
        await self._writer.ask(Drain(), block=False)

    @property
    def offsets_log(self) -> OffsetsLog | None:
        """The log, as soon as it is there."""
        return self._log

    @property
    def compactions(self) -> int:
        """How often this server has begun to compact its log."""
        return 0 if self._cleaner is None else self._cleaner.runs

    @property
    def log_failure(self) -> str:
        """Why commits were refused, or kept in the journal alone, since the disk failed; empty when it did not."""
        if self._log is None:
            return ""
        stats = self._log.stats()
        loading = self._arrival.failure if hasattr(self, "_arrival") else ""
        return "; ".join(filter(None, (loading, stats.failure, *stats.failures.values())))

    async def _settle(self) -> None:
        """See every request that came in to its end: decided, durable, answered.

        Each step asks behind all that is in a mailbox already: transactions and coordinator hand on what they have, the
        groups decide and give up what is parked, the writer drains, and groups and transactions answer what has become
        durable.
        """
        await self.transactions.ask(Shutdown(), block=False)
        await self.groups.coordinator.ask(Shutdown(), block=False)
        await self._shut_groups()
        await self.drain()
        await self._shut_groups()
        await self.transactions.ask(Shutdown(), block=False)
        await self._files.wait_until_idle()

    async def _shut_groups(self) -> None:
        replies = [ref.ask(Shutdown(), block=False) for ref in self.groups.groups.values()]
        for reply in replies:
            with suppress(pykka.ActorDeadError):
                await reply

    def later(self, delay_ms: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call back on the loop in so many milliseconds, unless the handle is cancelled."""
        return self._loop.call_later(delay_ms / 1000, callback)

    def _soon(self, callback: Callable[[], None]) -> object:
        return self._loop.call_soon(callback)

    def schedule_request(self, connection: Connection) -> None:
        """Let a connection handle its next request in one of the next turns of the loop."""
        self._untaken.append(connection)
        if len(self._untaken) == 1:
            self._soon(self._take_some)

    def _take_some(self) -> None:
        self._send([self._untaken.popleft() for _ in range(min(CROWD_A_TURN, len(self._untaken)))])
        if self._untaken:
            self._soon(self._take_some)

    def schedule_responses(self, connection: Connection) -> None:
        """Send a connection's answers when this turn of the loop is over."""
        self._unsent.append(connection)
        if len(self._unsent) == 1:
            self._loop.call_soon(self._send_all)

    def _send_all(self) -> None:
        unsent, self._unsent = self._unsent, []
        self._send(unsent)

    def _send(self, connections: Sequence[Connection]) -> None:
        for connection in connections:
            try:
                connection.send_responses()
            except Exception:  # the others behind it must not pay for it
                log.exception("a connection could not be answered")
                connection.close()

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
        self._count_places(folder.offsets_partitions + folder.transactions_partitions)
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
            on_lost=self._tell_folder_lost,
        )
        own = folder.offsets_partitions, folder.transactions_partitions
        self.topics = TopicCatalogue(path, settings, self.random, own, environment.disk)  # before there is a journal
        self._log.open()
        for name, partitions in self.options.topics:
            self.topics.ensure(name, partitions)
        return self._log, folder

    def _tell_folder_lost(self) -> None:
        """In the log's thread."""
        with suppress(RuntimeError):  # the loop has ended, and the node with it
            self._loop.call_soon_threadsafe(self.on_folder_lost)

    def _count_places(self, partitions: int) -> None:
        """The log's files take descriptors from the connections; those in memory take none."""
        has_http = self.options.metrics is not None
        most = connections_max(partitions, has_http=has_http) if self.environment.disk.is_real else sys.maxsize
        self.places = Places(most, self.clock.monotonic_ms)

    def _close_data(self) -> None:
        with ExitStack() as closing:  # all of them, whatever goes wrong with one
            if self._folder is not None:
                closing.callback(self._folder.close)
            if self._log is not None:
                closing.callback(self._log.close)
            if hasattr(self, "topics"):
                closing.callback(self.topics.close if self._may_write_folder() else self.topics.halt)

    async def _keep_topics(self) -> None:
        while True:
            await asyncio.sleep(TOPICS_SYNC_INTERVAL_S)
            if self._may_write_folder():
                self.topics.keep_files()

    def _may_write_folder(self) -> bool:
        """Not when the data folder was moved or deleted, or another server may be in it."""
        return self._log is None or self._log.may_write_folder()

    def _write_files_beside(self) -> None:
        """From now on the loop waits for no disk, if there may be threads."""
        if self.environment.has_children:
            self._files = FileThread(self._loop)
        self.topics.run_on(self._files)
        self.configs.run_on(self._files)

    async def _beside(self, call: Callable[[], object]) -> None:
        """Do what blocks, in another thread if there may be one."""
        if self.environment.has_children:
            await asyncio.to_thread(call)
        else:
            call()

    @property
    def _has_others(self) -> bool:
        """Whether there may be other processes, and they find the files."""
        return self.environment.has_children and self.environment.disk.is_real

    async def _start_cleaner(self) -> None:
        """When everything is loaded, and so known to lie where it belongs."""
        if self._has_others and self.settings.log_cleaner_enable:
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
        self.groups.unserved.loading.update(offsets_log.partitions_with_data())
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
        """Whether some of the log was not read yet."""
        return not self._arrival.is_over

    async def wait_until_loaded(self) -> Arrival:
        """Until everything is served that can be; what it took."""
        await asyncio.wait({self._loading})
        return self._arrival

    async def _load_beside(self, jobs: list[Job]) -> None:
        try:
            await (self.environment.load or load_beside)(jobs, self._arrival.take)
        except Exception as error:
            if self._arrival.failure:
                return
            log.exception("the log could not be loaded")
            for partition in tuple(self.groups.unserved.loading):
                self._arrival.take(Job(partition, str(self.options.data), False, 0), Report(failure=repr(error)))
            self._arrival.take(Job(-1, str(self.options.data), True, 0), Report(failure=repr(error)))
        try:
            await self._arrival.finish(self.transactions)
        except Exception:
            log.exception("what was loaded could not be taken up")
        await self._start_cleaner()


def _stopped() -> tuple[type[BaseException], BaseException, None]:
    """As ``sys.exc_info()`` gives it: what is heard by who asks a node that does not answer any more."""
    return pykka.ActorDeadError, pykka.ActorDeadError("the coordinator has stopped"), None
