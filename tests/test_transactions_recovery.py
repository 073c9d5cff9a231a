"""What transactions leave behind: after crashes at every step, after bugs, and in groups that sleep or are deleted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from stage.ports import HandLog, Place
from stage.requests import GROUP, fetch
from stage.transactions import TIMEOUT_MS, TX, TransactionWorld, fetched, offset, opened

from callboard.actors.errors import ErrorCode
from callboard.actors.group.actor import IDLE_MS
from callboard.actors.group.offsets import GroupData
from callboard.actors.messages import DeleteGroup, FetchedOffset
from callboard.actors.transactions.messages import EndTransaction, InitProducerId
from callboard.actors.transactions.rules import COMPLETE_COMMIT, INACTIVE_STATES, ONGOING

NONE = ErrorCode.NONE
UNSTABLE = FetchedOffset(0, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)

# After a crash -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", range(8))
@pytest.mark.parametrize("committed", [True, False])
def test_whatever_was_lost_the_end_is_the_same_once_it_was_promised(rounds: int, committed: bool) -> None:
    """The log stops after so many rounds. Who was told that the transaction ended finds it ended as asked for."""
    log = HandLog()
    promised = played(TransactionWorld(log=log, holds_back=True), rounds, committed)
    after = restarted(log)
    if not promised and TX in after.table:
        after.advance(TIMEOUT_MS + 1000)
    assert offset(after) == (5 if promised and committed else -1)
    assert after.table.get(TX) is None or after.table[TX].state in INACTIVE_STATES


def played(world: TransactionWorld, rounds: int, committed: bool) -> bool:
    """A transaction, with a log that keeps so many rounds; whether its end was answered."""
    producer, place = (1000, 0), Place()
    steps: list[Callable[[], Place]] = [
        lambda: world.ask_about(InitProducerId(TX, TIMEOUT_MS)),
        lambda: world.add_offsets(producer),
        lambda: world.commit(producer, 5),
        lambda: world.end(producer, committed),
    ]
    for step in steps:
        place = step()
        while place.is_waiting and rounds:
            world.keep()
            rounds -= 1
        if place.is_waiting:
            return False
    while world.log.in_flight and rounds:
        world.keep()
        rounds -= 1
    return place.error is NONE


def restarted(log: HandLog) -> TransactionWorld:
    """Another process on what is durable."""
    durable = HandLog()
    durable.durable = list(log.durable)
    return TransactionWorld(log=durable)


def test_an_open_transaction_goes_on_after_a_restart() -> None:
    world = TransactionWorld()
    producer = opened(world)
    after = restarted(world.log)
    assert fetched(after) == UNSTABLE
    assert after.commit(producer, 6).value.errors == (NONE,)
    assert after.end(producer).error is NONE
    assert offset(after) == 6


def test_producer_ids_and_epochs_go_on_after_a_restart() -> None:
    world = TransactionWorld()
    producer = world.init()
    after = restarted(world.log)
    assert after.init() == (producer[0], producer[1] + 1)
    assert after.init("another")[0] > producer[0]


def test_a_failed_log_is_told_and_leaves_nothing_pending() -> None:
    world = TransactionWorld()
    producer = world.init()
    world.add_offsets(producer)
    world.holds_back = True
    committing = world.commit(producer, 5)
    world.fail()
    assert committing.value.errors == (ErrorCode.NOT_COORDINATOR,)
    ending = world.end(producer)
    world.fail()
    assert ending.error is ErrorCode.NOT_COORDINATOR
    assert world.table[TX].state is ONGOING
    world.holds_back = False
    assert world.end(producer).error is NONE
    assert fetched(world).error is NONE


# Groups --------------------------------------------------------------------------------------------------------------


def test_a_group_with_an_open_transaction_does_not_sleep() -> None:
    world = TransactionWorld()
    producer = world.init(timeout_ms=900_000)
    world.add_offsets(producer)
    world.commit(producer, 5)
    world.advance(3 * IDLE_MS)
    assert GROUP not in world.directory.passivated
    world.end(producer)
    world.advance(3 * IDLE_MS)
    assert GROUP in world.directory.passivated
    assert offset(world) == 5


def test_a_deleted_group_loses_its_pending_offsets_too() -> None:
    world = TransactionWorld()
    producer = opened(world)
    assert world.post(DeleteGroup(GROUP)).value is NONE
    assert offset(world) == -1
    assert world.end(producer).error is NONE
    assert offset(world) == -1
    assert offset(restarted(world.log)) == -1


def test_a_bug_in_the_group_costs_no_pending_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    world = TransactionWorld()
    producer = opened(world)
    with monkeypatch.context() as broken:
        broken.setattr(GroupData, "fetch", lambda *_: 1 / 0)
        assert world.post(fetch()).errors
    world.end(producer)
    assert offset(world) == 5


def test_a_bug_while_offsets_are_committed_lets_the_transaction_end(monkeypatch: pytest.MonkeyPatch) -> None:
    world = TransactionWorld()
    producer = opened(world)
    with monkeypatch.context() as broken:
        broken.setattr("callboard.actors.group.actor.txn_commit_records", lambda *_: 1 / 0)
        assert world.commit(producer, 6).errors
    assert world.end(producer).error is NONE
    assert world.table[TX].state is COMPLETE_COMMIT
    assert offset(world) == 5


def test_a_group_with_too_many_bugs_still_hears_of_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    world = TransactionWorld()
    producer = opened(world)
    with monkeypatch.context() as broken:
        broken.setattr(GroupData, "fetch", lambda *_: 1 / 0)
        for _ in range(5):
            world.post(fetch())
    assert world.commit(producer, 6).value.errors == (ErrorCode.COORDINATOR_NOT_AVAILABLE,)
    world.end(producer)
    world.advance(61_000)
    world.post(fetch())
    assert offset(world) == 5


def test_random_schedules_end_alike() -> None:
    """Whatever actor has its turn first, a pipeline of requests is answered and the offset is there."""
    for seed in range(25):
        world = TransactionWorld(seed=seed)
        producer = opened(world)
        ending = world.ask_about(EndTransaction(TX, *producer, committed=True))
        assert ending.error is NONE
        assert offset(world) == 5, f"seed {seed}"
