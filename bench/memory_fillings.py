"""The fillings of ``callboard bench memory``: what clients send to fill a server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from callboard.bench.harness import BenchError, parse_address
from callboard.bench.wire import ANSWER_TIMEOUT_S, Api, Client, api
from callboard.runtime.client.frame_socket import ConnectionEnded, FrameSocket
from callboard.runtime.log.format.batch import encode_batch, frame_record

CONNECTIONS = 16
PIPELINED = 64
LOADING = 14
"""Also the answer while the next block of producer ids is written."""

NOT_AVAILABLE = 15
POLICY_VIOLATION = 44
REFUSED = (NOT_AVAILABLE, POLICY_VIOLATION)
MEMBER_ID_REQUIRED = 79
ACCEPTED = (0, MEMBER_ID_REQUIRED)
EXPECTED = {*ACCEPTED, *REFUSED, LOADING}
COMMITTED_TOPIC = "committed"
METADATA_BYTES = 4000
TOPICS_A_REQUEST = 500
TRANSACTION_TOPICS = 200
RECORD_TOPICS = 100
BATCH_BYTES = 500_000
HALF_FRAME_BYTES = 4_000_000
FETCHED_PART = 10
"""The topics that are fetched have the limit divided by this."""


class Filled(NamedTuple):
    """``sent_bytes``: for unread responses, what was asked for."""

    accepted: int
    is_refused: bool
    sent_bytes: int


class Filling(NamedTuple):
    """``fill(stack, address, max_bytes)`` sends until the server refuses more, or ``max_bytes`` were sent.

    It leaves its connections open on the stack. ``settings``: of the server, in which ``{part}`` is half of the limit.
    """

    name: str
    title: str
    fill: Callable[[ExitStack, str, int], Filled]
    settings: tuple[str, ...] = ()


# Requests ------------------------------------------------------------------------------------------------------------


def _commit(metadata: str) -> Callable[[int], dict[str, Any]]:
    def request(number: int) -> dict[str, Any]:
        partition = {
            "partition_index": 0,
            "committed_offset": number,
            "committed_leader_epoch": -1,
            "committed_metadata": metadata,
        }
        return {
            "group_id": f"group-{number}",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": COMMITTED_TOPIC, "partitions": [partition]}],
        }

    return request


def _join(members: int, instance_id: str | None) -> Callable[[int], dict[str, Any]]:
    """New members, so many in each group."""

    def request(number: int) -> dict[str, Any]:
        return {
            "group_id": f"group-{number // members}",
            "session_timeout": timedelta(minutes=30),
            "rebalance_timeout": timedelta(minutes=30),
            "member_id": "",
            "group_instance_id": instance_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": bytes(200)}],
            "reason": None,
        }

    return request


def _init_producer(number: int) -> dict[str, Any]:
    return {
        "transactional_id": f"transactional-{number}",
        "transaction_timeout": timedelta(minutes=15),
        "producer_id": -1,
        "producer_epoch": -1,
    }


def _transaction_topic(number: int) -> str:
    return f"transactions-{number}"


def _add_partitions(number: int, producer: Any) -> dict[str, Any]:
    """A partition of each topic."""
    topics = [{"name": _transaction_topic(topic), "partitions": (0,)} for topic in range(TRANSACTION_TOPICS)]
    return {
        "v3_and_below_transactional_id": f"transactional-{number}",
        "v3_and_below_producer_id": producer.producer_id,
        "v3_and_below_producer_epoch": producer.producer_epoch,
        "v3_and_below_topics": topics,
    }


def _new_topic(name: str) -> dict[str, Any]:
    return {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}


def _create(number: int) -> dict[str, Any]:
    topics = [_new_topic(f"topic-{number}-{index}") for index in range(TOPICS_A_REQUEST)]
    return {"topics": topics, "timeout": timedelta(seconds=30), "validate_only": False}


def _produce(number: int) -> dict[str, Any]:
    batch = encode_batch(0, 0, 0, [frame_record(0, 0, b"", bytes(BATCH_BYTES))])
    partition = {"index": 0, "records": batch}
    topics = [{"name": _record_topic(number), "partition_data": [partition]}]
    return {"transactional_id": None, "acks": -1, "timeout": timedelta(seconds=30), "topic_data": topics}


COMMIT, JOIN, INIT = api("offset_commit", 8), api("join_group", 9), api("init_producer_id", 4)
ADD_PARTITIONS = api("add_partitions_to_txn", 3)
CREATE, PRODUCE, FETCH = api("create_topics", 7), api("produce", 9), api("fetch", 12)


def _fetch() -> dict[str, Any]:
    """Of all records of all topics."""
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 2**31 - 1}
    return {
        "replica_id": -1,
        "max_wait": timedelta(0),
        "min_bytes": 0,
        "max_bytes": 2**31 - 1,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": _record_topic(number), "partitions": [partition]} for number in range(RECORD_TOPICS)],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


def _record_topic(number: int) -> str:
    return f"records-{number % RECORD_TOPICS}"


# Filling -------------------------------------------------------------------------------------------------------------


def fill_with_requests(
    api: Api,
    make: Callable[[int], dict[str, Any]],
    error: Callable[[Any], int],
    stack: ExitStack,
    address: str,
    max_bytes: int,
    pipelined: int = PIPELINED,
) -> Filled:
    """Many requests on some connections, ``pipelined`` at a time on each. ``error(answer)``: its error code."""
    sockets = [stack.enter_context(FrameSocket(*parse_address(address), ANSWER_TIMEOUT_S)) for _ in range(CONNECTIONS)]
    accepted = sent_bytes = number = 0
    while sent_bytes < max_bytes:
        for socket in sockets:
            frames = b"".join(api.request(index, **make(index)) for index in range(number, number + pipelined))
            socket.send(frames)
            sent_bytes += len(frames)
            number += pipelined
        errors = _receive(sockets, api, number - pipelined * CONNECTIONS, pipelined, error)
        accepted += sum(code in ACCEPTED for code in errors)
        if wrong := set(errors) - EXPECTED:
            raise BenchError(f"{api.name} was answered with error {min(wrong)}")
        if any(code in REFUSED for code in errors):
            return Filled(accepted, True, sent_bytes)
    return Filled(accepted, False, sent_bytes)


def _receive(
    sockets: Sequence[FrameSocket], api: Api, number: int, pipelined: int, error: Callable[[Any], int]
) -> list[int]:
    """The error codes of the answers. ``number``: of the first request of the first connection."""
    codes = []
    for socket in sockets:
        for index in range(number, number + pipelined):
            codes.append(error(api.read_answer(socket.receive(), index)))
        number += pipelined
    return codes


def fill_records(stack: ExitStack, address: str, max_bytes: int) -> Filled:
    """Topics with records."""
    client = stack.enter_context(Client(address))
    topics = [_new_topic(_record_topic(number)) for number in range(RECORD_TOPICS)]
    client.ask(CREATE, topics=topics, timeout=timedelta(seconds=30), validate_only=False)
    batches = -(-max_bytes // BATCH_BYTES)
    for number in range(batches):
        answer = client.ask(PRODUCE, **_produce(number))
        if int(answer.responses[0].partition_responses[0].error_code):
            raise BenchError(f"Produce was answered with {answer}")
    return Filled(batches, False, batches * BATCH_BYTES)


def fill_transactions(stack: ExitStack, address: str, max_bytes: int) -> Filled:
    """Transactions with many partitions."""
    client = stack.enter_context(Client(address))
    topics = [_new_topic(_transaction_topic(number)) for number in range(TRANSACTION_TOPICS)]
    client.ask(CREATE, topics=topics, timeout=timedelta(seconds=30), validate_only=False)
    number = sent_bytes = 0
    while sent_bytes < max_bytes:
        producer = client.ask(INIT, **_init_producer(number))
        if producer.error_code in REFUSED:
            return Filled(number, True, sent_bytes)
        if producer.error_code == LOADING:
            continue
        partitions = _add_partitions(number, producer)
        sent_bytes += len(ADD_PARTITIONS.request(0, **partitions))
        answer = client.ask(ADD_PARTITIONS, **partitions)
        codes = {
            partition.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for partition in topic.results_by_partition
        }
        if codes != {0}:
            raise BenchError(f"AddPartitionsToTxn was answered with error {max(codes)}")
        number += 1
    return Filled(number, False, sent_bytes)


def fill_half_frames(stack: ExitStack, address: str, max_bytes: int) -> Filled:
    """Connections that send half of a request."""
    count = -(-max_bytes // HALF_FRAME_BYTES)
    head = (2 * HALF_FRAME_BYTES).to_bytes(4, "big")
    for _ in range(count):
        try:
            stack.enter_context(Client(address)).post(head + bytes(HALF_FRAME_BYTES))
        except (ConnectionEnded, OSError):
            raise BenchError("the server closed the newest connection instead of the oldest") from None
    return Filled(count, False, count * HALF_FRAME_BYTES)


def fill_unread_responses(stack: ExitStack, address: str, max_bytes: int) -> Filled:
    """Connections that fetch all records and do not read the responses."""
    record_bytes = fill_records(stack, address, max_bytes // FETCHED_PART).sent_bytes
    count = -(-max_bytes // record_bytes)
    for _ in range(count):
        stack.enter_context(Client(address)).send(FETCH, **_fetch())
    return Filled(count, False, count * record_bytes)


def _commit_error(answer: Any) -> int:
    return int(answer.topics[0].partitions[0].error_code)


def _error(answer: Any) -> int:
    return int(answer.error_code)


def _topics_error(answer: Any) -> int:
    return max(int(topic.error_code) for topic in answer.topics)


FILLINGS = (
    Filling("groups", "groups with one offset", partial(fill_with_requests, COMMIT, _commit(""), _commit_error)),
    Filling(
        "metadata",
        "groups with an offset and 4 kB",
        partial(fill_with_requests, COMMIT, _commit("x" * METADATA_BYTES), _commit_error),
    ),
    Filling("members", "groups with one member", partial(fill_with_requests, JOIN, _join(1, "instance"), _error)),
    Filling("pending", "unused member ids", partial(fill_with_requests, JOIN, _join(10_000, None), _error)),
    Filling("ids", "transactional ids", partial(fill_with_requests, INIT, _init_producer, _error)),
    Filling(
        "transactions",
        f"transactions with {TRANSACTION_TOPICS} partitions",
        fill_transactions,
        ("max_partitions=1000000",),
    ),
    Filling(
        "topics",
        f"topics, {TOPICS_A_REQUEST} a request",
        partial(fill_with_requests, CREATE, _create, _topics_error, pipelined=1),
        ("max_partitions=1000000",),
    ),
    Filling("records", "records", fill_records, ("total_retention_bytes={part}",)),
    Filling("unread", "unread responses", fill_unread_responses, ("queued_max_response_bytes={part}",)),
    Filling("half", "half requests of 4 MB", fill_half_frames, ("queued_max_request_bytes={part}",)),
)
