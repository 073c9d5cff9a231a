"""NodeServices: what the API handlers of a node use. Implements ``kafka.services.Services``."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ...actors.base import ActorRef
from ...actors.coordinator.directory import Directory
from ...actors.engine_ports import Clock
from ...actors.transactions.peers import Peers
from ...actors.transactions.table import TransactionTable
from ..kafka.api import Routes
from ..kafka.authorization.authorizer import Authorizer
from ..kafka.cluster_view import ClusterView
from ..kafka.connections.client_buffers import ClientBuffers
from ..kafka.connections.over_limit import OverLimitReports
from ..kafka.connections.used_member_ids import UsedMemberIds
from ..kafka.interceptor import Interceptor
from ..kafka.peer_gate import PeerGate
from ..kafka.quotas.client_quotas import ClientQuotas
from ..kafka.response_queue import ResponseQueue
from ..kafka.shared_steps import SharedSteps
from ..kafka.slices import Slices
from ..loading.sink import LoadSink
from ..security.acl_store import AclStore
from ..security.audit import Audit
from ..security.store import SecurityStore
from ..settings.admin import SettingsAdmin
from ..settings.dynamic import DynamicSettings
from ..topics.admin import TopicAdmin
from ..topics.catalogue import TopicCatalogue
from ..topics.producer_ids import ProducerIdAllocator
from .actors import NodeActors
from .reset_records import ResetRecords
from .sasl import SaslListeners

if TYPE_CHECKING:
    from ..settings.table import Options, Settings


class ServiceAdmins(NamedTuple):
    """What clients may change, besides groups, and what they may read of changes that were made: resets."""

    settings: SettingsAdmin
    topics: TopicAdmin
    security: SecurityStore
    resets: Callable[[], ResetRecords]


@dataclass(slots=True)
class NodeServices:
    """See ``Services``. Only ``interceptor`` changes, in tests."""

    cluster: ClusterView
    buffers: ClientBuffers
    clock: Clock
    settings: Settings
    options: Options
    admins: ServiceAdmins
    groups: Directory
    actors: NodeActors
    topics: TopicCatalogue
    load_sink: LoadSink
    response_queue: ResponseQueue
    slices: Slices
    routes: Routes
    sasl: SaslListeners
    interceptor: Interceptor | None

    @property
    def settings_admin(self) -> SettingsAdmin:
        return self.admins.settings

    @property
    def topic_admin(self) -> TopicAdmin:
        return self.admins.topics

    @property
    def security(self) -> SecurityStore:
        return self.admins.security

    @property
    def reset_records(self) -> Callable[[], ResetRecords]:
        return self.admins.resets

    @property
    def transactions(self) -> ActorRef:
        return self.actors.transactions

    @property
    def peers(self) -> Peers | None:
        return self.actors.peers

    @property
    def transaction_table(self) -> TransactionTable:
        return self.actors.transaction_table

    @property
    def over_limit(self) -> OverLimitReports:
        return self.buffers.over_limit

    @property
    def used_member_ids(self) -> UsedMemberIds:
        return self.buffers.used_member_ids

    @property
    def shared_steps(self) -> SharedSteps:
        return self.slices.shared

    @property
    def authorizer(self) -> Authorizer:
        return self.routes.authorizer

    @property
    def denials(self) -> Counter[str]:
        return self.routes.denials

    @property
    def quotas(self) -> ClientQuotas:
        return self.routes.quotas

    @property
    def audit(self) -> Audit:
        return self.routes.audit

    @property
    def acls(self) -> AclStore | None:
        return self.authorizer.acls

    @property
    def peer_gate(self) -> PeerGate | None:
        return self.routes.peer_gate

    @property
    def configs(self) -> DynamicSettings:
        return self.settings_admin.configs

    @property
    def producer_ids(self) -> ProducerIdAllocator:
        return self.topics.producer_ids

    @property
    def is_loading(self) -> bool:
        return not self.load_sink.is_finished

    def later(self, delay_ms: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call ``callback`` on the loop after ``delay_ms``, unless the handle is cancelled."""
        return asyncio.get_running_loop().call_later(delay_ms / 1000, callback)
