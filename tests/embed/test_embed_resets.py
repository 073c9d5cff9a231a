"""``evict_and_reset``: a group with running consumers continues at other offsets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import CommitFailedError

from callboard import Coordinator, CoordinatorError, ErrorCode, GroupReset, OffsetsOf, ShiftBy
from callboard.runtime.embed.results import Target

RECORDS = 9  # of each partition
SETTINGS: dict[str, Any] = {"group_initial_rebalance_delay_ms": 0, "topics": {"jobs": 2}}


@asynccontextmanager
async def running(data: Path | None = None, **options: Any) -> AsyncIterator[Coordinator]:
    async with asyncio.timeout(60), Coordinator(data, "127.0.0.1:0", **SETTINGS | options) as coordinator:
        yield coordinator


@asynccontextmanager
async def consuming(coordinator: Coordinator) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer with auto commit that has handled all records of both partitions."""
    async with AIOKafkaProducer(bootstrap_servers=coordinator.bootstrap) as producer:
        for number in range(2 * RECORDS):
            await producer.send_and_wait("jobs", b"a job", partition=number % 2)
    consumer = AIOKafkaConsumer(
        "jobs",
        bootstrap_servers=coordinator.bootstrap,
        group_id="g",
        auto_commit_interval_ms=50,
        heartbeat_interval_ms=100,
        auto_offset_reset="earliest",
    )
    await consumer.start()
    try:
        for _ in range(2 * RECORDS):
            await consumer.getone()
        while await committed(coordinator) != {RECORDS}:
            await asyncio.sleep(0.01)
        yield consumer
    finally:
        await consumer.stop()


async def committed(coordinator: Coordinator) -> set[int]:
    return {each.offset for each in (await coordinator.offsets("g")).values()}


def test_consumer_with_auto_commit_continues_at_the_reset_offsets() -> None:
    """aiokafka commits its position without a generation when it has been removed."""

    async def scenario() -> None:
        async with running() as coordinator, consuming(coordinator) as consumer:
            [before] = (await coordinator.describe("g")).members
            done = await coordinator.evict_and_reset("g", {"jobs": 4}, reason="skip 5 jobs")
            assert (done.removed, done.after) == ((before.member_id,), {("jobs", 0): 4, ("jobs", 1): 4})
            assert done.guarded_until is not None
            assert (await coordinator.watch_reset(done.change_id)).is_complete
            described = await coordinator.describe("g")
            assert described.guarded_until is None
            [member] = described.members
            assert member.member_id != before.member_id
            assert [await consumer.position(partition) for partition in consumer.assignment()] == [4, 4]
            assert await committed(coordinator) == {4}

    asyncio.run(scenario())


def test_reset_is_watched_until_its_consumer_is_back_and_undone_by_its_id() -> None:
    async def scenario() -> None:
        async with running() as coordinator, consuming(coordinator) as consumer:
            done = await coordinator.evict_and_reset("g", {"jobs": 4}, reason="skip 5 jobs")
            assert [member.client_id for member in done.members] == [consumer._client._client_id]
            first = await coordinator.reset_progress(done.change_id)
            assert (first.returned, first.expected, first.is_complete) == (0, 1, False)
            assert first.sentence.startswith("0 of 1 member is back after 0.")
            assert "missing since " in first.sentence and " UTC: aiokafka-" in first.sentence
            progress = await coordinator.watch_reset(done.change_id)
            assert (progress.returned, progress.missing, progress.unfetched) == (1, (), ())
            assert progress.is_complete and progress.sentence.endswith(" s, all positions fetched")
            undone = await coordinator.undo_reset(done.change_id)
            assert undone.after == done.before == {("jobs", 0): RECORDS, ("jobs", 1): RECORDS}
            assert (await coordinator.watch_reset(undone.change_id)).is_complete
            assert [await consumer.position(partition) for partition in consumer.assignment()] == [RECORDS] * 2
            [undo, reset] = await coordinator.resets("g")
            assert (undo.undoes, undo.reason) == (done.change_id, f"undo of change {done.change_id}")
            assert (reset.change_id, reset.reason, reset.undoes) == (done.change_id, "skip 5 jobs", "")
            with pytest.raises(CoordinatorError, match=f"it was undone by change {undone.change_id} already"):
                await coordinator.undo_reset(done.change_id)

    asyncio.run(scenario())


