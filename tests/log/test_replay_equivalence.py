"""The guarantee of the log: ``live == replay(log) == loaded newest first == replay(compact(log))``, after every step.

A whole coordinator with transactions runs on a log on a simulated disk. hypothesis chooses the steps: commits, joins,
leaves, transactions, deletions, time, restarts, power losses and compactions. Members of both protocols join one group,
so it becomes a consumer group and a classic one again. All requests are complete at the end of a step, so the four
states must be equal for each key.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

import pytest
from actor_system.ports import WALL_MS, ManualLog
from actor_system.requests import commit, join, leave, sync
from actor_system.transactions import PARTITIONS, TransactionSimulation, txn_commit
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from property_examples import examples
from structlog.testing import capture_logs

from callboard.actors.assignors.consumer_protocol import (
    MemberAssignment,
    Subscription,
    write_assignment,
    write_subscription,
)
from callboard.actors.consumer_group.messages import ConsumerHeartbeat
from callboard.actors.consumer_group.records import GroupEpochRecord, MemberRecord
from callboard.actors.errors import ErrorCode
from callboard.actors.group.actor import GroupActor
from callboard.actors.group.offsets import GroupData
from callboard.actors.messages import DeleteGroup, Joined, OffsetDelete, Protocol
from callboard.actors.ports import Appended, Entry
from callboard.actors.records import GroupRecord, OffsetRecord, Record, TransactionRecord, TransactionValue
from callboard.actors.transactions.messages import AddOffsets, EndTransaction, InitProducerId
from callboard.runtime.cli.log.forward import LogReplay
from callboard.runtime.cli.log.newest import comparable_state
from callboard.runtime.cli.log.scan import LoggedRecord, LogPartition, scan_partition
from callboard.runtime.cli.log.verify import describe_differences
from callboard.runtime.disk.disk import read_file
from callboard.runtime.disk.threads import InlineThreads
from callboard.runtime.log.compaction.garbage import publish_and_collect
from callboard.runtime.log.compaction.swap import CompactionSettings, compact
from callboard.runtime.log.manifest import log_files, manifest_folder, segments_folder, write_file
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.log.partition import TOPIC, TRANSACTIONS_TOPIC, folder_name
from callboard.runtime.log.reading.newest import load_partition
from callboard.runtime.log.reading.segment import segment_name
from callboard.runtime.testing.disk.faulty import FaultyDisk, PowerLoss

ROOT = Path("/data")
OFFSETS_PARTITIONS = 50
GROUPS = ("company", "simple")
CONSUMERS = ("A", "B")  # of the consumer protocol
OFFERS = (Protocol("range", write_subscription(Subscription(("t",), None))),)
ASSIGNMENT = write_assignment(MemberAssignment((("t", 0), ("t", 2))))
TRANSACTIONAL_IDS = ("tx", "ty")
CENTURY_MS = 100 * 365 * 24 * 3_600_000
HOUR_MS = 3_600_000


class DiskLog(ManualLog):
    """Writes rounds to a real log when the simulation completes them, and loads them newest first."""

    def __init__(self, disk: FaultyDisk) -> None:
        super().__init__()
        self.disk = disk
        self.changes_of_protocol: set[str] = set()
        self.log = OffsetsLog(
            ROOT,
            OFFSETS_PARTITIONS,
            transactions_partitions=PARTITIONS,
            segment_bytes=700,
            checkpoint_bytes=2500,
            disk=disk,
            clock=lambda: 0.0,
            threads=InlineThreads(),
        )
        self.log.open()
        for number in (*self.log.offsets_partitions_with_data(), *self.log.transactions_partitions_with_data()):
            self.durable += [(number, record) for _, _, record in self.log.read(number)]

    def settle(self, errors: Sequence[ErrorCode]) -> None:
        assert set(errors) == {ErrorCode.NONE} and self._done is not None
        outcomes: list[Appended] = []
        self.log.append(self.in_flight, self.timestamps_ms[-1], outcomes.extend)
        self._note(self.in_flight, outcomes)
        done, self._done = self._done, None
        done(outcomes)

    def _note(self, entries: Sequence[Entry], outcomes: Sequence[Appended]) -> None:
        for entry, outcome in zip(entries, outcomes, strict=True):
            assert outcome.error is ErrorCode.NONE
            self.durable += [(entry.partition, record) for record in entry.records]
            self.changes_of_protocol |= changes_of_protocol(entry.records)

    def groups(self) -> dict[str, GroupData]:
        groups_by_name: dict[str, GroupData] = {}
        for number in self.log.offsets_partitions_with_data():
            loaded = load_partition(partition(number).folder, self.disk)
            assert not loaded.problems and not loaded.quarantined
            groups_by_name |= loaded.unpacked_groups | {
                name: GroupData.unpack(packed) for name, packed in loaded.packed_groups.items()
            }
        return groups_by_name


def changes_of_protocol(records: Sequence[Record]) -> set[str]:
    """What an entry does to a group that has members."""
    deleted: set[type] = {
        type(record)
        for record in records
        if isinstance(record, GroupRecord | GroupEpochRecord) and record.value is None
    }
    changes = set()
    for record in records:
        if isinstance(record, MemberRecord) and record.value and record.value.classic and GroupRecord in deleted:
            changes.add("upgraded")
        if isinstance(record, GroupRecord) and record.value and record.value.members and GroupEpochRecord in deleted:
            changes.add("downgraded")
    return changes


def partition(number: int) -> LogPartition:
    topic, partition_number = (
        (TOPIC, number) if number < OFFSETS_PARTITIONS else (TRANSACTIONS_TOPIC, number - OFFSETS_PARTITIONS)
    )
    return LogPartition(topic, partition_number, ROOT / folder_name(partition_number, topic))


def copy_of(disk: FaultyDisk, folder: Path) -> FaultyDisk:
    """A new disk with a copy of one partition's files."""
    copy = FaultyDisk()
    for source in (folder, segments_folder(folder), manifest_folder(folder)):
        copy.make_folder(source)
        for name in disk.names(source):
            if "." in name.strip("."):
                write_file(copy, source / name, read_file(disk, source / name))
    return copy


class CoordinatorMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = FaultyDisk(1)
        self.disk.make_folder(ROOT)
        self.disk.sync_folder(ROOT.parent)
        self.now_ms = 1_000_000
        self.members: dict[str, tuple[str, int]] = {}
        self.producers: dict[str, tuple[int, int]] = {}
        self.events: set[str] = set()  # all events so far, including those before a power loss
        self.losses: list[frozenset[str]] = []
        self.simulation: TransactionSimulation
        self.log: DiskLog

    @initialize()
    def start(self) -> None:
        self.log = DiskLog(self.disk)
        simulation = TransactionSimulation(log=self.log, seed=7)
        if hasattr(self, "simulation"):
            simulation.random.draw_as(self.simulation.random)  # else it would make the same member ids again
        self.simulation = simulation
        self.simulation.clock.now_ms = self.now_ms
        self.members.clear()
        self.producers.clear()

    # Requests --------------------------------------------------------------------------------------------------------

    @rule(
        group=st.sampled_from(GROUPS),
        number=st.integers(0, 1),
        offset=st.integers(0, 99),
        metadata=st.sampled_from(("", "x" * 200)),
    )
    def commit(self, group: str, number: int, offset: int, metadata: str) -> None:
        member_id, generation = self.members.get(group, ("", -1))
        request = commit(
            offset, member_id=member_id, generation_id=generation, group_id=group, partition=number, metadata=metadata
        )
        self.simulation.post(request)

    @rule(group=st.just(GROUPS[0]))
    def join(self, group: str) -> None:
        reply = self.simulation.post(join(group_id=group, protocols=OFFERS))
        self.simulation.advance(self.simulation.settings.group_initial_rebalance_delay_ms)
        if reply.is_waiting:  # for the other members, which do not join again
            self.simulation.advance(60_000)
        if reply.is_waiting or not isinstance(reply.value, Joined) or reply.value.error:
            return
        response = reply.value
        if response.leader in (response.member_id, ""):
            assignments = {response.member_id: ASSIGNMENT} if response.leader else {}
            self.simulation.post(sync(response.member_id, response.generation_id, assignments, group_id=group))
        self.members[group] = response.member_id, response.generation_id

    @rule(group=st.just(GROUPS[0]))
    def leave(self, group: str) -> None:
        if group in self.members:
            self.simulation.post(leave(self.members.pop(group)[0], group_id=group))

    @rule(name=st.sampled_from(CONSUMERS))
    def consumer_joins(self, name: str) -> None:
        """If the group has classic members, it becomes a consumer group."""
        joins = ConsumerHeartbeat(GROUPS[0], name, 0, rebalance_timeout_ms=60_000, topics=("t",), owned=())
        self.simulation.post(joins)

    @rule(name=st.sampled_from(CONSUMERS))
    def consumer_leaves(self, name: str) -> None:
        """If there are only classic members left, it becomes a classic group."""
        self.simulation.post(ConsumerHeartbeat(GROUPS[0], name, -1))

    @rule(group=st.sampled_from(GROUPS))
    def delete_group(self, group: str) -> None:
        self.simulation.post(DeleteGroup(group))

    @rule(group=st.sampled_from(GROUPS), number=st.integers(0, 2))
    def delete_offset(self, group: str, number: int) -> None:
        self.simulation.post(OffsetDelete(group, (("t", (number,)),)))

    @rule(name=st.sampled_from(TRANSACTIONAL_IDS))
    def init_producer(self, name: str) -> None:
        response = self.simulation.ask_transactions(InitProducerId(name, 60_000, -1, -1)).value
        if not response.error:
            self.producers[name] = response.producer_id, response.producer_epoch

    @rule(name=st.sampled_from(TRANSACTIONAL_IDS), group=st.sampled_from(GROUPS), offset=st.integers(100, 199))
    def commit_in_transaction(self, name: str, group: str, offset: int) -> None:
        if name not in self.producers:
            self.init_producer(name)
        if name in self.producers:
            producer = self.producers[name]
            self.simulation.ask_transactions(AddOffsets(name, *producer, group))
            self.simulation.ask_transactions(txn_commit(producer, offset, group_id=group, name=name, partitions=(0, 1)))

    @rule(name=st.sampled_from(TRANSACTIONAL_IDS), committed=st.booleans())
    def end_transaction(self, name: str, committed: bool) -> None:
        if name in self.producers:
            self.simulation.ask_transactions(EndTransaction(name, *self.producers[name], committed, False))

    @rule(groups=st.lists(st.sampled_from(GROUPS), min_size=4, max_size=12), offset=st.integers(200, 299))
    def commit_often(self, groups: list[str], offset: int) -> None:
        """Write enough to roll segments, so that a compaction has closed segments."""
        for number, group in enumerate(groups):
            self.commit(group, number % 2, offset + number, "x" * 100)

    # Time ------------------------------------------------------------------------------------------------------------

    @rule(ms=st.sampled_from((1000, 15_000, 70_000, 3 * HOUR_MS, 8 * 24 * HOUR_MS)))
    def pass_time(self, ms: int) -> None:
        """Sessions and transactions time out, groups are passivated, offsets expire."""
        tombstones_before = self._tombstones()
        self.simulation.advance(ms)
        self.simulation.run()
        if self._tombstones() > tombstones_before:
            self.events.add("expired")

    def _tombstones(self) -> int:
        return sum(isinstance(record, OffsetRecord) and record.value is None for _, record in self.log.durable)

    # Restarts --------------------------------------------------------------------------------------------------------

    def _check_restart(self, state_before: dict[str, object]) -> None:
        """``state_before``: the acknowledged state before the restart, which must be the state after it."""
        self.now_ms = self.simulation.clock.now_ms
        with capture_logs():
            self.start()
        assert not list(describe_differences(state_before, "before", self._replayed(), "after the start"))
        self.simulation.run()

    @rule()
    def restart(self) -> None:
        state_before = self._live()
        self.log.log.close()
        self._check_restart(state_before)

    @rule()
    def lose_power(self) -> None:
        """All acknowledged records were synced."""
        state_before = self._live()
        if any(isinstance(state, tuple) and state[2] for state in state_before.values()):
            self.events.add("open transaction")
        self.losses.append(frozenset(self.events))
        self.disk = self.disk.crash()
        self._check_restart(state_before)

    @rule(change=st.integers(0, 60), number=st.integers(0, 20))
    def lose_power_while_compacting(self, change: int, number: int) -> None:
        self.disk.faults.crash_at(change)
        with suppress(PowerLoss):
            self.compact(number, 0, 0)
        self.lose_power()

    @rule(number=st.integers(0, 20), retention_ms=st.sampled_from((0, HOUR_MS)), grace_ms=st.sampled_from((0, HOUR_MS)))
    def compact(self, number: int, retention_ms: int, grace_ms: int) -> None:
        """Compact a partition with records under the running log, then publish and collect."""
        numbers = self._numbers()
        if numbers:
            folder = partition(numbers[number % len(numbers)]).folder
            now_ms = WALL_MS + self.simulation.clock.now_ms
            settings = CompactionSettings(now_ms, "test", -1, retention_ms, 1500, chunk_bytes=500)
            if compact(self.disk, folder, settings, clock=lambda: now_ms) is not None:
                self.events.add("compacted")
            publish_and_collect(self.disk, folder, now_ms, grace_ms)

    # Invariants ------------------------------------------------------------------------------------------------------

    @invariant()
    def all_agree(self) -> None:
        if not hasattr(self, "simulation"):
            return
        self.events |= self.log.changes_of_protocol
        live, replayed, compacted = self._live(), self._replayed(), dict[str, object]()
        for number in self._numbers():
            compacted |= self._compacted(partition(number))
        loaded = {name: comparable_state(data) for name, data in self.log.groups().items() if not data.is_empty()}
        groups = {name: state for name, state in live.items() if not isinstance(state, TransactionValue)}
        assert not list(describe_differences(live, "live", replayed, "replayed"))
        assert not list(describe_differences(groups, "live", loaded, "loaded"))
        assert not list(describe_differences(live, "live", compacted, "compacted"))

    def _numbers(self) -> list[int]:
        """The partitions with records."""
        return [*self.log.log.offsets_partitions_with_data(), *self.log.log.transactions_partitions_with_data()]

    def _replayed(self) -> dict[str, object]:
        replayed = dict[str, object]()
        for number in self._numbers():
            replay = LogReplay()  # a marker applies to its own partition only
            for _, _, record in self.log.log.read(number):
                replay.apply(record)
            replayed |= replay.state()
        return replayed

    def _live(self) -> dict[str, object]:
        directory = self.simulation.directory
        groups_by_name = {name: GroupData.unpack(packed) for name, packed in directory.passivated.items()}
        for name, ref in directory.groups.items():
            actor = ref.actor_inbox.actor
            assert isinstance(actor, GroupActor)
            groups_by_name[name] = actor.data
        groups: dict[str, object] = {
            name: comparable_state(data) for name, data in groups_by_name.items() if not data.is_empty()
        }
        return groups | {
            name: transaction.value
            for name, transaction in self.simulation.table.items()
            if transaction.value is not None
        }

    def _compacted(self, log_partition: LogPartition) -> dict[str, object]:
        """Compact a copy twice: the first run keeps tombstones, the second drops them."""
        disk = copy_of(self.disk, log_partition.folder)
        files = log_files(disk, log_partition.folder).files
        end = 1 + max(
            (
                groups_by_name.offset
                for groups_by_name in scan_partition(log_partition, disk)
                if isinstance(groups_by_name, LoggedRecord)
            ),
            default=0,
        )
        next_segment = log_partition.folder / segment_name(max(end, files[-1].base + 1))
        disk.close(disk.open(next_segment, os.O_CREAT | os.O_RDWR))
        for now_ms in (WALL_MS, WALL_MS + CENTURY_MS):
            compact(
                disk,
                log_partition.folder,
                CompactionSettings(now_ms, "test", -1, 0, 1000, chunk_bytes=300),
                clock=lambda: WALL_MS,
            )
        replay = LogReplay()
        for groups_by_name in scan_partition(log_partition, disk):
            if isinstance(groups_by_name, LoggedRecord):
                replay.apply(groups_by_name.record)
        return replay.state()


