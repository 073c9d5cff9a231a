"""What Kafka's wire needs of the server behind it. ``Node`` is the server; nothing here depends on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from ...actors.base import ActorRef
from ...actors.coordinator.actor import Directory
from ...actors.engine_ports import Clock, ReplyTo
from ...actors.messages import GroupRequest
from ...actors.transactions.rules import Transaction
from ..settings.dynamic import DynamicSettings
from ..settings.table import Options, Settings
from ..topics.catalogue import TopicCatalogue
from .response_queue import Backlog


class Origin(NamedTuple):
    """The sender of a request in this process. ``client_host`` as Kafka writes it, "/127.0.0.1".

    ``id`` tells channels apart.
    """

    client_id: str
    client_host: str
    id: int


class GroupRouter(Protocol):
    """Whatever sends a request to the actor that handles it."""

    def post(self, message: GroupRequest, reply_to: ReplyTo) -> None: ...


class Services(Protocol):
    """One broker, as the handlers of its APIs see it."""

    @property
    def node_id(self) -> int: ...

    @property
    def cluster_id(self) -> str: ...

    @property
    def advertised_host(self) -> str:
        """Where clients are told to connect to, with ``advertised_port``."""

    @property
    def advertised_port(self) -> int: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def settings(self) -> Settings:
        """The effective settings; they change with ``configs``."""

    @property
    def options(self) -> Options:
        """What the server was started with, besides the settings."""

    @property
    def configs(self) -> DynamicSettings: ...

    @property
    def groups(self) -> Directory: ...

    @property
    def transactions(self) -> ActorRef:
        """The TransactionsActor."""

    @property
    def transaction_table(self) -> Mapping[str, Transaction]:
        """The transactions by transactional id, to read; only the TransactionsActor changes them."""

    @property
    def topics(self) -> TopicCatalogue: ...

    @property
    def is_loading(self) -> bool:
        """Whether part of the log was not read yet."""

    @property
    def response_queue(self) -> Backlog:
        """Takes the answers of a whole group, and delivers a few in each turn of the loop."""

    def later(self, delay_ms: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call back on the loop in so many milliseconds, unless the handle is cancelled."""
