"""The topics of several nodes on one store: one wins a race, all follow, a deleted topic leaves no offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from topics_helpers import SETTINGS, producer_batch

from callboard.actors.errors import CoordinatorError, ErrorCode
from callboard.runtime.cluster.topic_leadership import OFFSETS_PER_EPOCH
from callboard.runtime.disk.group_commit import outcome_of
from callboard.runtime.security.document import USERS, Section
from callboard.runtime.security.store import SecurityStore
from callboard.runtime.settings.table import Settings
from callboard.runtime.topics.store import NewTopic
from callboard.runtime.topics.topic import NOT_LED, TOPIC_DELETED, Topic

from .memory_store import Memory
from .shared_topics_helpers import TopicsNode

IMPATIENT = Settings(offsets_commit_timeout_ms=50)
DEADLINE_S = 180.0


def on_nodes(test: Callable[[TopicsNode, TopicsNode], Awaitable[None]], settings: Settings = SETTINGS) -> None:
    async def run() -> None:
        memory = Memory()
        nodes = TopicsNode(memory, "a", settings=settings), TopicsNode(memory, "b", settings=settings)
        try:
            await test(*nodes)
        finally:
            for node in nodes:
                node.shared.halt()

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))


def topic_of(node: TopicsNode, name: str = "t") -> Topic:
    topic = node.catalogue.get(name)
    assert topic is not None
    return topic


def codes(outcomes: list[Topic | CoordinatorError]) -> list[ErrorCode]:
    return [outcome.code if isinstance(outcome, CoordinatorError) else ErrorCode.NONE for outcome in outcomes]


def test_all_nodes_have_the_same_settings_of_groups() -> None:
    def set_session(node: TopicsNode, text: str) -> Callable[[Callable[[object], None]], None]:
        return partial(node.shared.group_admin.alter, "g", lambda own: {**own, "consumer.session.timeout.ms": text})

    async def test(a: TopicsNode, b: TopicsNode) -> None:
        assert await outcome_of(set_session(a, "50000")) is None
        assert a.configs.groups.effective == {"g": {"consumer.session.timeout.ms": 50_000}}
        await b.follow()
        assert b.configs.groups.effective == a.configs.groups.effective
        outcome = await outcome_of(set_session(b, "1"))
        assert isinstance(outcome, CoordinatorError) and outcome.code is ErrorCode.INVALID_CONFIG
        assert await outcome_of(partial(b.shared.group_admin.alter, "g", lambda own: {})) is None
        await a.follow()
        assert a.configs.groups.given == b.configs.groups.given == {}

    on_nodes(test)


def test_all_nodes_have_the_same_users() -> None:
    def add(node: TopicsNode, user: str) -> Callable[[Callable[[object], None]], None]:
        return partial(node.security.change, USERS, lambda users: {**users, user: {}})

    def refuse(users: Section) -> Section:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, "no such user")

    async def test(a: TopicsNode, b: TopicsNode) -> None:
        seen: list[Section] = []
        b.security.on_change(USERS, seen.append)
        assert not a.security.is_known and not b.security.is_known
        await b.follow()
        assert b.security.is_known
        assert await outcome_of(add(a, "alice")) is None
        await b.follow()
        assert await outcome_of(add(b, "bob")) is None
        await a.follow()
        assert a.security.document == b.security.document
        assert a.security.get(USERS) == {"alice": {}, "bob": {}}
        assert len(a.security.secret) > 0
        assert seen == [{"alice": {}}, {"alice": {}, "bob": {}}]
        outcome = await outcome_of(partial(a.security.change, USERS, refuse))
        assert isinstance(outcome, CoordinatorError) and outcome.code is ErrorCode.INVALID_REQUEST

    on_nodes(test)


def test_node_that_cannot_read_the_store_has_the_users_that_it_read_last() -> None:
    async def test(a: TopicsNode, b: TopicsNode) -> None:
        assert await outcome_of(partial(a.security.change, USERS, lambda users: {"alice": {}})) is None
        await b.follow()
        restarted = SecurityStore(Path("/data"), b.disk, bytes)
        assert restarted.load()
        restarted.share(lambda change, done: None)
        assert restarted.is_known
        assert restarted.document == a.security.document

    on_nodes(test)


def test_all_nodes_have_the_same_topics() -> None:
    async def test(a: TopicsNode, b: TopicsNode) -> None:
        assert codes(await a.create(NewTopic("t", 3, {"retention.ms": "5"}), NewTopic("a b", 1))) == [
            ErrorCode.NONE,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ]
        await b.follow()
        there, here = topic_of(a), topic_of(b)
        assert (here.topic_id, len(here.partitions)) == (there.topic_id, 3)
        assert here.policy.overrides == {"retention.ms": "5"}
        assert await outcome_of(partial(b.shared.admin.grow, here, 5)) is None
        assert await outcome_of(partial(b.shared.admin.alter, here, lambda _: {"retention.ms": "6"})) is None
        await a.follow()
        assert (len(there.partitions), there.policy.overrides) == (5, {"retention.ms": "6"})
        assert await b.delete("t") is None
        await a.follow()
        assert a.names() == b.names() == set()
        assert a.shared.admin.take_deleted(["t"]) == {"t"}

    on_nodes(test)


def test_one_of_many_creators_wins() -> None:
    async def test(a: TopicsNode, b: TopicsNode) -> None:
        outcomes = await asyncio.gather(*(node.create(NewTopic("t", 1)) for node in (a, b) * 16))
        results = sorted(code for each in outcomes for code in codes(each))
        assert results == [ErrorCode.NONE, *[ErrorCode.TOPIC_ALREADY_EXISTS] * 31]
        assert topic_of(a).topic_id == topic_of(b).topic_id

    on_nodes(test)


def test_many_changes_of_both_nodes_are_all_made() -> None:
    async def test(a: TopicsNode, b: TopicsNode) -> None:
        await asyncio.gather(*((a, b)[number % 2].create(NewTopic(f"t{number}", 1)) for number in range(100)))
        await asyncio.gather(a.follow(), b.follow())
        assert a.names() == b.names() == {f"t{number}" for number in range(100)}

    on_nodes(test)


def test_topics_of_the_command_line_are_created_once() -> None:
    async def run() -> None:
        memory = Memory()
        nodes = [TopicsNode(memory, name, (("t", 2),)) for name in "abc"]
        for node in nodes:
            await node.shared.ready.wait()
            assert node.names() == {"t"}
        assert len({topic_of(node).topic_id for node in nodes}) == 1
        for node in nodes:
            node.shared.halt()

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))


def test_topics_of_the_command_line_wait_until_the_node_has_joined() -> None:
    async def run() -> None:
        node = TopicsNode(Memory(), "a", (("t", 2),), has_joined=False)
        await node.follow()
        for _ in range(100):
            await asyncio.sleep(0)
        assert not node.shared.ready.is_set() and not node.names()
        node.shared.joined("id", is_new=False)
        await node.shared.ready.wait()
        assert node.names() == {"t"}
        node.shared.halt()

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))


def test_topic_that_is_not_in_the_cluster_goes_with_the_first_version() -> None:
    async def run() -> None:
        memory = Memory()
        node = TopicsNode(memory, "a")
        node.catalogue.follower = None
        node.catalogue.create("old", 1)
        node.catalogue.follower = node.shared
        await node.create(NewTopic("t", 1))
        assert node.names() == {"t"}
        node.shared.halt()

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))


def test_store_that_does_not_answer_times_out_the_request() -> None:
    async def test(a: TopicsNode, b: TopicsNode) -> None:
        await a.create(NewTopic("t", 1))
        await a.store.close()
        assert codes(await a.create(NewTopic("u", 1))) == [ErrorCode.REQUEST_TIMED_OUT]

    on_nodes(test, IMPATIENT)


# Leadership ----------------------------------------------------------------------------------------------------------


def test_topic_is_led_by_the_owner_of_its_partition_only() -> None:
    async def test(a: TopicsNode, b: TopicsNode) -> None:
        await a.own(3)
        await a.create(NewTopic("t", 1))
        await b.follow()
        assert (topic_of(a).leader_epoch, topic_of(b).leader_epoch) == (3, NOT_LED)
        a.shared.lost(range(5))
        await b.own(4)
        assert (topic_of(a).leader_epoch, topic_of(b).leader_epoch) == (NOT_LED, 4)

    on_nodes(test)


def test_topic_is_empty_after_a_move_and_begins_at_a_higher_offset() -> None:
    async def test(a: TopicsNode, b: TopicsNode) -> None:
        await a.create(NewTopic("t", 2))
        topic = topic_of(a)
        await a.own(0)
        topic.append(0, producer_batch(3))
        sizes: list[int] = []
        topic.partitions[0].waiters.add(sizes.append)
        a.shared.fenced()
        assert (sizes, topic.held_bytes, topic.leader_epoch) == ([TOPIC_DELETED], 0, NOT_LED)
        await a.own(2)
        assert [log.end_offset for log in topic.partitions] == [2 * OFFSETS_PER_EPOCH] * 2
        assert topic.append(0, producer_batch(3)) == 2 * OFFSETS_PER_EPOCH
        assert a.catalogue.memory_bytes > 0

    on_nodes(test)


def test_committed_offsets_do_not_move_the_ends() -> None:
    async def test(a: TopicsNode, b: TopicsNode) -> None:
        await a.own(0)
        await a.create(NewTopic("t", 1))
        a.catalogue.raise_end("t", 0, 77)
        assert topic_of(a).partitions[0].end_offset == 0

    on_nodes(test)


# Offsets of deleted topics -------------------------------------------------------------------------------------------


def test_name_is_free_again_when_the_owner_has_deleted_the_offsets() -> None:
    async def test(a: TopicsNode, b: TopicsNode) -> None:
        await a.own(1)
        await b.create(NewTopic("t", 1))
        assert await b.delete("t") is None
        again = asyncio.create_task(b.create(NewTopic("t", 1)))
        await a.follow()
        assert [names for names, _ in a.deleting] == [{"t"}]
        assert not again.done()
        a.finish_cleanups()
        await a.follow()
        await b.follow()
        assert codes(await again) == [ErrorCode.NONE]
        assert b.deleting == []

    on_nodes(test)


def test_partition_that_moves_before_it_is_clean_is_cleaned_by_its_next_owner() -> None:
    async def test(a: TopicsNode, b: TopicsNode) -> None:
        await a.own(1)
        await a.create(NewTopic("t", 1))
        await a.delete("t")
        a.shared.lost(range(5))
        a.finish_cleanups()
        await b.own(2)
        assert {name for names, _ in b.deleting for name in names} == {"t"}
        b.finish_cleanups()
        assert codes(await b.create(NewTopic("t", 1))) == [ErrorCode.NONE]

    on_nodes(test)


def test_deletion_that_is_known_late_is_known_before_a_partition_is_loaded() -> None:
    """Else the new owner could accept a commit for a topic whose offsets count as deleted."""

    async def test(a: TopicsNode, b: TopicsNode) -> None:
        await a.own(1)
        await a.create(NewTopic("t", 1))
        await b.follow()
        await a.delete("t")
        a.finish_cleanups()
        await b.shared.begin_load(0, 2)
        assert b.names() == set()

    on_nodes(test)


def test_creation_waits_for_the_offsets_only_so_long() -> None:
    async def test(a: TopicsNode, b: TopicsNode) -> None:
        await a.create(NewTopic("t", 1))
        await a.delete("t")
        [outcome] = await a.create(NewTopic("t", 1))
        assert isinstance(outcome, CoordinatorError)
        assert outcome.code is ErrorCode.REQUEST_TIMED_OUT
        assert "offsets of a deleted topic t are not deleted yet" in str(outcome)

    on_nodes(test, IMPATIENT)
