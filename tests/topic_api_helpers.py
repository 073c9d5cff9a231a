"""Requests to the topic APIs in any version, handled without a server: by fake services and a fake connection."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.serial import entity_reader, entity_writer

from callboard.actors.steps import run_steps
from callboard.runtime.common.shared_bytes import SharedBytes
from callboard.runtime.engine.clock import SystemClock, SystemRandom
from callboard.runtime.kafka.api import APIS, Api, Routes
from callboard.runtime.kafka.authentication.principal import ANONYMOUS
from callboard.runtime.kafka.authorization.authorizer import AllowAll, Authorizer
from callboard.runtime.kafka.batch_gate import BatchGate
from callboard.runtime.kafka.call import Call
from callboard.runtime.kafka.cluster_view import SingleNode
from callboard.runtime.kafka.codec.schemas import schema
from callboard.runtime.kafka.connections.client_buffers import ClientBuffers
from callboard.runtime.kafka.connections.over_limit import OverLimitReports
from callboard.runtime.kafka.quotas.client_quotas import ClientQuotas
from callboard.runtime.kafka.slices import Job
from callboard.runtime.security.audit import NO_AUDIT
from callboard.runtime.settings.address import Address
from callboard.runtime.settings.dynamic import DynamicSettings
from callboard.runtime.settings.listeners import PLAINTEXT
from callboard.runtime.settings.table import Settings
from callboard.runtime.topics.admin import TopicAdmin
from callboard.runtime.topics.catalogue import TopicCatalogue
from callboard.runtime.topics.topic import Topic

LATEST = -1
EARLIEST = -2
NEWEST = -3


class Timer:
    def __init__(self, delay_ms: int, callback: Callable[[], None]) -> None:
        self.delay_ms = delay_ms
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class InlineSlices:
    """Runs jobs to their end at once."""

    def run(self, job: Job) -> None:
        job.finish(run_steps(job.steps))

    run_in_turn = run_later = run

    def __init__(self) -> None:
        self.batches = BatchGate(1)


class FakeServices:
    """The services that the topic APIs need. Tests fire the timers."""

    cluster = SingleNode("callboard-test-cluster", 1, {PLAINTEXT: Address("stage.example", 9092)})
    is_loading = False
    authorizer: Authorizer = AllowAll()
    audit = NO_AUDIT
    peer_gate = None

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.settings = Settings(num_partitions=2, offsets_topic_num_partitions=3, **settings)
        self.configs = DynamicSettings(self.settings)
        self.over_limit = OverLimitReports()
        self.buffers = ClientBuffers(lambda: self.settings, self.over_limit)
        self.clock = SystemClock()
        self.quotas = ClientQuotas(self.clock)
        self.topics = TopicCatalogue(folder, self.settings, SystemRandom())
        self.timers: list[Timer] = []
        self.deleted_topics: list[frozenset[str]] = []
        self.topic_admin = TopicAdmin(self.topics, self.deleted_topics.append)
        self.producer_ids = self.topics.producer_ids
        self.slices = InlineSlices()

    def later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        self.timers.append(Timer(delay_ms, callback))
        return self.timers[-1]


class FakeConnection:
    """A connection that counts responses."""

    client_id = "tester"
    peer = "tester:1"
    unread_request = unsent_request = "unknown"
    client_host = "/127.0.0.1"
    principal = ANONYMOUS
    grants = None
    listener = PLAINTEXT

    def __init__(self, services: FakeServices) -> None:
        self.services = services
        self.answers = 0
        self.is_closed = False
        self.is_open = True

    def on_response_ready(self) -> None:
        self.answers += 1

    def close(self) -> None:
        self.is_closed = True

    abort = close


class ApiRequest:
    """A handled request; ``answer`` is the response, decoded from its bytes."""

    def __init__(self, node: FakeServices, name: str, version: int, build: Callable[[Any], Any]) -> None:
        request = build(import_module(f"kio.schema.{name}.v{version}.request"))
        buffer = io.BytesIO()
        entity_writer(type(request))(buffer, request)
        api = next(api for api in APIS if api.name == name)
        route = Routes(node.authorizer).find(api.key, version)
        assert route is not None
        self.connection = FakeConnection(node)
        self._schema = schema(name, version)
        read, size = self._schema.read(buffer.getvalue(), 0)
        assert size == len(buffer.getvalue())
        self._call = Call(self.connection, self._schema, 77, read)  # type: ignore[arg-type]
        steps = route.handle(self._call)
        if steps is not None:
            run_steps(steps)

    @property
    def is_answered(self) -> bool:
        assert self.connection.answers <= 1
        return self.connection.answers == 1

    @property
    def answer(self) -> Any:
        assert self.is_answered
        assert self._call.payload
        payload = bytes(self._call.payload)
        head = 9 if self._schema.flexible_header else 8
        assert int.from_bytes(payload[:4], "big") == len(payload) - 4
        response, size = entity_reader(self._schema.response_type)(payload[head:], 0)
        assert size == len(payload) - head
        return response

    @property
    def parts(self) -> tuple[bytes, ...]:
        """The parts of a response that shares memory."""
        assert isinstance(self._call.payload, SharedBytes)
        return self._call.payload.parts

    @property
    def is_silent(self) -> bool:
        return self.is_answered and self._call.payload == b""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[FakeServices]:
    services = FakeServices(tmp_path)
    yield services
    services.topics.files.close()


def known_fields(cls: Any, **values: Any) -> Any:
    """Create an entity of any version, without the values for fields that the version lacks."""
    return cls(**{name: value for name, value in values.items() if name in cls.__dataclass_fields__})


def versions(*names: str) -> pytest.MarkDecorator:
    apis: list[Api] = [api for api in APIS if api.name in names]
    cases = [(api.name, version) for api in apis for version in range(api.min_version, api.max_version + 1)]
    return pytest.mark.parametrize(("name", "version"), cases, ids=[f"{name}-v{version}" for name, version in cases])


def newest(name: str) -> int:
    return next(api.max_version for api in APIS if api.name == name)


def metadata(
    node: FakeServices,
    names: list[str] | None,
    version: int = newest("metadata"),
    create: bool = False,
    ids: tuple[UUID, ...] = (),
    operations: bool = False,
) -> Any:
    def build(types: Any) -> Any:
        by_name = [known_fields(types.MetadataRequestTopic, name=name, topic_id=None) for name in names or ()]
        by_id = [known_fields(types.MetadataRequestTopic, name=None, topic_id=topic_id) for topic_id in ids]
        return known_fields(
            types.MetadataRequest,
            topics=None if names is None else (*by_name, *by_id),
            allow_auto_topic_creation=create,
            include_cluster_authorized_operations=operations,
            include_topic_authorized_operations=operations,
        )

    return ApiRequest(node, "metadata", version, build).answer


def create_topics(
    node: FakeServices, *new_topics: dict[str, Any], version: int = newest("create_topics"), validate_only: bool = False
) -> dict[str, Any]:
    def topic(types: Any, name: str, **values: Any) -> Any:
        assignments = values.get("assignments", {}).items()
        return types.CreatableTopic(
            name=name,
            num_partitions=values.get("partitions", 1),
            replication_factor=values.get("replicas", 1),
            assignments=tuple(
                types.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
                for index, brokers in assignments
            ),
            configs=tuple(
                types.CreatableTopicConfig(name=key, value=value) for key, value in values.get("configs", {}).items()
            ),
        )

    def build(types: Any) -> Any:
        return types.CreateTopicsRequest(
            topics=tuple(topic(types, **values) for values in new_topics),
            timeout=timedelta(seconds=1),
            validate_only=validate_only,
        )

    response = ApiRequest(node, "create_topics", version, build).answer
    return {result.name: result for result in response.topics}


def delete_topics(
    node: FakeServices, *keys: str | UUID | tuple[Any, Any], version: int = newest("delete_topics")
) -> list[tuple[Any, int]]:
    """Delete by name, by id or (invalid) by both; return the error codes."""

    def state(types: Any, key: Any) -> Any:
        name, topic_id = key if isinstance(key, tuple) else (None, key) if isinstance(key, UUID) else (key, None)
        return types.DeleteTopicState(name=name, topic_id=topic_id)

    def build(types: Any) -> Any:
        named = {"topic_names": keys} if version < 6 else {"topics": tuple(state(types, key) for key in keys)}
        return types.DeleteTopicsRequest(timeout=timedelta(seconds=1), **named)

    response = ApiRequest(node, "delete_topics", version, build).answer
    return [(result.name, result.error_code) for result in response.responses]


def produce_request(
    node: FakeServices,
    name: str,
    records: bytes | None,
    *,
    partition: int = 0,
    version: int = newest("produce"),
    acks: int = -1,
    topic_id: UUID | None = None,
) -> ApiRequest:
    topic = node.topics.get(name)

    def build(types: Any) -> Any:
        data = types.PartitionProduceData(index=partition, records=records)
        id_in_request = topic_id or (topic.topic_id if topic else None)
        sent_data = known_fields(types.TopicProduceData, name=name, topic_id=id_in_request, partition_data=(data,))
        return types.ProduceRequest(
            transactional_id=None, acks=acks, timeout=timedelta(seconds=1), topic_data=(sent_data,)
        )

    return ApiRequest(node, "produce", version, build)


def produce(node: FakeServices, name: str, records: bytes | None, **options: Any) -> Any:
    """Produce one batch; return the entry of the partition."""
    [topic] = produce_request(node, name, records, **options).answer.responses
    [partition] = topic.partition_responses
    return partition


def fetch_request(
    node: FakeServices,
    *positions: tuple[str | UUID, int, int],
    version: int = newest("fetch"),
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 2**31 - 1,
    partition_max_bytes: int = 2**20,
    session: tuple[int, int] = (0, -1),
    leader_epoch: int = -1,
    isolation_level: int = 0,
) -> ApiRequest:
    """Fetch (topic, partition, offset); topics are requested by id if the version needs it."""

    def topic_entity(types: Any, key: str | UUID, partition: int, offset: int) -> Any:
        topic = node.topics.get(key) if isinstance(key, str) else None
        partition_entity = known_fields(
            types.FetchPartition,
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=partition_max_bytes,
            current_leader_epoch=leader_epoch,
        )
        topic_id = key if isinstance(key, UUID) else topic and topic.topic_id
        return known_fields(types.FetchTopic, topic=key, topic_id=topic_id, partitions=(partition_entity,))

    def build(types: Any) -> Any:
        return known_fields(
            types.FetchRequest,
            max_wait=timedelta(milliseconds=max_wait_ms),
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
            session_id=session[0],
            session_epoch=session[1],
            topics=tuple(topic_entity(types, *position) for position in positions),
            forgotten_topics_data=(),
        )

    return ApiRequest(node, "fetch", version, build)


def fetch(node: FakeServices, *positions: tuple[str | UUID, int, int], **options: Any) -> list[Any]:
    """Return the partitions of a fetch that is answered at once."""
    return fetched_partitions(fetch_request(node, *positions, **options))


def fetched_partitions(request: ApiRequest) -> list[Any]:
    partitions = [partition for topic in request.answer.responses for partition in topic.partitions]
    assert all(partition.records is not None for partition in partitions), "Kafka never sends null for records"
    return partitions


def list_offsets(
    node: FakeServices,
    name: str,
    *times: int,
    partition: int = 0,
    version: int = newest("list_offsets"),
    leader_epoch: int = -1,
) -> Any:
    """Return the entry of one partition, which is requested once per timestamp."""

    def build(types: Any) -> Any:
        partitions = tuple(
            known_fields(
                types.ListOffsetsPartition,
                partition_index=partition,
                timestamp=time,
                current_leader_epoch=leader_epoch,
            )
            for time in times
        )
        topic = types.ListOffsetsTopic(name=name, partitions=partitions)
        return known_fields(
            types.ListOffsetsRequest, replica_id=-1, isolation_level=0, topics=(topic,), timeout=timedelta(seconds=1)
        )

    [topic] = ApiRequest(node, "list_offsets", version, build).answer.topics
    [result] = topic.partitions
    return result


def init_producer_id(
    node: FakeServices,
    transactional_id: str | None = None,
    producer: tuple[int, int] = (-1, -1),
    version: int = newest("init_producer_id"),
) -> Any:
    def build(types: Any) -> Any:
        return known_fields(
            types.InitProducerIdRequest,
            transactional_id=transactional_id,
            transaction_timeout=timedelta(seconds=60),
            producer_id=producer[0],
            producer_epoch=producer[1],
        )

    return ApiRequest(node, "init_producer_id", version, build).answer


def describe_cluster(
    node: FakeServices, endpoint_type: int = 1, operations: bool = False, version: int = newest("describe_cluster")
) -> Any:
    def build(types: Any) -> Any:
        return known_fields(
            types.DescribeClusterRequest,
            include_cluster_authorized_operations=operations,
            endpoint_type=endpoint_type,
            include_fenced_brokers=False,
        )

    return ApiRequest(node, "describe_cluster", version, build).answer


def made(node: FakeServices, name: str = "plays", partitions: int = 2) -> Topic:
    return node.topics.create(name, partitions)
