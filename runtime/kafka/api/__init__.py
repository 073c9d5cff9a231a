"""The table of served APIs: key, versions and the module that handles each. ApiVersions answers with it.

The versions are those of Kafka 4.3, except the last one of ListTransactions, which filters names by RE2 patterns. A
module has a function ``handle(call)``, which also authorizes the request (see ``authorize``). If it takes long it
returns ``Steps``, which run in slices (see ``slices.py``). A module of very frequent requests may have a second one,
``handle_unchecked(call)``, which is called if the authorizer allows everything, and ``answer_at_once``, which is tried
before it. Modules and schemas are loaded with the first request of their API.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import NamedTuple

from ....actors.steps import Steps
from ...engine.clock import SystemClock
from ...security.audit import NO_AUDIT, Audit
from ...security.resources import Operation
from ..answer_deadlines import AnswerDeadlines
from ..audit.audited import unless_refused
from ..audit.audited_groups import audited
from ..authorization import checks
from ..authorization.authorizer import Authorizer
from ..authorization.checks import Check
from ..authorization.granted_at_once import at_once_if_granted
from ..call import Call
from ..codec.own_api import ASK_NODE, ASK_NODE_KEY
from ..codec.schemas import Schema, schema
from ..lease import AtOnce, at_once_with_lease, with_lease
from ..peer_gate import PeerGate
from ..quotas.client_quotas import ClientQuotas
from ..quotas.commit_rate import limited_commits
from ..request_counts import RequestCounts

ITEMS, CONFIG_ITEMS = "max_request_items", "max_request_config_items"

OPERATION_NAMES = tuple(
    operation.name for operation in Operation if Operation.READ <= operation <= Operation.IDEMPOTENT_WRITE
)


class Api(NamedTuple):
    """``whole`` and ``items``: the checks of the whole request and of each of its items."""

    key: int
    name: str  # kio's name for its schemas, and the module's here
    min_version: int
    max_version: int
    whole: tuple[Check, ...] = ()
    items: tuple[Check, ...] = ()
    advertised_min_version: int | None = None  # what ApiVersions says, if it differs
    overlaps: bool = False  # a connection may have several unanswered ones
    comes_in_bursts: bool = False  # all members of a group send it at about the same time
    reads_only: bool = False  # its work stops when the client is gone
    limit: str = ITEMS  # the setting that limits the items of all arrays of a request together
    needs_lease: bool = False  # it answers from groups or transactions, which another node may own meanwhile


APIS: tuple[Api, ...] = (
    # librdkafka needs Produce from version 0 on to detect a modern broker; Kafka advertises the same (KIP-896).
    Api(
        0,
        "produce",
        3,
        13,
        whole=(checks.WRITE_TRANSACTIONAL_ID,),
        items=(checks.WRITE_TOPIC,),
        advertised_min_version=0,
    ),
    Api(1, "fetch", 4, 18, items=(checks.READ_TOPIC,), reads_only=True),
    Api(2, "list_offsets", 1, 11, items=(checks.DESCRIBE_TOPIC,), reads_only=True),
    Api(
        3,
        "metadata",
        0,
        13,
        items=(checks.DESCRIBE_TOPIC, checks.LISTED_TOPIC, checks.CREATE_TOPIC, checks.DESCRIBE_CLUSTER),
        reads_only=True,
    ),
    Api(
        8,
        "offset_commit",
        2,
        10,
        whole=(checks.READ_GROUP,),
        items=(checks.READ_TOPIC,),
        overlaps=True,
        needs_lease=True,
    ),
    Api(
        9,
        "offset_fetch",
        1,
        10,
        items=(checks.DESCRIBE_GROUP, checks.DESCRIBE_TOPIC, checks.FILTERED_TOPIC),
        reads_only=True,
        needs_lease=True,
    ),
    Api(10, "find_coordinator", 0, 6, items=(checks.DESCRIBE_GROUP, checks.DESCRIBE_TRANSACTIONAL_ID), reads_only=True),
    Api(11, "join_group", 0, 9, whole=(checks.READ_GROUP,), comes_in_bursts=True, needs_lease=True),
    Api(12, "heartbeat", 0, 4, whole=(checks.READ_GROUP,), overlaps=True, needs_lease=True),
    Api(13, "leave_group", 0, 5, whole=(checks.READ_GROUP,), needs_lease=True),
    Api(14, "sync_group", 0, 5, whole=(checks.READ_GROUP,), comes_in_bursts=True, needs_lease=True),
    Api(15, "describe_groups", 0, 6, items=(checks.DESCRIBE_GROUP,), reads_only=True, needs_lease=True),
    Api(16, "list_groups", 0, 5, items=(checks.LISTED_GROUP,), reads_only=True, needs_lease=True),
    Api(17, "sasl_handshake", 0, 1),
    Api(18, "api_versions", 0, 4),
    Api(19, "create_topics", 2, 7, items=(checks.CREATE_TOPIC, checks.DESCRIBE_NEW_TOPIC_CONFIGS)),
    Api(20, "delete_topics", 1, 6, items=(checks.DESCRIBE_TO_DELETE, checks.DELETE_TOPIC)),
    Api(21, "delete_records", 0, 2, items=(checks.DELETE_RECORDS,)),
    Api(
        22, "init_producer_id", 0, 5, whole=(checks.WRITE_TRANSACTIONAL_ID, checks.WRITE_IDEMPOTENTLY), needs_lease=True
    ),
    Api(
        24,
        "add_partitions_to_txn",
        0,
        5,
        whole=(checks.WRITE_TRANSACTIONAL_ID, checks.ACT_AS_BROKER),
        items=(checks.WRITE_TOPIC,),
        needs_lease=True,
    ),
    Api(25, "add_offsets_to_txn", 0, 4, whole=(checks.WRITE_TRANSACTIONAL_ID, checks.READ_GROUP), needs_lease=True),
    Api(26, "end_txn", 0, 5, whole=(checks.WRITE_TRANSACTIONAL_ID,), needs_lease=True),
    Api(
        28,
        "txn_offset_commit",
        0,
        5,
        whole=(checks.WRITE_TRANSACTIONAL_ID, checks.READ_GROUP),
        items=(checks.READ_TOPIC,),
        needs_lease=True,
    ),
    Api(29, "describe_acls", 1, 3, whole=(checks.DESCRIBE_SECURITY,), reads_only=True),
    Api(30, "create_acls", 1, 3, whole=(checks.ALTER_SECURITY,), limit=CONFIG_ITEMS),
    Api(31, "delete_acls", 1, 3, whole=(checks.ALTER_SECURITY,), limit=CONFIG_ITEMS),
    Api(
        32,
        "describe_configs",
        1,
        4,
        items=(checks.DESCRIBE_BROKER_CONFIGS, checks.DESCRIBE_TOPIC_CONFIGS, checks.DESCRIBE_GROUP_CONFIGS),
        reads_only=True,
        limit=CONFIG_ITEMS,
    ),
    Api(
        33,
        "alter_configs",
        0,
        2,
        items=(checks.ALTER_BROKER_CONFIGS, checks.ALTER_TOPIC_CONFIGS, checks.ALTER_GROUP_CONFIGS),
        limit=CONFIG_ITEMS,
    ),
    Api(36, "sasl_authenticate", 0, 2),
    Api(37, "create_partitions", 0, 3, items=(checks.ALTER_TOPIC,)),
    Api(42, "delete_groups", 0, 2, items=(checks.DELETE_GROUP,), needs_lease=True),
    Api(
        44,
        "incremental_alter_configs",
        0,
        1,
        items=(
            checks.ALTER_BROKER_CONFIGS,
            checks.ALTER_TOPIC_CONFIGS,
            checks.ALTER_GROUP_CONFIGS,
            checks.ACT_AS_BROKER,
        ),
        limit=CONFIG_ITEMS,
    ),
    Api(47, "offset_delete", 0, 0, whole=(checks.DELETE_GROUP,), items=(checks.READ_TOPIC,), needs_lease=True),
    Api(48, "describe_client_quotas", 0, 1, whole=(checks.DESCRIBE_BROKER_CONFIGS,), reads_only=True),
    Api(49, "alter_client_quotas", 0, 1, whole=(checks.ALTER_BROKER_CONFIGS,)),
    Api(50, "describe_user_scram_credentials", 0, 0, whole=(checks.DESCRIBE_SECURITY,), reads_only=True),
    Api(51, "alter_user_scram_credentials", 0, 0, items=(checks.ALTER_SECURITY,), limit=CONFIG_ITEMS),
    Api(60, "describe_cluster", 0, 2, items=(checks.DESCRIBE_CLUSTER,), reads_only=True),
    Api(
        65,
        "describe_transactions",
        0,
        0,
        items=(checks.DESCRIBE_TRANSACTIONAL_ID, checks.FILTERED_TOPIC),
        reads_only=True,
        needs_lease=True,
    ),
    Api(66, "list_transactions", 0, 1, items=(checks.LISTED_TRANSACTIONAL_ID,), reads_only=True, needs_lease=True),
    Api(
        68,
        "consumer_group_heartbeat",
        0,
        1,
        whole=(checks.READ_GROUP,),
        items=(checks.DESCRIBE_TOPIC, checks.LISTED_TOPIC),
        overlaps=True,
        needs_lease=True,
    ),
    Api(
        69,
        "consumer_group_describe",
        0,
        1,
        items=(checks.DESCRIBE_GROUP, checks.DESCRIBE_TOPIC),
        reads_only=True,
        needs_lease=True,
    ),
    Api(74, "list_config_resources", 0, 1, whole=(checks.DESCRIBE_BROKER_CONFIGS,), reads_only=True),
)

NODE_APIS: tuple[Api, ...] = (Api(27, "write_txn_markers", 1, 1),)
"""Served in a cluster only, to its nodes, which prove who they are in another way than clients."""

OWN_APIS: tuple[Api, ...] = (
    Api(
        ASK_NODE_KEY,
        ASK_NODE,
        0,
        0,
        items=(checks.DESCRIBE_GROUP, checks.READ_GROUP, checks.DELETE_GROUP, checks.READ_TOPIC, checks.LISTED_TOPIC),
        overlaps=True,
        needs_lease=True,
    ),
)
"""What Kafka does not have. Only Callboard's own clients are told of it."""

