"""NodeActors: the actors of a node that live as long as it does, and the routing of requests to them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import pykka

from ...actors.base import ActorRef
from ...actors.coordinator.actor import CoordinatorActor, Directory
from ...actors.engine_ports import ReplyTo
from ...actors.messages import Drain, GroupRequest, Shutdown, TxnOffsetCommit
from ...actors.transactions.actor import TransactionEnvironment, TransactionsActor
from ...actors.transactions.rules import Transaction
from ...actors.writer import OffsetWriterActor
from ..engine.system import System
from .data import NodeData
from .environment import Environment

if TYPE_CHECKING:
    from ..disk.file_work import FileWork


class NodeActors(NamedTuple):
    """``groups`` routes requests to groups. ``transaction_table`` is read-only: TransactionsActor changes it."""

    system: System
    writer: ActorRef
    groups: Directory
    transactions: ActorRef
    transaction_table: dict[str, Transaction]

    def post(self, message: GroupRequest, reply_to: ReplyTo) -> None:
        """Send a request to its group, or by way of the transactions actor."""
        if isinstance(message, TxnOffsetCommit):
            self.transactions.post(message, reply_to)
        else:
            self.groups.post(message, reply_to)

    @property
    def is_writing(self) -> bool:
        """Whether records are on their way to the log. Read it on the loop, between turns of actors."""
        writer: OffsetWriterActor | None = self.writer.actor_inbox.actor
        return writer is not None and not writer.is_idle

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


def start_actors(system: System, groups: Directory, data: NodeData, environment: Environment) -> NodeActors:
    """Start the actors. ``groups`` is empty; partitions with data are not served until they are loaded."""
    settings, folder = data.configs.settings, data.folder
    timer = system.start_timer()
    writer = system.spawn(OffsetWriterActor, data.log, environment.clock)
    groups.availability.loading.update(data.log.offsets_partitions_with_data())
    arguments = environment.clock, environment.random, settings, timer, writer, folder.offsets_partitions
    system.spawn(CoordinatorActor, groups, *arguments, {})
    transaction_environment = TransactionEnvironment(
        settings,
        environment.clock,
        timer,
        writer,
        groups,
        data.topics,
        folder.offsets_partitions,
        folder.transactions_partitions,
    )
    table: dict[str, Transaction] = {}
    transactions = system.spawn(TransactionsActor, transaction_environment, table, {}, True)
    return NodeActors(system, writer, groups, transactions, table)
