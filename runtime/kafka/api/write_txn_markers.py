"""WriteTxnMarkers (27): the coordinator of a transaction ends it in partitions of this node. For nodes of the cluster.

A node proves by its client id that it knows the secret of the cluster, see ``cluster.credentials``. Anybody else is
denied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ....actors.errors import ErrorCode
from ....actors.records import MarkerRecord
from ....actors.steps import Steps, pieces
from ....actors.transactions.messages import WriteMarker
from ..call import Body, Call
from ..codec.step_writer import write_in_steps
from ..peer_gate import PeerGate, Sender
from ..scatter_gather import ScatterGather

CLIENT_ERRORS = {ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_LEADER_OR_FOLLOWER}
"""Kafka's codes for the partitions of markers."""

TopicPartition = tuple[str, int]


class MarkerEntry(NamedTuple):
    """One marker of the request. ``message`` has the ``partitions`` that are not in ``moved``."""

    message: WriteMarker
    partitions: Sequence[TopicPartition]
    moved: frozenset[TopicPartition]


def handle(call: Call) -> Steps[None]:
    gate = call.services.peer_gate
    sender = None if gate is None else gate.admit(call.connection.client_id, call.connection)
    if gate is None or sender is None:
        call.respond_with_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return
    entries = []
    for marker in call.request.markers:
        entries.append((yield from marker_entry(marker, gate, sender)))
    messages = [entry.message for entry in entries]
    post = call.services.transactions.post
    ScatterGather(call, messages, lambda replies: encode(call, entries, replies), post).send_next_batch()


def marker_entry(marker: Any, gate: PeerGate, sender: Sender) -> Steps[MarkerEntry]:
    requested = ((str(topic.name), int(index)) for topic in marker.topics for index in topic.partition_indexes)
    partitions: list[TopicPartition] = []
    moved: set[TopicPartition] = set()
    for piece in pieces(requested):
        partitions += piece
        moved.update(partition for partition in piece if not gate.accepts(sender, *partition))
        yield
    record = MarkerRecord(
        int(marker.producer_id), marker.producer_epoch, marker.transaction_result, marker.coordinator_epoch
    )
    kept = tuple(dict.fromkeys(partition for partition in partitions if partition not in moved))
    return MarkerEntry(WriteMarker(record, kept), partitions, frozenset(moved))


def encode(call: Call, entries: Sequence[MarkerEntry], replies: Sequence[Sequence[ErrorCode]]) -> Body:
    results = (
        call.make(
            "WritableTxnMarkerResult", producer_id=entry.message.marker.producer_id, topics=topics(call, entry, errors)
        )
        for entry, errors in zip(entries, replies, strict=True)
    )
    return write_in_steps(call.make("WriteTxnMarkersResponse", markers=results))


def topics(call: Call, entry: MarkerEntry, errors: Sequence[ErrorCode]) -> Iterator[Any]:
    outcomes = dict(zip(entry.message.partitions, errors, strict=True))
    grouped: dict[str, list[Any]] = {}
    for topic, index in entry.partitions:
        error = outcomes.get((topic, index), ErrorCode.NOT_LEADER_OR_FOLLOWER)
        code = CLIENT_ERRORS.get(error, error)
        result = call.make("WritableTxnMarkerPartitionResult", partition_index=index, error_code=code)
        grouped.setdefault(topic, []).append(result)
    for name, results in grouped.items():
        yield call.make("WritableTxnMarkerTopicResult", name=name, partitions=tuple(results))
