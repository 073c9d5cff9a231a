"""In a cluster only the leader of a topic, while it has its lease, answers requests for its records."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from topic_api_helpers import (
    LATEST,
    ApiRequest,
    FakeServices,
    fetch,
    fetch_request,
    fetched_partitions,
    list_offsets,
    made,
    newest,
    node,
    produce,
    produce_request,
)
from topics_helpers import producer_batch

from callboard.actors.errors import ErrorCode
from callboard.runtime.kafka.cluster_view import SingleNode
from callboard.runtime.settings.address import Address
from callboard.runtime.settings.listeners import PLAINTEXT

__all__ = ["node"]  # the fixture

NO_ACKS = 0


class WithoutLease(SingleNode):
    def has_lease(self) -> bool:
        return False


def delete_records(node: FakeServices) -> int:
    def build(types: Any) -> Any:
        partition = types.DeleteRecordsPartition(partition_index=0, offset=0)
        topic = types.DeleteRecordsTopic(name="plays", partitions=(partition,))
        return types.DeleteRecordsRequest(topics=(topic,), timeout=timedelta(seconds=1))

    [topic] = ApiRequest(node, "delete_records", newest("delete_records"), build).answer.topics
    return int(topic.partitions[0].error_code)


def errors(node: FakeServices) -> set[int]:
    """Those of all requests for records."""
    topic = node.topics.get("plays")
    assert topic is not None
    [fetched] = fetch(node, ("plays", 0, topic.partitions.peek(0).end_offset))
    produced = produce(node, "plays", producer_batch())
    listed = list_offsets(node, "plays", LATEST)
    return {*(int(each.error_code) for each in (fetched, produced, listed)), delete_records(node)}


def test_node_that_does_not_lead_refuses_all_requests_for_records(node: FakeServices) -> None:
    topic = made(node)
    assert errors(node) == {ErrorCode.NONE}
    topic.give_up()
    assert errors(node) == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    topic.lead(3, 0)
    assert errors(node) == {ErrorCode.NONE}


def test_leader_without_lease_refuses_all_requests_for_records(node: FakeServices) -> None:
    made(node)
    node.cluster = WithoutLease("cluster", 1, {PLAINTEXT: Address("stage.example", 9092)})
    assert errors(node) == {ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_refused_produce_without_acks_closes_the_connection(node: FakeServices) -> None:
    made(node).give_up()
    request = produce_request(node, "plays", producer_batch(), acks=NO_ACKS)
    assert request.is_silent
    assert request.connection.is_closed


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        (-1, ErrorCode.NONE),
        (2, ErrorCode.FENCED_LEADER_EPOCH),
        (3, ErrorCode.NONE),
        (4, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_epoch_of_the_client_is_compared_with_the_leaders(node: FakeServices, epoch: int, error: ErrorCode) -> None:
    made(node).lead(3, 0)
    assert fetch(node, ("plays", 0, 0), leader_epoch=epoch)[0].error_code == error
    listed = list_offsets(node, "plays", LATEST, leader_epoch=epoch)
    assert (listed.error_code, listed.leader_epoch) == (error, -1 if error else 3)


def test_waiting_fetch_is_answered_when_leadership_ends(node: FakeServices) -> None:
    topic = made(node)
    waiting = fetch_request(node, ("plays", 0, 0), max_wait_ms=500)
    topic.give_up()
    [partition] = fetched_partitions(waiting)
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_partitions_of_a_new_leader_are_empty_and_begin_higher(node: FakeServices) -> None:
    topic = made(node)
    produce(node, "plays", producer_batch(5))
    topic.lead(1, 100)
    assert (topic.held_bytes, list_offsets(node, "plays", LATEST).offset) == (0, 100)
    assert fetch(node, ("plays", 0, 3))[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert produce(node, "plays", producer_batch()).base_offset == 100