API_VERSIONS_KEY = 18

WAITS_FOR_LOG = frozenset((8, 22, 25, 26, 28, 42, 47, 68))
"""APIs whose answer waits for a record, and for nothing else."""

CHANGES = frozenset((19, 20, 21, 30, 31, 33, 37, 42, 44, 47, 49, 51))
"""APIs that are refused while an audit trail is required and cannot be written."""


OPENED_AHEAD = frozenset(
    (
        *("consumer_group_heartbeat", "find_coordinator", "heartbeat", "join_group", "leave_group", "metadata"),
        *("offset_commit", "offset_fetch", "sync_group"),
    )
)
VERSIONS_AHEAD = 5
"""So many versions of each, the newest ones."""


class Route(NamedTuple):
    """The schema and the handler of one API version."""

    schema: Schema
    handle: Callable[[Call], Steps[None] | None]
    overlaps: bool
    comes_in_bursts: bool = False
    reads_only: bool = False
    limit: str = ITEMS
    answer_at_once: AtOnce | None = None


class Routes:
    """The routes of one server, for its authorizer.

    ``loaded``: the routes of API versions that have been requested, by key << 16 | version. ``denials``: resources that
    the authorizer has denied, by operation.
    """

    def __init__(
        self,
        authorizer: Authorizer,
        apis: Sequence[Api] | None = None,
        has_lease: Callable[[], bool] | None = None,
        peer_gate: PeerGate | None = None,
        audit: Audit = NO_AUDIT,
        quotas: ClientQuotas | None = None,
        counts: RequestCounts | None = None,
    ) -> None:
        """``apis``: the served APIs; None: those of ``APIS``. ``has_lease``: see ``node.cluster``; None: always.

        ``peer_gate`` admits requests of other nodes; None without a cluster. ``audit``: the audit trail.
        ``quotas``: None for none. ``counts``: of requests; None: they are not counted.
        """
        self.loaded: dict[int, Route] = {}
        self.authorizer = authorizer
        self.peer_gate = peer_gate
        self.audit = audit
        self.quotas = quotas or ClientQuotas(SystemClock())
        self.denials = Counter[str](dict.fromkeys(OPERATION_NAMES, 0))
        self.counts = counts
        self._has_lease = has_lease
        self._deadlines = AnswerDeadlines()
        self._apis = {api.key: api for api in ((*APIS, *OWN_APIS) if apis is None else apis)}

    def find(self, key: int, version: int) -> Route | None:
        """Return the route of an API version; None if it is not served."""
        return self.loaded.get(key << 16 | version) or self._open(key, version)

    def open_ahead(self) -> Iterator[None]:
        """Open the routes that members of groups use, one after the other. Each takes some milliseconds for imports."""
        for api in self._apis.values():
            if api.name in OPENED_AHEAD:
                for version in range(max(api.min_version, api.max_version - VERSIONS_AHEAD + 1), api.max_version + 1):
                    self.find(api.key, version)
                    yield

    def versions_of(self, key: int) -> tuple[int, int] | None:
        """The oldest and the newest served version of an API; None if it is not served."""
        api = self._apis.get(key)
        return None if api is None else (api.min_version, api.max_version)

    def _open(self, key: int, version: int) -> Route | None:
        api = self._apis.get(key)
        if api is None:
            return None
        if not api.min_version <= version <= api.max_version:
            return _unsupported_api_versions() if key == API_VERSIONS_KEY else None
        module = import_module(f".{api.name}", __name__)
        handle, answer_at_once = module.handle, None
        if self.authorizer.allows_everything:
            handle = getattr(module, "handle_unchecked", handle)
            answer_at_once = getattr(module, "answer_at_once", None)
        elif api.whole == (checks.READ_GROUP,) and hasattr(module, "answer_at_once"):
            answer_at_once = at_once_if_granted(module.answer_at_once, self.authorizer)
        if api.name == "offset_commit" and self.quotas.commit_rate:
            handle = limited_commits(handle, self.quotas)
        if self.audit.is_on:
            handle = audited(api.name, handle)
            handle = unless_refused(handle, self.audit) if api.key in CHANGES else handle
        if api.needs_lease and self._has_lease is not None:
            limited = self._deadlines.limited(handle) if api.key in WAITS_FOR_LOG else handle
            handle = with_lease(limited, self._has_lease)
            answer_at_once = answer_at_once and at_once_with_lease(answer_at_once, self._has_lease)
        if self.counts is not None:
            handle = self.counts.counted(api.name, handle)
            answer_at_once = answer_at_once and self.counts.counted_at_once(api.name, answer_at_once)
        rules = api.overlaps, api.comes_in_bursts, api.reads_only, api.limit
        route = Route(schema(api.name, version), handle, *rules, answer_at_once)
        self.loaded[key << 16 | version] = route
        return route


def _unsupported_api_versions() -> Route:
    """For newer versions of ApiVersions: the response has version 0, which every client can read."""
    module = import_module(".api_versions", __name__)
    return Route(schema("api_versions", 0), module.handle_unsupported, False)


@cache
def find_row(name: str) -> Api:
    """Return the row of an API by kio's name for it ("join_group")."""
    return next(api for api in (*APIS, *NODE_APIS, *OWN_APIS) if api.name == name)
