"""Metadata (3): the brokers, and the topics with their leaders.

A topic that is auto-created is in the same response. Kafka answers "unknown" first and creates the topic meanwhile;
clients accept both. The first response after a deletion says "unknown" here too, so that clients notice the deletion.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from struct import Struct
from typing import Any, NamedTuple
from uuid import UUID

from ....actors.errors import CoordinatorError, ErrorCode
from ....actors.steps import Steps, pieces
from ...common.shared_bytes import SharedBytes
from ...security.resources import ResourceType
from ...topics.names import check_name, is_internal
from ...topics.store import NewTopic
from ...topics.topic import Topic
from ..audit.audited import record_in_steps
from ..audit.audited_topics import creation
from ..authorization.authorize import Verdicts, authorize_in_steps, authorized_operations
from ..authorization.checks import CREATE_TOPIC, DESCRIBE_TOPIC, LISTED_TOPIC
from ..call import Call
from ..cluster_view import NO_NODE, Leader
from ..codec.codes import NO_THROTTLE, kafka_error
from ..codec.step_writer import write_in_steps
from ..quotas.client_quotas import MutationQuota
from ..quotas.mutation_quota import mutation_quota
from ..refusals import report_refusals
from .describe_cluster import cluster_operations

NOT_REQUESTED = -(2**31)

TOPIC_ID_FROM = 12
LISTENER_ERROR_FROM = 6  # KIP-207
NO_TOPICS_MEANS_ALL = 0  # the only version whose topics cannot be null

INDEX = Struct(">i")
INDEX_BEGIN = 2  # in the entry of a partition, after the error code, in all versions
INDEX_END = INDEX_BEGIN + INDEX.size

TopicKey = tuple[str | None, UUID | None]
"""The requested name and id."""

Requested = dict[TopicKey, None]


class Access(NamedTuple):
    """Which of the requested topics the client may describe, and which missing ones it may create.

    ``deleted``: names of topics that are unknown in this response, because they were just deleted.
    """

    describe: Verdicts
    create: Verdicts
    deleted: frozenset[str]


def handle(call: Call) -> Steps[None]:
    requested = yield from requested_topics(call)
    describe = yield from authorize_in_steps(call, DESCRIBE_TOPIC, requested_names(call, requested or ()))
    missing_names = [] if requested is None else (yield from names_to_create(call, describe, requested))
    create = yield from authorize_in_steps(call, CREATE_TOPIC, missing_names)
    access = Access(describe, create, call.services.topic_admin.take_deleted(missing_names))
    to_create = yield from topics_to_create(call, create, missing_names)
    if to_create:
        call.services.topic_admin.create(to_create, partial(finish, call, access, requested))
    else:
        yield from call.respond_in_steps(response(call, access, requested))


def finish(call: Call, access: Access, requested: Requested | None, created: Sequence[object]) -> None:
    """Answer when the missing topics are created, or could not be."""
    call.encode_and_respond(lambda: encode(call, access, requested, created))


def encode(
    call: Call, access: Access, requested: Requested | None, created: Sequence[object]
) -> Steps[bytes | SharedBytes]:
    """``created``: topics and refusals. The response has no error for a topic that could not be created."""
    yield from report_refusals(call, created)
    yield from record_in_steps(call, map(creation, created))
    return (yield from write_in_steps(response(call, access, requested)))


def response(call: Call, access: Access, requested: Requested | None) -> Any:
    cluster, listener = call.services.cluster, call.connection.listener
    brokers = tuple(
        call.make("MetadataResponseBroker", node_id=node_id, host=host, port=port, rack=None)
        for node_id, host, port in cluster.brokers(listener)
    )
    include_cluster_operations = getattr(call.request, "include_cluster_authorized_operations", False)
    return call.make(
        "MetadataResponse",
        throttle_time=NO_THROTTLE,
        brokers=brokers,
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id(listener),
        topics=all_topics(call) if requested is None else topics(call, access, requested),
        cluster_authorized_operations=cluster_operations(call) if include_cluster_operations else NOT_REQUESTED,
        error_code=kafka_error(ErrorCode.NONE),
    )


def requested_topics(call: Call) -> Steps[Requested | None]:
    """Return the requested names and ids, each once, in order; None for all topics."""
    topics = call.request.topics
    if topics is None or (not topics and call.version == NO_TOPICS_MEANS_ALL):
        return None
    requested: Requested = {}
    for piece in pieces(topics):
        requested.update(((topic.name, getattr(topic, "topic_id", None)), None) for topic in piece)
        yield
    return requested


def requested_names(call: Call, requested: Iterable[TopicKey]) -> Iterator[str]:
    """Yield the names of the requested topics, also of those that are requested by id."""
    for name, topic_id in requested:
        topic = call.services.topics.by_id(topic_id)
        if topic is not None:
            yield topic.name
        elif name is not None:
            yield name


def all_topics(call: Call) -> Iterator[Any]:
    """Yield the entries of all topics that the client may describe."""
    catalogue, entries = call.services.topics, TopicEntries(call)
    names = catalogue.names()
    listed = yield from authorize_in_steps(call, LISTED_TOPIC, names)
    for name in names:
        topic = catalogue.get(name)
        if topic is not None and listed.allows(name):
            yield entries.of(topic)


def topics(call: Call, access: Access, requested: Requested) -> Iterator[Any]:
    """Yield the entries of the requested topics."""
    entries = TopicEntries(call)
    for name, topic_id in requested:
        found = find_topic(call, access, name, topic_id)
        if isinstance(found, Topic):
            yield entries.of(found)
        else:
            shown_name = None if topic_id is not None and call.version >= TOPIC_ID_FROM else name
            yield error_entry(call, found, shown_name, topic_id)


def names_to_create(call: Call, describe: Verdicts, requested: Requested) -> Steps[list[str]]:
    """Return the requested topics that do not exist, if the client, the settings and the audit trail allow creation."""
    # Requests before v4 have no such field; auto-creation is then allowed.
    is_allowed = getattr(call.request, "allow_auto_topic_creation", True)
    names: list[str] = []
    services = call.services
    if not (is_allowed and services.settings.auto_create_topics_enable) or services.audit.refusal:
        return names
    for piece in pieces(requested):
        missing = (name for name, topic_id in piece if name and topic_id is None)
        names += (name for name in missing if call.services.topics.get(name) is None and describe.allows(name))
        yield
    return names


def topics_to_create(call: Call, create: Verdicts, names: Iterable[str]) -> Steps[list[NewTopic]]:
    """Return the missing topics that the client may create. Those above its quota stay unknown, as in Kafka."""
    quota, partitions = mutation_quota(call), call.services.settings.num_partitions
    to_create: list[NewTopic] = []
    for piece in pieces(names):
        for name in filter(create.allows, piece):
            if quota is not None and is_above(quota, call, name, partitions):
                return to_create
            to_create.append(NewTopic(name, partitions))
        yield
    return to_create


def is_above(quota: MutationQuota, call: Call, name: str, partitions: int) -> bool:
    """Count the partitions of a topic that can be created. Returns whether the quota is used up."""
    try:
        call.services.topic_admin.check_new(name, partitions, 0)
        quota.charge(partitions)
    except CoordinatorError as refusal:
        return refusal.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    return False


def find_topic(call: Call, access: Access, name: str | None, topic_id: UUID | None) -> Topic | ErrorCode:
    """Return a requested topic, or its error. One that may not be described is denied whether it exists or not."""
    if topic_id is not None and call.version >= TOPIC_ID_FROM:
        topic = call.services.topics.by_id(topic_id)
        if topic is not None and not access.describe.allows(topic.name):
            return access.describe.code
        return topic or ErrorCode.UNKNOWN_TOPIC_ID
    if topic_id is not None or name is None:
        return ErrorCode.INVALID_REQUEST
    denial = access.describe.error_of(name) or access.create.error_of(name)
    topic = None if denial or name in access.deleted else call.services.topics.get(name)
    return topic or denial or name_error(name)


def name_error(name: str) -> ErrorCode:
    try:
        check_name(name)
    except CoordinatorError as refusal:
        return refusal.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TopicEntries:
    """Makes the entries of topics. Of partitions with the same leader, kio encodes one: only the index differs."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._includes_operations = getattr(call.request, "include_topic_authorized_operations", False)
        self._encoded: dict[Leader, bytes] = {}
        brokers = call.services.cluster.brokers(call.connection.listener)
        self._with_address = frozenset(broker.node_id for broker in brokers)

    def of(self, topic: Topic) -> Any:
        return self._call.make(
            "MetadataResponseTopic",
            error_code=kafka_error(ErrorCode.NONE),
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=self._partitions(topic),
            topic_authorized_operations=authorized_operations(self._call, ResourceType.TOPIC, topic.name)
            if self._includes_operations
            else NOT_REQUESTED,
        )

    def _partitions(self, topic: Topic) -> Iterator[bytes]:
        leader_of = self._call.services.cluster.leader
        for index in range(len(topic.partitions)):
            encoded = self._with_leader(leader_of(topic.name, index))
            yield b"".join((encoded[:INDEX_BEGIN], INDEX.pack(index), encoded[INDEX_END:]))

    def _with_leader(self, leader: Leader) -> bytes:
        encoded = self._encoded.get(leader)
        if encoded is None:
            entry = partition_entry(self._call, 0, leader, self._with_address)
            encoded = self._encoded[leader] = self._call.schema.write_item(entry)
        return encoded


def partition_entry(call: Call, index: int, leader: Leader, with_address: Collection[int]) -> Any:
    """``with_address``: the nodes that advertise an address of the client's listener."""
    node_id, epoch = leader
    nodes = () if node_id == NO_NODE else (node_id,)
    is_available = node_id in with_address
    return call.make(
        "MetadataResponsePartition",
        error_code=kafka_error(ErrorCode.NONE if is_available else unavailable_leader(call, node_id)),
        partition_index=index,
        leader_id=node_id if is_available else NO_NODE,
        leader_epoch=epoch,
        replica_nodes=nodes,
        isr_nodes=nodes,
        offline_replicas=() if is_available else nodes,
    )


def unavailable_leader(call: Call, node_id: int) -> ErrorCode:
    if node_id == NO_NODE or call.version < LISTENER_ERROR_FROM:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return ErrorCode.LISTENER_NOT_FOUND


def error_entry(call: Call, error: ErrorCode, name: str | None, topic_id: UUID | None) -> Any:
    return call.make(
        "MetadataResponseTopic",
        error_code=kafka_error(error),
        name=name if call.version >= TOPIC_ID_FROM else name or "",
        topic_id=topic_id,
        is_internal=is_internal(name or ""),
        partitions=(),
    )
