"""Transactions in a cluster: the coordinator of a transaction and the groups of its offsets are on different nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import pytest
from actor_system.requests import GROUP
from actor_system.simulation import EPOCH
from actor_system.transactions import TX, Producer, TransactionSimulation, offset, txn_commit

from callboard.actors.errors import ErrorCode
from callboard.actors.javahash import offsets_partition
from callboard.actors.messages import PartitionLost
from callboard.actors.records import MarkerRecord
from callboard.actors.transactions.environment import OFFSETS_TOPIC
from callboard.actors.transactions.messages import AddPartitions, VerifyPartitions, WriteMarker
from callboard.actors.transactions.rules import COMPLETE_COMMIT, PREPARE_COMMIT
from callboard.actors.transactions.timeouts import MOVING_RETRY_MS

NONE = ErrorCode.NONE
FAR: Producer = 77, 3
COMMITTED = MarkerRecord(*FAR, True, 5)
ABORTED = MarkerRecord(*FAR, False, 5)
Target = tuple[str, int]


class FakePeers:
    """``Peers`` whose answers the test gives."""

    def __init__(self) -> None:
        self.checks: list[tuple[AddPartitions | VerifyPartitions, Callable[[ErrorCode], None]]] = []
        self.markers: list[tuple[MarkerRecord, Collection[Target], Callable[[Mapping[Target, ErrorCode]], None]]] = []

    def check(self, request: AddPartitions | VerifyPartitions, done: Callable[[ErrorCode], None]) -> None:
        self.checks.append((request, done))

    def write_marker(
        self,
        marker: MarkerRecord,
        partitions: Collection[Target],
        done: Callable[[Mapping[Target, ErrorCode]], None],
    ) -> None:
        self.markers.append((marker, partitions, done))

    def leads(self, topic: str) -> bool:
        return topic != "far"


class Node:
    """A node that has no transactional ids any more, or no groups."""

    def __init__(self, *, holds_appends: bool = False) -> None:
        self.peers = FakePeers()
        self.simulation = TransactionSimulation(peers=self.peers, holds_appends=holds_appends)
        self.group_partition = offsets_partition(GROUP, len(self.simulation.directory.partitions))

    def lose_transactions(self) -> None:
        first = len(self.simulation.directory.partitions)
        number = first + self.simulation.table.number_of(TX)
        self.simulation.transactions.tell(PartitionLost(number, EPOCH))
        self.simulation.run()

    def lose_groups(self) -> None:
        self.simulation.directory.coordinator.tell(PartitionLost(self.group_partition, EPOCH))
        self.simulation.run()

    def answer_check(self, error: ErrorCode) -> None:
        _request, done = self.peers.checks.pop(0)
        done(error)
        self.simulation.run()

    def write(self, marker: MarkerRecord, *others: Target) -> list[ErrorCode]:
        message = WriteMarker(marker, ((OFFSETS_TOPIC, self.group_partition), *others))
        return list(self.simulation.ask_transactions(message).value)


@pytest.fixture
def receiver() -> Node:
    """The coordinator of the transaction is another node."""
    node = Node()
    node.lose_transactions()
    return node


@pytest.fixture
def coordinator() -> Node:
    """The group of the offsets is on another node."""
    node = Node()
    node.lose_groups()
    return node


@pytest.mark.parametrize("version", [3, 5])
def test_offsets_are_pending_when_the_coordinator_elsewhere_has_agreed(receiver: Node, version: int) -> None:
    reply = receiver.simulation.ask_transactions(txn_commit(FAR, 7, version=version))
    request, _ = receiver.peers.checks[0]
    assert type(request) is (AddPartitions if version == 5 else VerifyPartitions)
    assert set(request.partitions) == {(OFFSETS_TOPIC, receiver.group_partition)}
    assert reply.is_waiting
    receiver.answer_check(NONE)
    assert reply.value.errors == (NONE,)
    assert receiver.write(COMMITTED) == [NONE]
    assert offset(receiver.simulation) == 7


@pytest.mark.parametrize(
    ("error", "answered"),
    [
        (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
def test_refusal_elsewhere_is_answered(receiver: Node, error: ErrorCode, answered: ErrorCode) -> None:
    reply = receiver.simulation.ask_transactions(txn_commit(FAR, 7))
    receiver.answer_check(error)
    assert reply.value.errors == (answered,)
    assert not receiver.simulation.markers()


def test_marker_ends_checks_that_wait(receiver: Node) -> None:
    """The answer was given before the decision, so the offsets would be behind the marker for ever."""
    reply = receiver.simulation.ask_transactions(txn_commit(FAR, 7))
    assert receiver.write(ABORTED) == [NONE]
    receiver.answer_check(NONE)
    assert reply.value.errors == (ErrorCode.COORDINATOR_NOT_AVAILABLE,)


def test_check_of_an_earlier_ownership_does_not_count(receiver: Node) -> None:
    """Another node may have had the partition in between, and its marker."""
    reply = receiver.simulation.ask_transactions(txn_commit(FAR, 7))
    receiver.lose_groups()
    receiver.simulation.directory.partitions[receiver.group_partition].epoch += 1
    receiver.answer_check(NONE)
    assert reply.value.errors == (ErrorCode.COORDINATOR_NOT_AVAILABLE,)


def test_group_that_is_not_here_is_refused_without_a_check(coordinator: Node) -> None:
    reply = coordinator.simulation.ask_transactions(txn_commit(FAR, 7))
    assert reply.value.errors == (ErrorCode.NOT_COORDINATOR,)
    assert coordinator.peers.checks == []


def test_marker_of_an_earlier_coordinator_is_refused(receiver: Node) -> None:
    assert receiver.write(COMMITTED) == [NONE]
    assert receiver.write(COMMITTED._replace(coordinator_epoch=4)) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    assert receiver.write(COMMITTED) == [NONE]
    assert receiver.simulation.markers() == [COMMITTED, COMMITTED]


def test_marker_goes_to_topics_of_this_node_only(receiver: Node) -> None:
    assert receiver.write(ABORTED, ("near", 2), ("far", 0)) == [NONE, NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert receiver.simulation.topics.ended == [("near", 2, ABORTED)]


def test_marker_for_a_group_elsewhere_is_refused(coordinator: Node) -> None:
    assert coordinator.write(ABORTED) == [ErrorCode.NOT_COORDINATOR]


def test_marker_follows_offsets_in_flight() -> None:
    node = Node(holds_appends=True)
    node.lose_transactions()
    commit = node.simulation.ask_transactions(txn_commit(FAR, 7))
    node.answer_check(NONE)
    written = node.simulation.ask_transactions(WriteMarker(COMMITTED, ((OFFSETS_TOPIC, node.group_partition),)))
    assert commit.is_waiting
    assert written.is_waiting
    node.simulation.complete_all_appends()
    assert commit.value.errors == (NONE,)
    assert [type(record) for _partition, record in node.simulation.log.durable][-1] is MarkerRecord
    assert offset(node.simulation) == 7


def test_coordinator_completes_when_the_other_node_has_the_marker(coordinator: Node) -> None:
    simulation = coordinator.simulation
    producer = simulation.init()
    simulation.add_offsets(producer)
    simulation.end(producer)
    [(marker, partitions, done)] = coordinator.peers.markers
    assert marker == MarkerRecord(*producer, True, EPOCH)
    assert list(partitions) == [(OFFSETS_TOPIC, coordinator.group_partition)]
    assert simulation.table[TX].state is PREPARE_COMMIT
    done(dict.fromkeys(partitions, NONE))
    simulation.run()
    assert simulation.table[TX].state is COMPLETE_COMMIT
    assert simulation.markers() == []


def test_marker_is_sent_again_until_it_is_written(coordinator: Node) -> None:
    simulation = coordinator.simulation
    producer = simulation.init()
    simulation.add_offsets(producer)
    simulation.end(producer, committed=False)
    for attempt in range(3):
        _marker, partitions, done = coordinator.peers.markers[attempt]
        done(dict.fromkeys(partitions, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        simulation.run()
        simulation.advance(10 * MOVING_RETRY_MS)
    assert len(coordinator.peers.markers) == 4
    _marker, partitions, done = coordinator.peers.markers[3]
    done(dict.fromkeys(partitions, NONE))
    simulation.run()
    assert simulation.ask_transactions(AddPartitions(TX, *producer, frozenset({("near", 0)}))).value is NONE
