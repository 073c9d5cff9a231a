"""Protocols of the services that API handlers use. ``Node`` implements them; this package does not import it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol

from ...actors.base import ActorRef
from ...actors.coordinator.directory import Directory
from ...actors.engine_ports import Clock, ReplyTo
from ...actors.messages import GroupRequest
from ...actors.transactions.table import TransactionTable
from ..settings.dynamic import DynamicSettings
from ..settings.table import Options, Settings
from ..topics.catalogue import TopicCatalogue
from .response_queue import ResponseQueue


class Origin(NamedTuple):
    """The sender of a request in this process. ``client_host`` as Kafka writes it, "/127.0.0.1".

    ``id`` distinguishes channels.
    """

    client_id: str
    client_host: str
    id: int


class GroupRouter(Protocol):
    """Sends a request to the actor that handles it."""

    def post(self, message: GroupRequest, reply_to: ReplyTo) -> None: ...


class Services(Protocol):
    """The services of one broker for its API handlers."""

    @property
    def node_id(self) -> int: ...

    @property
    def cluster_id(self) -> str: ...

    @property
    def advertised_host(self) -> str:
        """The host that Metadata and FindCoordinator return, with ``advertised_port``."""

    @property
    def advertised_port(self) -> int: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def settings(self) -> Settings:
        """The effective settings; they change with ``configs``."""

    @property
    def options(self) -> Options:
        """Command-line options that are not settings."""

    @property
    def configs(self) -> DynamicSettings: ...

    @property
    def groups(self) -> Directory: ...

    @property
    def transactions(self) -> ActorRef:
        """The TransactionsActor."""

    @property
    def transaction_table(self) -> TransactionTable:
        """The transactions by transactional id, read-only: only the TransactionsActor changes them."""

    @property
    def topics(self) -> TopicCatalogue: ...

    @property
    def is_loading(self) -> bool:
        """Whether part of the log is not loaded yet."""

    @property
    def response_queue(self) -> ResponseQueue:
        """Sends the responses to all members of a group, a few in each iteration of the event loop."""

    def later(self, delay_ms: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call back on the event loop after ``delay_ms``, unless the handle is cancelled."""
