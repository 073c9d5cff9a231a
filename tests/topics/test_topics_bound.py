"""The limit ``max_partitions`` of all topics together, and the memory of an unused partition."""

from __future__ import annotations

import gc
import tracemalloc
from functools import partial
from pathlib import Path

import pytest
from harness import async_test, running_node
from topic_request_helpers import create, grow, metadata, new_topic
from topics_helpers import error_code_of, producer_batch

import callboard
from callboard.actors.errors import CoordinatorError, ErrorCode
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.group_commit import immediate_outcome
from callboard.runtime.engine.clock import SystemRandom
from callboard.runtime.node.environment import MEMORY
from callboard.runtime.node.node import Node
from callboard.runtime.settings.table import Options, Settings
from callboard.runtime.testing.disk.faulty import FaultyDisk
from callboard.runtime.topics.catalogue import TopicCatalogue
from callboard.runtime.topics.store import NewTopic

UNUSED_PARTITION_MAX_BYTES = 32  # 8 of them for the end offset; a used partition takes some 750


def catalogue(max_partitions: int) -> TopicCatalogue:
    disk = FaultyDisk()
    disk.make_folder(MEMORY)
    return TopicCatalogue(MEMORY, Settings(max_partitions=max_partitions), SystemRandom(), disk=disk)


def test_create_above_max_partitions_is_refused() -> None:
    topics = catalogue(10)
    topics.create("a", 6)
    with pytest.raises(
        CoordinatorError, match=r"5 more partitions: all topics together have 6, .*max_partitions=10; delete topics, or"
    ) as e:
        topics.create("b", 5)
    assert e.value.code is ErrorCode.POLICY_VIOLATION
    b = topics.create("b", 3)
    assert immediate_outcome(partial(topics.grow, b, 4)) is None
    refusal = immediate_outcome(partial(topics.grow, b, 5))
    assert refusal is not None
    assert refusal.code is ErrorCode.POLICY_VIOLATION
    [none] = immediate_outcome(partial(topics.delete_many, [b]))
    assert none is None
    topics.create("c", 4)


def test_create_many_shares_remaining_max_partitions() -> None:
    topics = catalogue(10)
    outcomes = immediate_outcome(partial(topics.create_many, [NewTopic("a", 6), NewTopic("b", 5), NewTopic("c", 4)]))
    assert [isinstance(outcome, CoordinatorError) for outcome in outcomes] == [False, True, False]
    assert error_code_of(lambda: topics.create("d", 1)) is ErrorCode.POLICY_VIOLATION


@async_test
async def test_every_tcp_api_that_creates_partitions_respects_max_partitions(tmp_path: Path) -> None:
    """The node has the topics t (3 partitions) and u (1)."""
    async with running_node(tmp_path, max_partitions=6) as harness:
        client = await harness.connect()
        topics = [new_topic("a", 2), new_topic("b", 1)]
        for validate_only in (True, False):
            answer = await client.ask("create_topics", 6, topics=topics, timeout=1000, validate_only=validate_only)
            assert [one["error_code"] for one in answer["topics"]] == ["NONE", "POLICY_VIOLATION"]
            assert "max_partitions=6" in answer["topics"][1]["error_message"]
        assert await grow(client, "t", 4) == "POLICY_VIOLATION"
        assert await metadata(client, "auto", creates=True) == "UNKNOWN_TOPIC_OR_PARTITION"
        assert await create(client, "c") == ["POLICY_VIOLATION"]


@async_test
async def test_start_with_new_topic_above_max_partitions_is_refused(tmp_path: Path) -> None:
    options = Options(data=tmp_path, topics=(("a", 3), ("b", 3)))
    with pytest.raises(StartError, match=r"--topic b:3: 3 more partitions: .*max_partitions=5"):
        await Node.open(Settings(max_partitions=5), options)


@async_test
async def test_start_with_lowered_max_partitions_serves_existing_topics(tmp_path: Path) -> None:
    async with running_node(tmp_path, max_partitions=4):
        pass
    async with running_node(tmp_path, max_partitions=1) as harness:
        assert {"t", "u"} < set(harness.node.topics.names())
        assert await create(await harness.connect(), "c") == ["POLICY_VIOLATION"]


def test_embedded_coordinator_respects_max_partitions() -> None:
    async def scenario() -> None:
        async with callboard.Coordinator(max_partitions=2) as coordinator:
            await coordinator.create_topic("a", 2)
            with pytest.raises(CoordinatorError, match="max_partitions=2"):
                await coordinator.create_topic("b", 1)

    async_test(scenario)()


def traced_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def test_unused_partition_takes_at_most_32_bytes(tmp_path: Path) -> None:
    topics = TopicCatalogue(tmp_path, Settings(max_partitions=50_000), SystemRandom())
    tracemalloc.start()
    try:
        before = traced_bytes()
        for number in range(5):
            topics.create(f"t{number}", 10_000)
        assert traced_bytes() - before < 50_000 * UNUSED_PARTITION_MAX_BYTES
        topics.files.close()
        del topics
        before = traced_bytes()
        again = TopicCatalogue(tmp_path, Settings(), SystemRandom())
        assert traced_bytes() - before < 50_000 * UNUSED_PARTITION_MAX_BYTES
    finally:
        tracemalloc.stop()
    topic = again.get("t3")
    assert topic is not None
    before_use = len(list(topic.partitions.active()))
    topic.raise_end(5000, 3)
    assert [topic.partitions.peek(5000).start_offset, len(list(topic.partitions.active()))] == [3, before_use]
    assert topic.append(5000, producer_batch(2)) == 3
    assert len(list(topic.partitions.active())) == 1
    again.files.close()
