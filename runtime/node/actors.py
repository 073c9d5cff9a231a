"""NodeActors: the actors of a node that live as long as it does, and the routing of requests to them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pykka

from ...actors.base import ActorRef, Echo
from ...actors.consumer_group.environment import ConsumerGroupPorts
from ...actors.coordinator.actor import CoordinatorActor
from ...actors.coordinator.directory import Directory
from ...actors.engine_ports import ReplyTo
from ...actors.messages import Drain, GroupRequest, Shutdown, TxnOffsetCommit
from ...actors.ports import InlineWork
from ...actors.transactions.actor import TransactionsActor
from ...actors.transactions.environment import TransactionEnvironment
from ...actors.transactions.peers import Peers
from ...actors.transactions.table import TransactionTable
from ...actors.writer import OffsetWriterActor
from ..engine.alarm import WhenRead
from ..engine.system import System
from ..topics.view import CatalogueView
from .background import BackgroundThread
from .data import NodeData
from .environment import Environment
from .server_assignors import make_server_assignors
from .topic_regexes import TopicRegexes

if TYPE_CHECKING:
    from ..disk.file_work import FileWork


class NodeActors(NamedTuple):
    """``groups`` routes requests to groups. ``transaction_table`` is read-only: TransactionsActor changes it.

    ``peers``: the other nodes of a cluster.
    """

    system: System
    writer: ActorRef
    groups: Directory
    transactions: ActorRef
    transaction_table: TransactionTable
    peers: Peers | None

    def post(self, message: GroupRequest, reply_to: ReplyTo) -> None:
        """Send a request to its group, or by way of the transactions actor."""
        if isinstance(message, TxnOffsetCommit):
            self.transactions.post(message, reply_to)
        else:
            self.groups.post(message, reply_to)

    @property
    def is_writing(self) -> bool:
        """Whether records are on their way to the log. Read it on the loop, between turns of actors."""
        writer = self.writer.actor_inbox.actor
        return isinstance(writer, OffsetWriterActor) and not writer.is_idle

    @property
    def waiting_bytes(self) -> int:
        """About the bytes of requests whose records are not durable yet. Read it like ``is_writing``."""
        writer = self.writer.actor_inbox.actor
        return writer.measure_bytes() if isinstance(writer, OffsetWriterActor) else 0

    async def drain(self) -> None:
        """Wait until all records that were sent to the log are durable."""
        await self.writer.ask(Drain(), block=False)

    async def finish_requests(self, files: FileWork) -> None:
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
        await files.wait_until_idle()

    async def _shut_down_groups(self) -> None:
        replies = [ref.ask(Shutdown(), block=False) for ref in self.groups.groups.values()]
        for reply in replies:
            with suppress(pykka.ActorDeadError):
                await reply


def start_actors(
    system: System, groups: Directory, data: NodeData, environment: Environment, when_read: WhenRead
) -> NodeActors:
    """Start the actors. No partition is served until it is loaded.

    ``when_read``: calls back once all sockets that are readable now have been read.
    """
    settings, clock = data.configs.settings, environment.clock
    timer = system.start_timer(lambda callback: when_read(partial(_after_requests, groups, callback)))
    writer = system.spawn(OffsetWriterActor, data.log, clock, data.ownership.refused)
    topics = CatalogueView(data.topics)
    system.spawn(
        *(CoordinatorActor, groups, clock, environment.random, settings, timer, writer, topics),
        _consumer_group_ports(data, environment),
    )
    peers = None if environment.cluster is None else environment.cluster.peers
    transaction_environment = TransactionEnvironment(settings, clock, timer, writer, groups, data.topics, peers)
    table = TransactionTable(data.folder.transactions_partitions)
    transactions = system.spawn(TransactionsActor, transaction_environment, table)
    return NodeActors(system, writer, groups, transactions, table, peers)


def _consumer_group_ports(data: NodeData, environment: Environment) -> ConsumerGroupPorts:
    """Raises StartError for an assignor that is not known or cannot be used."""
    named = data.configs.settings.group_consumer_assignors
    return ConsumerGroupPorts(
        make_server_assignors(environment.assignors, named, in_background=environment.allows_workers),
        configs=data.configs.groups.effective,
        regexes=TopicRegexes(),
        background=BackgroundThread() if environment.allows_workers else InlineWork(),
    )


def _after_requests(groups: Directory, callback: Callable[[], None]) -> None:
    """Call back once all requests that have been read are in the mailboxes of their groups. See ``Directory.post``."""
    if groups.coordinator.actor_inbox.queue:
        groups.coordinator.ask(Echo(), block=False).on_done(lambda _reply: callback())
    else:
        callback()