def test_watch_says_who_is_not_back_when_its_time_is_over() -> None:
    async def scenario() -> None:
        async with running() as coordinator:
            async with consuming(coordinator):
                pass  # it has left
            async with coordinator.member("g2", resources={"jobs": 2}) as member:
                await member.next_assignment()
                done = await coordinator.evict_and_reset("g2", {"jobs": 4})
                [removed] = done.removed
            progress = await coordinator.watch_reset(done.change_id, 0.2)
            assert not progress.is_complete and [each.member_id for each in progress.missing] == [removed]
            assert "0 of 1 member is back after 0." in progress.sentence
            empty = await coordinator.evict_and_reset("g", {"jobs": 4})
            assert (await coordinator.watch_reset(empty.change_id, 0)).sentence == "the group had no members"
            assert empty.guarded_until is not None
            assert (await coordinator.describe("g")).guarded_until == empty.guarded_until

    asyncio.run(scenario())


def test_targets_of_all_kinds() -> None:
    async def scenario() -> None:
        async with running() as coordinator, consuming(coordinator):
            start = datetime.now(UTC)
            await coordinator.reset("other", {("jobs", 0): 3})
            cases: tuple[tuple[Target | None, int | None], ...] = (
                ("earliest", 0),
                ("latest", RECORDS),
                (5, 5),
                (50, RECORDS),
                (datetime(2000, 1, 1, tzinfo=UTC), 0),
                (start, RECORDS),
                (ShiftBy(-2), RECORDS - 2),
                (ShiftBy(2), RECORDS),
                (OffsetsOf("other"), 3),
                (None, None),
            )
            for target, expected in cases:
                plan = await coordinator.evict_and_reset("g", {("jobs", 0): target}, dry_run=True)
                assert plan.after == {("jobs", 0): expected}, target
            plan = await coordinator.evict_and_reset("g", {"jobs": 50}, dry_run=True)
            assert plan.notes == dict.fromkeys([("jobs", 0), ("jobs", 1)], "50 is after the end")
            with pytest.raises(CoordinatorError, match="group 'other' has no committed offset of jobs-1"):
                await coordinator.evict_and_reset("g", {"jobs": OffsetsOf("other")}, dry_run=True)

    asyncio.run(scenario())


