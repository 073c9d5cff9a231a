"""Ports: protocols of the services that API handlers use. ``Node`` implements them; this package does not import it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from ...actors.coordinator.partitions import GroupPartitions
from ...actors.engine_ports import Clock, ReplyTo
from ...actors.group.event_log import EventLog
from ...actors.messages import GroupChanged, GroupRequest, ListedGroup, TxnOffsetCommit
from ...actors.transactions.messages import TransactionRequest
from ...actors.transactions.peers import Peers
from ...actors.transactions.table import TransactionTable
from ..engine.reply import Reply
from ..security.acl_store import AclStore
from ..security.audit import Audit
from ..security.store import SecurityStore
from ..settings.admin import SettingsAdmin
from ..settings.dynamic import SettingValues, Synonym
from ..settings.group_configs import GroupConfigs
from ..settings.listener_limits import ListenerLimits
from ..settings.rows import Setting
from ..settings.table import Options, Settings
from ..topics.admin import TopicAdmin
from ..topics.topic import Topic
from .authentication.principal import IN_PROCESS, Principal
from .authorization.authorizer import Authorizer
from .cluster_view import ClusterView
from .connections.client_buffers import ClientBuffers
from .connections.over_limit import OverLimitReports
from .connections.used_member_ids import UsedMemberIds
from .node_subjects import ReadResets, ResetsRead
from .peer_gate import PeerGate
from .quotas.client_quotas import ClientQuotas
from .response_queue import ResponseQueue
from .shared_steps import SharedSteps
from .slices import Slices


class Origin(NamedTuple):
    """The sender of a request in this process. ``client_host`` as Kafka writes it, "/127.0.0.1".

    ``id`` distinguishes channels.
    """

    client_id: str
    client_host: str
    id: int
    principal: Principal = IN_PROCESS


class MessageRouter(Protocol):
    """Sends a request to the actor of its group, or to the TransactionsActor."""

    def post(self, message: GroupRequest, reply_to: ReplyTo) -> None: ...


class ListedGroups(Protocol):
    """All groups, for ListGroups."""

    def pieces(self, states: Set[str], types: Set[str]) -> Iterator[Sequence[ListedGroup]]:
        """The groups in small pieces. Filters are lower case; an empty one matches all groups."""


class GroupRouter(MessageRouter, Protocol):
    """The groups: sends a request to the actor of its group.

    ``event_log`` has the flight recorder, ``listed`` the entries of groups with an actor, ``partitions`` all groups.
    """

    event_log: EventLog
    listed: dict[str, GroupChanged]
    partitions: GroupPartitions

    def answer_at_once(self, message: GroupRequest) -> Any:
        """The reply of an idle group; NOT_HANDLED if the message has to be sent by ``post``."""

    def list_groups(self) -> Reply:
        """Ask for all groups. The value of the reply: a ``ListedGroups``, or an ErrorCode."""


class TransactionRouter(Protocol):
    """Sends a request to the TransactionsActor."""

    def post(self, message: TransactionRequest | TxnOffsetCommit, reply_to: ReplyTo) -> None: ...


class TopicReader(Protocol):
    """The topics, with the coordinator's own. ``TopicAdmin`` changes them."""

    def names(self) -> list[str]: ...

    def get(self, name: str) -> Topic | None: ...

    def by_id(self, topic_id: UUID | None) -> Topic | None:
        """Return the topic with that id. None, which is how kio decodes the zero id, is the id of no topic."""


class ProducerIdSource(Protocol):
    """Ids of new producers."""

    def allocate(self) -> int:
        """Allocate an unused id. Raises CoordinatorError if none is available now."""

    def call_when_available(self, callback: Callable[[], None]) -> None:
        """Call at once if an id is available, else when the next block has been written or has failed."""


class SettingsReader(Protocol):
    """The settings with the sources of their values, and those of groups. ``SettingsAdmin`` changes them."""

    @property
    def broker(self) -> SettingValues:
        """The settings that were changed for this broker."""

    @property
    def all_brokers(self) -> SettingValues:
        """The settings that were changed for all brokers."""

    @property
    def groups(self) -> GroupConfigs:
        """The settings of single groups."""

    @property
    def listener_limits(self) -> ListenerLimits:
        """The limits of single listeners."""

    def synonyms(self, setting: Setting) -> list[Synonym]:
        """Return all values of a setting, the one in effect first."""


class ResetReader(Protocol):
    """The records of resets in the data folder."""

    def read(self, message: ReadResets, done: Callable[[ResetsRead | OSError], None]) -> None:
        """Read them in another thread, and call back on the event loop."""


class Services(Protocol):
    """The services of one broker for its API handlers."""

    @property
    def cluster(self) -> ClusterView: ...

    @property
    def authorizer(self) -> Authorizer:
        """Only ``authorize.py`` and ``quiet_check.py`` ask it."""

    @property
    def audit(self) -> Audit:
        """The audit trail."""

    @property
    def acls(self) -> AclStore | None:
        """The ACLs that the authorizer decides by; None if it has none."""

    @property
    def buffers(self) -> ClientBuffers: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def settings(self) -> Settings:
        """The effective settings; they change with ``settings_admin``."""

    @property
    def options(self) -> Options:
        """Command-line options that are not settings."""

    @property
    def security(self) -> SecurityStore:
        """Users, ACLs and quotas."""

    @property
    def configs(self) -> SettingsReader: ...

    @property
    def settings_admin(self) -> SettingsAdmin: ...

    @property
    def groups(self) -> GroupRouter: ...

    @property
    def transactions(self) -> TransactionRouter: ...

    @property
    def transaction_table(self) -> TransactionTable:
        """The transactions by transactional id, read-only: only the TransactionsActor changes them."""

    @property
    def topics(self) -> TopicReader: ...

    @property
    def topic_admin(self) -> TopicAdmin: ...

    @property
    def peers(self) -> Peers | None:
        """The other nodes, for transactions; None without a cluster."""

    @property
    def peer_gate(self) -> PeerGate | None:
        """Admits requests of other nodes; None without a cluster."""

    @property
    def producer_ids(self) -> ProducerIdSource: ...

    @property
    def quotas(self) -> ClientQuotas: ...

    @property
    def reset_records(self) -> Callable[[], ResetReader]: ...

    @property
    def is_loading(self) -> bool:
        """Whether part of the log is not loaded yet."""

    @property
    def response_queue(self) -> ResponseQueue:
        """Sends the responses to all members of a group, a few in each iteration of the event loop."""

    @property
    def slices(self) -> Slices:
        """Runs long work in slices, between the requests of other clients."""

    @property
    def shared_steps(self) -> SharedSteps:
        """Long work whose result several requests share."""

    @property
    def used_member_ids(self) -> UsedMemberIds:
        """Which members of groups the open connections were."""

    @property
    def denials(self) -> Counter[str]:
        """Resources that were denied, by operation."""

    @property
    def over_limit(self) -> OverLimitReports:
        """Names and counts the clients that are over a limit."""

    def later(self, delay_ms: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call back on the event loop after ``delay_ms``, unless the handle is cancelled."""
