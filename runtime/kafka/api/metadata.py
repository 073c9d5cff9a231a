"""Metadata (3): the topics, all led by this broker.

A topic that is auto-created is in the same response. Kafka answers "unknown" first and creates the topic meanwhile;
clients accept both.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from ....actors.errors import CoordinatorError, ErrorCode
from ...log.format.batch import LEADER_EPOCH
from ...topics.names import check_name, is_internal
from ...topics.topic import Topic
from ..authorize import Verdicts, authorize, authorized_operations
from ..call import Call
from ..checks import CREATE_TOPIC, DESCRIBE_TOPIC, LISTED_TOPIC, ResourceType
from ..codec.codes import NO_THROTTLE, kafka_error
from .describe_cluster import cluster_operations

NOT_REQUESTED = -(2**31)

TOPIC_ID_FROM = 12
NO_TOPICS_MEANS_ALL = 0  # the only version whose topics cannot be null


class Access(NamedTuple):
    """Which of the requested topics the client may describe, and which missing ones it may create."""

    describe: Verdicts
    create: Verdicts


def handle(call: Call) -> None:
    describe = authorize(call, DESCRIBE_TOPIC, requested_names(call))
    missing_names = [name for name in names_to_create(call) if describe.allows(name)]
    access = Access(describe, authorize(call, CREATE_TOPIC, missing_names))
    partitions = call.services.settings.num_partitions
    to_create = [(name, partitions) for name in missing_names if access.create.allows(name)]
    if to_create:
        call.services.topic_admin.create(to_create, partial(finish, call, access))
    else:
        call.respond_with_bytes(encode(call, access))


def finish(call: Call, access: Access, _created: object) -> None:
    """Answer when the missing topics are created, or could not be."""
    call.encode_and_respond(lambda: encode(call, access))


def encode(call: Call, access: Access) -> bytes:
    services = call.services
    broker = call.make(
        "MetadataResponseBroker",
        node_id=services.cluster.node_id,
        host=services.cluster.advertised_host,
        port=services.cluster.advertised_port,
        rack=None,
    )
    include_cluster_operations = getattr(call.request, "include_cluster_authorized_operations", False)
    return call.schema.write(
        call.make(
            "MetadataResponse",
            throttle_time=NO_THROTTLE,
            brokers=(broker,),
            cluster_id=services.cluster.cluster_id,
            controller_id=services.cluster.node_id,
            topics=tuple(topics(call, access)),
            cluster_authorized_operations=cluster_operations(call) if include_cluster_operations else NOT_REQUESTED,
            error_code=kafka_error(ErrorCode.NONE),
        )
    )


def requested_topics(call: Call) -> dict[tuple[str | None, UUID | None], None] | None:
    """Return the requested names and ids, in order; None for all topics."""
    topics = call.request.topics
    if topics is None or (not topics and call.version == NO_TOPICS_MEANS_ALL):
        return None
    return dict.fromkeys((topic.name, getattr(topic, "topic_id", None)) for topic in topics)


def requested_names(call: Call) -> Iterable[str]:
    """Yield the names of the requested topics, also of those that are requested by id."""
    for name, topic_id in requested_topics(call) or ():
        topic = call.services.topics.by_id(topic_id)
        if topic is not None:
            yield topic.name
        elif name is not None:
            yield name


def topics(call: Call, access: Access) -> Iterable[Any]:
    keys, catalogue = requested_topics(call), call.services.topics
    if keys is None:
        listed = authorize(call, LISTED_TOPIC, catalogue.names())
        names = (name for name in catalogue.names() if listed.allows(name))
        return [topic_entry(call, topic) for name in names if (topic := catalogue.get(name))]
    return [find_entry(call, access, name, topic_id) for name, topic_id in keys]


def names_to_create(call: Call) -> list[str]:
    """Return the requested topics that do not exist, if the client and the settings allow auto-creation."""
    # Requests before v4 have no such field; auto-creation is then allowed.
    is_allowed = getattr(call.request, "allow_auto_topic_creation", True)
    if not (is_allowed and call.services.settings.auto_create_topics_enable):
        return []
    names = (name for name, topic_id in requested_topics(call) or () if name and topic_id is None)
    return [name for name in names if call.services.topics.get(name) is None]


def find_entry(call: Call, access: Access, name: str | None, topic_id: UUID | None) -> Any:
    """Return the entry of a requested topic. One that may not be described is denied whether it exists or not."""
    if topic_id is not None and call.version >= TOPIC_ID_FROM:
        topic = call.services.topics.by_id(topic_id)
        if topic is not None and not access.describe.allows(topic.name):
            return error_entry(call, access.describe.code, None, topic_id)
        return topic_entry(call, topic) if topic else error_entry(call, ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
    if topic_id is not None or name is None:
        return error_entry(call, ErrorCode.INVALID_REQUEST, name, topic_id)
    denial = access.describe.error_of(name) or access.create.error_of(name)
    topic = None if denial else call.services.topics.get(name)
    return topic_entry(call, topic) if topic else error_entry(call, denial or name_error(name), name, None)


def name_error(name: str) -> ErrorCode:
    try:
        check_name(name)
    except CoordinatorError as refusal:
        return refusal.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def topic_entry(call: Call, topic: Topic) -> Any:
    include_operations = getattr(call.request, "include_topic_authorized_operations", False)
    return call.make(
        "MetadataResponseTopic",
        error_code=kafka_error(ErrorCode.NONE),
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(partition_entry(call, index) for index in range(len(topic.partitions))),
        topic_authorized_operations=authorized_operations(call, ResourceType.TOPIC, topic.name)
        if include_operations
        else NOT_REQUESTED,
    )


def partition_entry(call: Call, index: int) -> Any:
    node_id = call.services.cluster.node_id
    return call.make(
        "MetadataResponsePartition",
        error_code=kafka_error(ErrorCode.NONE),
        partition_index=index,
        leader_id=node_id,
        leader_epoch=LEADER_EPOCH,
        replica_nodes=(node_id,),
        isr_nodes=(node_id,),
        offline_replicas=(),
    )


def error_entry(call: Call, error: ErrorCode, name: str | None, topic_id: UUID | None) -> Any:
    return call.make(
        "MetadataResponseTopic",
        error_code=kafka_error(error),
        name=name if call.version >= TOPIC_ID_FROM else name or "",
        topic_id=topic_id,
        is_internal=is_internal(name or ""),
        partitions=(),
    )
