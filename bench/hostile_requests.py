"""Large requests that a client may send: the rows of ``callboard bench hostile``.

A row has the number of items, and says what the server must have before: topics, records or groups.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Literal, NamedTuple

from callboard.bench import hostile_frames as frames
from callboard.bench.discarding_connection import DiscardingConnection
from callboard.bench.group_setup import TOPIC_EXISTS, Member, commit, create_named_topic
from callboard.bench.groups import fill
from callboard.bench.harness import BenchError
from callboard.bench.hostile_frames import BATCH_TIMESTAMP_MS, GROUP, TOPIC, TOPIC_PARTITIONS
from callboard.bench.wire import Client, api
from callboard.runtime.kafka.api import APIS
from callboard.runtime.log.format.batch import encode_batch, frame_record
from callboard.runtime.settings.table import Settings

BATCHES_PER_REQUEST = 500
NEWEST = -1
GROUPS = 30_000
TOPICS_PER_REQUEST = 1000
CROWD = 80
KEY_AT = slice(4, 6)  # of an API in a frame

AnswerForm = Literal["one frame", "frame per item", "http"]

MakeRequest = Callable[[int, int], bytes]
"""Called with the number of items and the number of the turn, which is different for each request of a run."""


class HostileRequest(NamedTuple):
    """A row: one kind of request, with ``items`` items.

    ``title``, ``item_name``: for the table. ``prepare`` is called with the address and the number of items when the
    server is ready; ``fill_folder`` writes the data folder before the server is started. ``connections``: so many send
    the request at the same time, and again when all of them are answered.
    """

    name: str
    title: str
    items: int
    item_name: str
    make: MakeRequest
    prepare: Callable[[str, int], None] | None = None
    fill_folder: Callable[[Path], None] | None = None
    answer: AnswerForm = "one frame"
    connections: int = 1


# What the server has before ------------------------------------------------------------------------------------------


def prepare_topic(address: str, _count: int) -> None:
    with Client(address) as client:
        create_named_topic(client, TOPIC.decode(), TOPIC_PARTITIONS)


def prepare_topics(address: str, count: int) -> None:
    """Create ``count`` topics of one partition."""
    fields = {"num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
    with Client(address) as client:
        for first in range(0, count, TOPICS_PER_REQUEST):
            numbers = range(first, min(first + TOPICS_PER_REQUEST, count))
            topics = tuple({"name": f"hostile-{number}", **fields} for number in numbers)
            answer = client.ask(api("create_topics", 7), topics=topics)
            errors = {int(topic.error_code) for topic in answer.topics} - {0, TOPIC_EXISTS}
            if errors:
                raise BenchError(f"CreateTopics was answered with the error codes {errors}, expected 0")


def prepare_group(address: str, _count: int) -> None:
    with Client(address) as client:
        create_named_topic(client, TOPIC.decode(), TOPIC_PARTITIONS)
        commit(client, Member(GROUP.decode(), "", -1, TOPIC.decode(), 0), 0)


def prepare_batches(address: str, count: int) -> None:
    """Append at least ``count`` batches of one empty record to a partition. Raises BenchError."""
    request = _produce_request()
    with Client(address) as client:
        create_named_topic(client, TOPIC.decode(), 1)
        with DiscardingConnection(address) as connection:
            for _ in range(0, count, BATCHES_PER_REQUEST):
                connection.send(request)
                connection.discard_answer()
        _check_end(client, count)


def _produce_request() -> bytes:
    """Many batches for one partition in one request."""
    batch = encode_batch(0, BATCH_TIMESTAMP_MS, BATCH_TIMESTAMP_MS, [frame_record(0, 0, b"", b"")])
    partitions = ({"index": 0, "records": batch},) * BATCHES_PER_REQUEST
    topic = {"name": TOPIC.decode(), "partition_data": partitions}
    return api("produce", 9).request(1, acks=1, timeout=timedelta(seconds=1), topic_data=(topic,))


def _check_end(client: Client, expected: int) -> None:
    newest = {"partition_index": 0, "timestamp": NEWEST}
    topics = ({"name": TOPIC.decode(), "partitions": (newest,)},)
    answer = client.ask(api("list_offsets", 6), replica_id=-1, isolation_level=0, topics=topics)
    end_offset = answer.topics[0].partitions[0].offset
    if end_offset < expected:
        raise BenchError(f"the partition ends at {end_offset}, expected {expected} or more")


def fill_groups(folder: Path) -> None:
    fill(folder, GROUPS)


REQUESTS = (
    HostileRequest("describe-configs", "DescribeConfigs", 100_000, "resources", frames.describe_configs),
    HostileRequest("metadata", "Metadata that creates topics", 10_000, "topics", frames.metadata),
    HostileRequest("offset-fetch", "OffsetFetch", 1_000_000, "partitions", frames.offset_fetch, prepare_group),
    HostileRequest("find-coordinator", "FindCoordinator", 300_000, "keys", frames.find_coordinator),
    HostileRequest("fetch", "Fetch", 50_000, "partitions", frames.fetch, prepare_topic),
    HostileRequest("leave-group", "LeaveGroup", 100_000, "members", frames.leave_group, prepare_group),
    HostileRequest("offset-commit", "OffsetCommit", 60_000, "partitions", frames.offset_commit, prepare_group),
    HostileRequest("list-offsets", "ListOffsets by time", 800_000, "batches", frames.list_offsets, prepare_batches),
    HostileRequest(
        *("list-groups", f"ListGroups, {GROUPS:,} groups", 180, "requests", frames.list_groups),
        fill_folder=fill_groups,
        answer="frame per item",
    ),
    HostileRequest(
        *("heartbeats", "Heartbeat, pipelined", 100_000, "requests", frames.heartbeats), answer="frame per item"
    ),
    HostileRequest(
        *("metrics", f"GET /metrics, {GROUPS:,} groups", 1, "page", frames.scrape),
        fill_folder=fill_groups,
        answer="http",
    ),
    HostileRequest("metadata-all", "Metadata of all topics", 10_000, "topics", frames.metadata_of_all, prepare_topics),
    HostileRequest("produce", "Produce", 50_000, "partitions", frames.produce, prepare_topic),
    HostileRequest("join-group", "JoinGroup", 100_000, "protocols", frames.join_group),
    HostileRequest("sync-group", "SyncGroup", 100_000, "assignments", frames.sync_group, prepare_group),
    HostileRequest("offset-delete", "OffsetDelete", 250_000, "partitions", frames.offset_delete, prepare_group),
    HostileRequest("describe-groups", "DescribeGroups", 100_000, "groups", frames.describe_groups),
    HostileRequest("delete-groups", "DeleteGroups", 100_000, "groups", frames.delete_groups),
    HostileRequest("create-topics", "CreateTopics, validate only", 100_000, "topics", frames.create_topics),
    HostileRequest("transactions", "DescribeTransactions", 100_000, "ids", frames.describe_transactions),
    HostileRequest(
        *("delete-groups-of-80", f"DeleteGroups, {CROWD} connections", 2_000, "groups", frames.delete_groups),
        connections=CROWD,
    ),
    HostileRequest(
        *("find-coordinator-of-80", f"FindCoordinator, {CROWD} connections", 3_900, "keys", frames.find_coordinator),
        connections=CROWD,
    ),
    HostileRequest(
        *("offset-commit-of-80", f"OffsetCommit, pipelined, {CROWD} connections", 4, "requests"),
        *(frames.small_offset_commits, prepare_group),
        answer="frame per item",
        connections=CROWD,
    ),
)


def at_limit(request: HostileRequest) -> HostileRequest | None:
    """The same request with as many items as the server's default limit allows; None if it has no more anyway.

    Arrays of topics or groups around the items count too; there is one of them at most.
    """
    frame = request.make(1, 0)
    if request.answer != "one frame" or frame == request.make(2, 0):  # its items are not in the request
        return None
    if request.connections > 1:
        return None
    key = int.from_bytes(frame[KEY_AT], "big")
    limit: int = getattr(Settings(), next(api.limit for api in APIS if api.key == key))
    return request._replace(name=f"{request.name}-at-limit", items=limit - 1) if limit <= request.items else None


ALL_REQUESTS = tuple(row for request in REQUESTS for row in (request, at_limit(request)) if row is not None)
"""Each request, and after it the largest one of its kind that is within the limit."""
