"""NodeData: the open files of a node. They are opened in order, and closed in reverse order."""

from __future__ import annotations

import sys
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING
from uuid import UUID

from ..disk.file_work import FileThread, FileWork, InlineFileWork
from ..loading.local_store import LocalStore
from ..log.folder import DataFolder, random_cluster_id
from ..log.journal import random_salt
from ..log.store import LogStore, Ownership, OwnsAll
from ..security.document import SECRET_BYTES
from ..security.store import SecurityStore
from ..settings.dynamic import DynamicSettings
from ..topics.catalogue import TopicCatalogue
from .connection_limit import connections_max
from .environment import Environment

if TYPE_CHECKING:
    from ..settings.table import Options


class NodeData:
    """The data folder of a node with the files in it.

    ``files`` runs blocking work on the files of topics, settings and users. ``connections_max``: how many connections
    leave enough file descriptors for the log.
    """

    def __init__(
        self,
        folder: DataFolder,
        configs: DynamicSettings,
        security: SecurityStore,
        topics: TopicCatalogue,
        log: LogStore,
        ownership: Ownership,
        files: FileWork,
        connections_max: int,
    ) -> None:
        self.folder = folder
        self.configs = configs
        self.security = security
        self.topics = topics
        self.log = log
        self.ownership = ownership
        self.files = files
        self.connections_max = connections_max

    def use_file_thread(self) -> None:
        """Write the small files with ``files`` from now on. Before, the caller's thread does it."""
        self.topics.files.run_on(self.files)
        self.configs.run_on(self.files)
        self.security.run_on(self.files)

    def check_topics(self) -> None:
        """Sync the end offsets of topics. Call it regularly; does not block."""
        if self.log.may_write_folder():
            self.topics.files.check()

    def close(self) -> None:
        """Make everything durable and close it. All parts are closed even if one raises. Blocks."""
        with ExitStack() as callbacks:
            callbacks.callback(self.folder.close)
            callbacks.callback(self.log.close)
            callbacks.callback(close_topics, self.topics, self.log)

    def halt(self) -> None:
        """Close everything as at the death of the process: write nothing."""
        with ExitStack() as callbacks:
            callbacks.callback(self.folder.close)
            callbacks.callback(self.topics.files.halt)
            callbacks.callback(self.files.halt)
            callbacks.callback(self.log.halt)


def lock_fds(folder: DataFolder) -> Iterable[int]:
    return () if folder.lock is None else folder.lock.fds


def close_topics(topics: TopicCatalogue, log: LogStore) -> None:
    """Write nothing if the data folder was moved or deleted, or another server may use it."""
    if log.may_write_folder():
        topics.files.close()
    else:
        topics.files.halt()


def open_data(
    options: Options,
    configs: DynamicSettings,
    environment: Environment,
    loop: AbstractEventLoop,
    on_lost: Callable[[], None],
    on_locked: Callable[[DataFolder], None],
) -> NodeData:
    """Open the folder and recover its files. Raises StartError for a problem that the user can fix.

    ``on_lost`` is called on the loop when the folder was moved, or another process has locked it. ``on_locked`` is
    called as soon as the folder is locked. After an error everything is closed again.
    """

    def report_lost() -> None:
        """Called in the log's thread."""
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(on_lost)

    with ExitStack() as on_error:
        folder = _open_folder(options, configs, environment)
        on_error.callback(folder.close)
        on_locked(folder)
        limit = _connections_max(options, folder, environment)
        configs.load(options.data, environment.disk, ignore=options.ignore_saved_settings)
        security = _load_security(options, environment)
        log, ownership = _make_store(options, configs, environment, folder, loop, report_lost)
        on_error.callback(log.close)
        counts = folder.offsets_partitions, folder.transactions_partitions
        topics = TopicCatalogue(options.data, configs.settings, environment.random, counts, environment.disk)
        on_error.callback(close_topics, topics, log)
        if environment.cluster is not None:
            topics.producer_ids = environment.cluster.producer_ids
        log.open()  # after the topics, because it writes the journal
        if environment.cluster is None:
            topics.ensure(options.topics)
        files = FileThread(loop) if environment.allows_workers else InlineFileWork()
        on_error.pop_all()
    return NodeData(folder, configs, security, topics, log, ownership, files, limit)


def _open_folder(options: Options, configs: DynamicSettings, environment: Environment) -> DataFolder:
    settings = configs.settings
    return DataFolder(
        options.data,
        settings.offsets_topic_num_partitions,
        settings.transaction_state_log_num_partitions,
        disk=environment.disk,
        new_cluster_id=lambda: random_cluster_id(lambda: UUID(environment.random.uuid())),
        has_log=environment.cluster is None,
    )


def _load_security(options: Options, environment: Environment) -> SecurityStore:
    def new_secret() -> bytes:
        return b"".join(UUID(environment.random.uuid()).bytes for _ in range(SECRET_BYTES // 16))

    security = SecurityStore(options.data, environment.disk, new_secret)
    security.load()
    return security


def _connections_max(options: Options, folder: DataFolder, environment: Environment) -> int:
    """Reserve descriptors for the files of the log. A log in memory needs none."""
    if not environment.disk.is_real:
        return sys.maxsize
    partitions = folder.offsets_partitions + folder.transactions_partitions
    return connections_max(partitions, has_http=options.http.metrics is not None, has_web=options.http.web is not None)


def _make_store(
    options: Options,
    configs: DynamicSettings,
    environment: Environment,
    folder: DataFolder,
    loop: AbstractEventLoop,
    on_lost: Callable[[], None],
) -> tuple[LogStore, Ownership]:
    if environment.cluster is not None:
        return environment.cluster.log, environment.cluster.ownership
    if environment.store is not None:
        return environment.store(folder)
    settings = configs.settings
    store = LocalStore(
        options.data,
        folder.offsets_partitions,
        transactions_partitions=folder.transactions_partitions,
        sync=options.sync,
        segment_bytes=settings.offsets_topic_segment_bytes,
        segment_ms=settings.log_roll_ms,
        max_message_bytes=settings.message_max_bytes,
        flush_interval_ms=settings.log_flush_interval_ms,
        checkpoint_bytes=environment.checkpoints.journal_bytes,
        checkpoint_interval_ms=environment.checkpoints.interval_ms,
        disk=environment.disk,
        clock=environment.work_clocks.log_s,
        threads=environment.log_threads(loop),
        new_salt=lambda: random_salt(lambda: UUID(environment.random.uuid())),
        lock=folder.lock if environment.disk.is_real else None,
        on_lost=on_lost,
        in_background=environment.load,
        allows_workers=environment.allows_workers,
    )
    return store, OwnsAll(store.counts)
