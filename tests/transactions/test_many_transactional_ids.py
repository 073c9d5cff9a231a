"""A partition with many transactional ids is loaded and lost in pieces."""

from __future__ import annotations

from typing import Any

from actor_system.transactions import TX, TransactionSimulation
from work_counter import WorkCounter

from callboard.actors.messages import PartitionGained, PartitionLoaded, PartitionLost
from callboard.actors.records import TransactionValue
from callboard.actors.transactions.messages import TransactionsLoaded
from callboard.actors.transactions.rules import ONGOING

IDS = 2_000
TURN_MAX = 16_000
"""Executed lines. A turn handles 128 ids, and resuming one takes about 60; all would be 120,000."""

OPEN = TransactionValue(7, 0, 60_000, ONGOING, start_timestamp_ms=1, last_update_timestamp_ms=1)


def longest_turn(simulation: TransactionSimulation, message: Any) -> int:
    """The lines of the longest turn that a message to TransactionsActor causes."""
    counter = WorkCounter()
    with counter.counting():
        simulation.transactions.tell(message)
        while simulation.dispatcher.step():
            counter.end_piece()
    return counter.longest


def test_partition_with_many_ids_is_activated_and_lost_in_pieces() -> None:
    simulation = TransactionSimulation()
    table = simulation.table
    number = table.number_of(TX)
    partition = simulation.settings.offsets_topic_num_partitions + number
    names = [name for name in (f"id-{n}" for n in range(IDS * 200)) if table.number_of(name) == number][:IDS]
    assert len(names) == IDS
    deadlines = simulation.deadlines
    simulation.transactions.tell(PartitionLost(partition, 0))
    simulation.transactions.tell(PartitionGained(partition, 1))
    simulation.transactions.tell(TransactionsLoaded(partition, 1, dict.fromkeys(names, OPEN)))
    simulation.run()
    assert not table

    assert longest_turn(simulation, PartitionLoaded(partition, 1)) < TURN_MAX
    assert list(table) == names
    assert table.memory_bytes > 0
    assert simulation.deadlines == deadlines + IDS

    assert longest_turn(simulation, PartitionLost(partition, 1)) < TURN_MAX
    assert not table
    assert table.memory_bytes == 0
    assert simulation.deadlines == deadlines
