"""NodeServices: what the API handlers of a node use. Implements ``kafka.services.Services``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...actors.base import ActorRef
from ...actors.coordinator.directory import Directory
from ...actors.engine_ports import Clock
from ...actors.transactions.table import TransactionTable
from ..kafka.interceptor import Interceptor
from ..kafka.response_queue import ResponseQueue
from ..loading.sink import LoadSink
from ..settings.admin import SettingsAdmin
from ..settings.dynamic import DynamicSettings
from ..topics.admin import TopicAdmin
from ..topics.catalogue import TopicCatalogue
from ..topics.producer_ids import ProducerIds

if TYPE_CHECKING:
    from ..settings.table import Options, Settings

NODE_ID = 1


@dataclass(slots=True)
class NodeServices:
    """See ``Services``. Only ``interceptor`` changes, in tests."""

    cluster_id: str
    advertised_host: str
    advertised_port: int
    clock: Clock
    settings: Settings
    options: Options
    configs: DynamicSettings
    settings_admin: SettingsAdmin
    groups: Directory
    transactions: ActorRef
    transaction_table: TransactionTable
    topics: TopicCatalogue
    topic_admin: TopicAdmin
    load_sink: LoadSink
    response_queue: ResponseQueue
    loop: asyncio.AbstractEventLoop
    interceptor: Interceptor | None

    @property
    def node_id(self) -> int:
        return NODE_ID

    @property
    def producer_ids(self) -> ProducerIds:
        return self.topics.producer_ids

    @property
    def is_loading(self) -> bool:
        return not self.load_sink.is_finished

    def later(self, delay_ms: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call ``callback`` on the loop after ``delay_ms``, unless the handle is cancelled."""
        return self.loop.call_later(delay_ms / 1000, callback)
