"""Transactions after crashes at every step, after bugs, and in passivated or deleted groups."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from actor_system.ports import ManualLog, RecordedReply
from actor_system.requests import GROUP, fetch
from actor_system.transactions import TIMEOUT_MS, TX, TransactionSimulation, fetched, offset, open_transaction

from callboard.actors.errors import ErrorCode
from callboard.actors.group.active_group import IDLE_MS
from callboard.actors.group.offsets import GroupData
from callboard.actors.messages import DeleteGroup, FetchedOffset
from callboard.actors.transactions.messages import EndTransaction, InitProducerId
from callboard.actors.transactions.rules import COMPLETE_COMMIT, INACTIVE_STATES, ONGOING

NONE = ErrorCode.NONE
UNSTABLE = FetchedOffset(0, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)

# After a crash -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", range(8))
@pytest.mark.parametrize("committed", [True, False])
def test_decided_transaction_completes_after_any_loss(rounds: int, committed: bool) -> None:
    """The log stops after some rounds. After a restart, an acknowledged end has its result."""
    log = ManualLog()
    is_acknowledged = run_transaction(TransactionSimulation(log=log, holds_appends=True), rounds, committed)
    restarted = restart(log)
    if not is_acknowledged and TX in restarted.table:
        restarted.advance(TIMEOUT_MS + 1000)
    assert offset(restarted) == (5 if is_acknowledged and committed else -1)
    assert restarted.table.get(TX) is None or restarted.table[TX].state in INACTIVE_STATES


def run_transaction(simulation: TransactionSimulation, rounds_left: int, committed: bool) -> bool:
    """Run a transaction whose log completes only ``rounds_left`` rounds. Returns whether its end got a reply."""
    producer, reply = (1000, 0), RecordedReply()
    steps: list[Callable[[], RecordedReply]] = [
        lambda: simulation.ask_transactions(InitProducerId(TX, TIMEOUT_MS)),
        lambda: simulation.add_offsets(producer),
        lambda: simulation.commit(producer, 5),
        lambda: simulation.end(producer, committed),
    ]
    for step in steps:
        reply = step()
        while reply.is_waiting and rounds_left:
            simulation.complete_append()
            rounds_left -= 1
        if reply.is_waiting:
            return False
    while simulation.log.in_flight and rounds_left:
        simulation.complete_append()
        rounds_left -= 1
    return reply.error is NONE


def restart(log: ManualLog) -> TransactionSimulation:
    """A new simulation with the durable records."""
    durable = ManualLog()
    durable.durable = list(log.durable)
    return TransactionSimulation(log=durable)


def test_open_transaction_continues_after_restart() -> None:
    simulation = TransactionSimulation()
    producer = open_transaction(simulation)
    restarted = restart(simulation.log)
    assert fetched(restarted) == UNSTABLE
    assert restarted.commit(producer, 6).value.errors == (NONE,)
    assert restarted.end(producer).error is NONE
    assert offset(restarted) == 6


def test_producer_ids_and_epochs_continue_after_restart() -> None:
    simulation = TransactionSimulation()
    producer = simulation.init()
    restarted = restart(simulation.log)
    assert restarted.init() == (producer[0], producer[1] + 1)
    assert restarted.init("another")[0] > producer[0]


def test_failed_append_returns_error_and_leaves_nothing_pending() -> None:
    simulation = TransactionSimulation()
    producer = simulation.init()
    simulation.add_offsets(producer)
    simulation.holds_appends = True
    commit_reply = simulation.commit(producer, 5)
    simulation.fail()
    assert commit_reply.value.errors == (ErrorCode.NOT_COORDINATOR,)
    ending = simulation.end(producer)
    simulation.fail()
    assert ending.error is ErrorCode.NOT_COORDINATOR
    assert simulation.table[TX].state is ONGOING
    simulation.holds_appends = False
    assert simulation.end(producer).error is NONE
    assert fetched(simulation).error is NONE


# Groups --------------------------------------------------------------------------------------------------------------


def test_group_with_open_transaction_is_not_passivated() -> None:
    simulation = TransactionSimulation()
    producer = simulation.init(timeout_ms=900_000)
    simulation.add_offsets(producer)
    simulation.commit(producer, 5)
    simulation.advance(3 * IDLE_MS)
    assert GROUP not in simulation.directory.passivated
    simulation.end(producer)
    simulation.advance(3 * IDLE_MS)
    assert GROUP in simulation.directory.passivated
    assert offset(simulation) == 5


def test_deleted_group_loses_pending_offsets() -> None:
    simulation = TransactionSimulation()
    producer = open_transaction(simulation)
    assert simulation.post(DeleteGroup(GROUP)).value is NONE
    assert offset(simulation) == -1
    assert simulation.end(producer).error is NONE
    assert offset(simulation) == -1
    assert offset(restart(simulation.log)) == -1


def test_group_restart_keeps_pending_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = TransactionSimulation()
    producer = open_transaction(simulation)
    with monkeypatch.context() as patch:
        patch.setattr(GroupData, "fetch", lambda *_: 1 / 0)
        assert simulation.post(fetch()).errors
    simulation.end(producer)
    assert offset(simulation) == 5


def test_transaction_completes_after_bug_during_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = TransactionSimulation()
    producer = open_transaction(simulation)
    with monkeypatch.context() as patch:
        patch.setattr("callboard.actors.group.offset_requests.txn_commit_records", lambda *_: 1 / 0)
        assert simulation.commit(producer, 6).errors
    assert simulation.end(producer).error is NONE
    assert simulation.table[TX].state is COMPLETE_COMMIT
    assert offset(simulation) == 5


def test_failed_group_applies_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = TransactionSimulation()
    producer = open_transaction(simulation)
    with monkeypatch.context() as patch:
        patch.setattr(GroupData, "fetch", lambda *_: 1 / 0)
        for _ in range(5):
            simulation.post(fetch())
    assert simulation.commit(producer, 6).value.errors == (ErrorCode.COORDINATOR_NOT_AVAILABLE,)
    simulation.end(producer)
    simulation.advance(61_000)
    simulation.post(fetch())
    assert offset(simulation) == 5


def test_random_schedules_have_same_result() -> None:
    """With any order of the actors' turns, pipelined requests get replies and the offset is visible."""
    for seed in range(25):
        simulation = TransactionSimulation(seed=seed)
        producer = open_transaction(simulation)
        ending = simulation.ask_transactions(EndTransaction(TX, *producer, committed=True))
        assert ending.error is NONE
        assert offset(simulation) == 5, f"seed {seed}"
