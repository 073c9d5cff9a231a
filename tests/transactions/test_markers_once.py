"""Each log partition of a transaction gets exactly one marker.

A second one would end the next transaction of the same producer, whose offsets may precede it in the log.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from actor_system.requests import GROUP
from actor_system.transactions import TX, Producer, TransactionSimulation, offset

from callboard.actors.errors import ErrorCode
from callboard.actors.javahash import offsets_partition
from callboard.actors.messages import Append
from callboard.actors.ports import Entry
from callboard.actors.records import MarkerRecord
from callboard.actors.transactions.completion import MARKERS_PER_TURN, Completion
from callboard.actors.transactions.rules import COMPLETE_COMMIT, Transaction

NONE, REFUSED = ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR
RETRY_MS = 1100


def groups_in_partitions(count: int) -> list[str]:
    """Groups of different log partitions."""
    by_partition = {offsets_partition(name, 50): name for name in (GROUP, *(f"g{number}" for number in range(100)))}
    return list(by_partition.values())[:count]


def commit_in(simulation: TransactionSimulation, producer: Producer, groups: list[str], value: int) -> None:
    for group_id in groups:
        simulation.add_offsets(producer, group_id)
        simulation.commit(producer, value, group_id=group_id)


def markers(simulation: TransactionSimulation) -> Counter[tuple[int, MarkerRecord]]:
    """How often each log partition has each marker."""
    found = ((partition, record) for partition, record in simulation.log.durable if isinstance(record, MarkerRecord))
    return Counter(found)


def is_marker(entry: Entry) -> bool:
    return isinstance(entry.records[0], MarkerRecord)


@pytest.mark.parametrize("partitions", [1, 2, 3])
@pytest.mark.parametrize("committed", [True, False])
def test_end_of_transaction_writes_one_marker_per_partition(partitions: int, committed: bool) -> None:
    simulation = TransactionSimulation()
    producer = simulation.init()
    commit_in(simulation, producer, groups_in_partitions(partitions), 7)
    simulation.end(producer, committed)
    assert sorted(markers(simulation).values()) == [1] * partitions


@pytest.mark.parametrize("commits", [1, 2, 3])
def test_end_while_commits_are_in_flight_writes_one_marker_after_the_last_of_them(commits: int) -> None:
    simulation = TransactionSimulation()
    producer = simulation.init()
    simulation.add_offsets(producer)
    simulation.holds_appends = True
    for value in range(commits):
        simulation.commit(producer, value)
    simulation.end(producer)
    simulation.complete_all_appends()
    assert list(markers(simulation).values()) == [1]
    assert isinstance(simulation.log.durable[-2][1], MarkerRecord), "only the completion record follows"


@pytest.mark.parametrize("refused", range(3))
def test_retry_after_a_refused_marker_writes_only_that_one(refused: int) -> None:
    simulation = TransactionSimulation()
    producer = simulation.init()
    commit_in(simulation, producer, groups_in_partitions(3), 7)
    simulation.holds_appends = True
    simulation.end(producer)
    simulation.complete_append()  # the decision
    assert all(map(is_marker, simulation.log.in_flight))
    simulation.log.settle([REFUSED if number == refused else NONE for number in range(3)])
    simulation.run()
    simulation.advance(RETRY_MS)
    simulation.complete_all_appends()
    simulation.advance(10 * RETRY_MS)
    assert sorted(markers(simulation).values()) == [1, 1, 1]
    assert simulation.table[TX].state is COMPLETE_COMMIT


def test_next_transaction_stays_open_after_the_marker_of_the_one_before() -> None:
    simulation = TransactionSimulation()
    producer = simulation.init()
    commit_in(simulation, producer, [GROUP], 1)
    simulation.end(producer)
    commit_in(simulation, producer, [GROUP], 2)
    simulation.advance(10 * RETRY_MS)
    assert simulation.group().data.pending, "a second marker of the first transaction has ended this one"
    simulation.end(producer)
    assert offset(simulation) == 2
    assert sorted(markers(simulation).values()) == [2], "both transactions have the same producer and epoch"


def plant_second_marker(patch: pytest.MonkeyPatch) -> None:
    handle = Completion._handle_marker_written

    def write_again(
        self: Completion, transaction: Transaction, marker: MarkerRecord, target: tuple[str, int], error: ErrorCode
    ) -> None:
        handle(self, transaction, marker, target, error)
        if not transaction.markers_missing and error is NONE:
            self._environment.writer.tell(Append(self._owner, Entry(target[1], (marker,)), lambda error: None))

    patch.setattr(Completion, "_handle_marker_written", write_again)


def test_planted_second_marker_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_second_marker(monkeypatch)
    simulation = TransactionSimulation()
    producer = simulation.init()
    commit_in(simulation, producer, groups_in_partitions(2), 7)
    simulation.end(producer)
    assert sorted(markers(simulation).values()) == [1, 2]


def test_transaction_with_many_partitions_is_ended_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other transactions and groups have turns in between."""
    simulation = TransactionSimulation()
    producer = simulation.init()
    partitions = [("plays", number) for number in range(300)]
    simulation.add_partitions(producer, *partitions)
    ended_before_turns: list[int] = []
    end_in_topics = Completion._end_in_topics

    def count_and_end(completion: Completion, *arguments: Any) -> None:
        ended_before_turns.append(len(simulation.topics.ended))
        end_in_topics(completion, *arguments)

    monkeypatch.setattr(Completion, "_end_in_topics", count_and_end)
    simulation.end(producer)
    assert sorted(ended[:2] for ended in simulation.topics.ended) == partitions
    assert ended_before_turns == list(range(0, 300, MARKERS_PER_TURN))
    assert simulation.table[TX].state is COMPLETE_COMMIT