def test_record_of_a_reset_outlives_a_restart_and_is_lost_with_a_warning(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as coordinator:
            await coordinator.reset("g", {("jobs", 0): 7})
            done = await coordinator.evict_and_reset("g", {("jobs", 0): 4})
        async with running(tmp_path) as coordinator:
            assert (await coordinator.reset_progress(done.change_id)).sentence == "the group had no members"
            undone = await coordinator.undo_reset(done.change_id, dry_run=True)
            assert (undone.after, undone.change_id) == ({("jobs", 0): 7}, "")
            for file in (tmp_path / "resets").iterdir():
                file.unlink()
            (tmp_path / "resets").rmdir()
            (tmp_path / "resets").touch()
            lost = await coordinator.evict_and_reset("g", {("jobs", 0): 5})
            assert lost.change_id == "" and "its record was lost: " in lost.warnings[-1]
            assert await committed(coordinator) == {5}

    asyncio.run(scenario())


def test_reset_is_undone_by_its_result() -> None:
    async def scenario() -> None:
        async with running() as coordinator:
            await coordinator.reset("g", {("jobs", 0): 7})
            done = await coordinator.evict_and_reset("g", {"jobs": 4})
            assert replace(done, warnings=(), notes={}, change_id="") == GroupReset(
                "g", {("jobs", 0): 7, ("jobs", 1): None}, {("jobs", 0): 4, ("jobs", 1): 4}, (), None
            )
            undone = await coordinator.evict_and_reset("g", done.before)
            assert (undone.before, undone.after) == (done.after, done.before)
            assert {partition: each.offset for partition, each in (await coordinator.offsets("g")).items()} == {
                ("jobs", 0): 7
            }

    asyncio.run(scenario())


def test_dry_run_changes_nothing() -> None:
    async def scenario() -> None:
        async with running() as coordinator, coordinator.member("g", resources={"jobs": 2}) as member:
            shards = (await member.next_assignment()).shards
            await shards[0].commit(7)
            plan = await coordinator.evict_and_reset("g", {"jobs": "earliest"}, dry_run=True)
            assert plan.before == {("jobs", 0): 7, ("jobs", 1): None}
            assert plan.after == {("jobs", 0): 0, ("jobs", 1): 0}
            assert plan.removed == (member.member_id,)
            assert not shards[0].is_lost
            assert (await coordinator.offsets("g"))["jobs", 0].offset == 7

    asyncio.run(scenario())


@pytest.mark.parametrize("dry_run", [False, True])
def test_unknown_group_or_topic_is_refused(dry_run: bool) -> None:
    async def scenario() -> None:
        async with running() as coordinator:
            for topic, code in (("jobs", ErrorCode.GROUP_ID_NOT_FOUND), ("x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)):
                with pytest.raises(CoordinatorError) as raised:
                    await coordinator.evict_and_reset("nobody", {topic: 1}, dry_run=dry_run)
                assert raised.value.code is code

    asyncio.run(scenario())


def test_offset_that_no_log_has_is_refused() -> None:
    async def scenario() -> None:
        async with running() as coordinator, coordinator.member("g", resources={"jobs": 2}) as member:
            await member.next_assignment()
            for target in (2**63, -1, True):
                with pytest.raises(ValueError, match=r"expected a whole number from 0 to 2\*\*63-1"):
                    await coordinator.evict_and_reset("g", {"jobs": target})
                with pytest.raises(ValueError, match=r"expected a whole number from 0 to 2\*\*63-1"):
                    await coordinator.reset("g", {"jobs": target})
            await coordinator.evict_and_reset("g", {"jobs": 2**63 - 1})
            assert await committed(coordinator) == {2**63 - 1}

    asyncio.run(scenario())


def test_reset_is_in_the_audit_trail(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, audit="file") as coordinator:
            await coordinator.reset("g", {("jobs", 0): 7})
            async with coordinator.member("g", resources={"jobs": 2}) as member:
                await member.next_assignment()
                await coordinator.evict_and_reset("g", {"jobs": 4}, reason="skip", dry_run=True)
                done = await coordinator.evict_and_reset("g", {"jobs": 4}, reason="skip")
                [removed] = done.removed
        lines = map(json.loads, (tmp_path / "audit.jsonl").read_text().splitlines())
        [line] = [line for line in lines if line["operation"] == "reset"]
        assert line["before"] == {"offsets": {"jobs": {"0": 7}}, "members": [removed]}
        assert line["after"] == {"offsets": {"jobs": {"0": 4, "1": 4}}}
        assert (line["reason"], line["change_id"]) == ("skip", done.change_id)

    asyncio.run(scenario())


def test_reset_that_does_not_fit_into_an_entry_of_the_log_leaves_the_members_in_the_group() -> None:
    async def scenario() -> None:
        topics = {"jobs": 2, "many": 2000}
        async with (
            running(topics=topics, message_max_bytes=50_000) as coordinator,
            coordinator.member("g", resources={"jobs": 2}) as member,
        ):
            shards = (await member.next_assignment()).shards
            await shards[0].commit(7)
            with pytest.raises(CoordinatorError, match="reset fewer partitions at a time") as raised:
                await coordinator.evict_and_reset("g", {"many": 4})
            assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE
            assert (await coordinator.describe("g")).state == "Stable"
            await shards[0].commit(8)
            assert await committed(coordinator) == {8}

    asyncio.run(scenario())


@pytest.mark.parametrize("dry_run", [False, True])
def test_open_transaction_is_named_with_its_age(dry_run: bool) -> None:
    async def scenario() -> None:
        async with (
            running() as coordinator,
            AIOKafkaProducer(bootstrap_servers=coordinator.bootstrap, transactional_id="billing") as producer,
        ):
            await coordinator.reset("g", {"jobs": 2})
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({TopicPartition("jobs", 0): 5}, "g")
            said = r"the producer with id \d+ of transactional id 'billing' has an open transaction with offsets of it"
            age = r"since \d\d:\d\d:\d\d UTC, \d+ s ago: try again when it has ended"
            with pytest.raises(CoordinatorError, match=f"{said} {age}") as raised:
                await coordinator.evict_and_reset("g", {"jobs": 4}, dry_run=dry_run)
            assert raised.value.code is ErrorCode.UNSTABLE_OFFSET_COMMIT
            await producer.abort_transaction()
            await coordinator.evict_and_reset("g", {"jobs": 4}, dry_run=dry_run)

    asyncio.run(scenario())


def test_consumer_that_uses_assign_is_in_the_warnings() -> None:
    async def scenario() -> None:
        async with running() as coordinator, coordinator.member("g", resources={"jobs": 2}) as member:
            await member.next_assignment()
            assert (await coordinator.evict_and_reset("g", {"jobs": 4}, dry_run=True)).warnings == ()
            consumer = AIOKafkaConsumer(bootstrap_servers=coordinator.bootstrap, group_id="g", enable_auto_commit=False)
            await consumer.start()
            try:
                consumer.assign([TopicPartition("jobs", 0)])
                with pytest.raises(CommitFailedError):
                    await consumer.commit({TopicPartition("jobs", 0): 3})
            finally:
                await consumer.stop()
            [warning] = (await coordinator.evict_and_reset("g", {"jobs": 4}, dry_run=True)).warnings
            assert "if it is a consumer that uses assign(), and no tool, the reset does not stop it" in warning

    asyncio.run(scenario())


def test_list_of_resets_writes_nothing_to_the_data_folder(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as coordinator:
            assert await coordinator.resets("g") == ()
            with pytest.raises(CoordinatorError, match="no-such-change"):
                await coordinator.reset_progress("no-such-change")
            assert not (tmp_path / "resets").exists()

    asyncio.run(scenario())