def test_transactional_offset_counts_only_after_commit_marker() -> None:
    """Checks that the compared states distinguish open from completed transactions."""
    replay = LogReplay()
    replay.apply(TransactionRecord("tx", TransactionValue(1, 0, 60_000, 1)))
    assert replay.state() == {"tx": TransactionValue(1, 0, 60_000, 1)}


def run_random_steps(seed: int, steps: int) -> CoordinatorMachine:
    """Run the machine with many random steps, so that rare events coincide."""
    rng, machine = Random(seed), CoordinatorMachine()
    machine.start()
    for _ in range(steps):
        group, name, number = rng.choice(GROUPS), rng.choice(TRANSACTIONAL_IDS), rng.randrange(21)
        step: Callable[[], None] = rng.choice(
            (
                partial(machine.commit_often, rng.choices(GROUPS, k=8), number),
                partial(machine.join, GROUPS[0]),
                partial(machine.leave, GROUPS[0]),
                partial(machine.delete_offset, group, number % 3),
                partial(machine.commit_in_transaction, name, group, 100 + number),
                partial(machine.commit_in_transaction, name, group, 100 + number),
                partial(machine.end_transaction, name, number % 2 == 0),
                partial(machine.pass_time, rng.choice((1000, 15_000, 70_000, 8 * 24 * HOUR_MS))),
                partial(machine.compact, number, rng.choice((0, HOUR_MS)), rng.choice((0, HOUR_MS))),
                partial(machine.lose_power_while_compacting, rng.randrange(60), number),
                machine.lose_power,
                machine.restart,
            )
        )
        step()
        machine.all_agree()
    return machine


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3))])
def test_random_walk_with_transactions_expiry_compaction_and_power_loss(seed: int) -> None:
    assert {"open transaction", "expired", "compacted"} in run_random_steps(seed, 60).losses


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_random_walk_with_changes_of_the_protocol(seed: int) -> None:
    rng, machine = Random(seed), CoordinatorMachine()
    machine.start()
    for number in range(60):
        often: list[Callable[[], None]] = [
            partial(machine.join, GROUPS[0]),
            partial(machine.consumer_joins, CONSUMERS[0]),
            partial(machine.consumer_leaves, CONSUMERS[0]),
        ]
        steps: tuple[Callable[[], None], ...] = (
            *(3 * often),
            partial(machine.leave, GROUPS[0]),
            partial(machine.commit_often, [GROUPS[0]] * 4, number),
            partial(machine.pass_time, 15_000),
            partial(machine.compact, 0, 0, 0),
            partial(machine.lose_power_while_compacting, rng.randrange(60), 0),
            machine.restart,
        )
        rng.choice(steps)()
        machine.all_agree()
    assert {"upgraded", "downgraded", "compacted"} <= machine.losses[-1]


TestReplayEquivalence = CoordinatorMachine.TestCase
TestReplayEquivalence.settings = settings(max_examples=examples(8), stateful_step_count=30)
