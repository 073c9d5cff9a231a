"""The admin methods: their results and their effects on Kafka clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from callboard import Coordinator, CoordinatorError, ErrorCode, StartError

SETTINGS: dict[str, Any] = {"group_initial_rebalance_delay_ms": 0}


@asynccontextmanager
async def running(**options: Any) -> AsyncIterator[Coordinator]:
    async with asyncio.timeout(60), Coordinator(None, "127.0.0.1:0", **SETTINGS | options) as coordinator:
        yield coordinator


@contextmanager
def consuming(bootstrap: str, group: str, topic: str, instance_id: str | None = None) -> Iterator[Consumer]:
    """A consumer that has joined. Blocks, so it must run outside of the coordinator's thread."""
    config: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": group, "client.id": "ann"}
    if instance_id is not None:
        config["group.instance.id"] = instance_id
    consumer = Consumer(config)
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.05)
    try:
        yield consumer
    finally:
        consumer.close()


async def error_code_of(request: Any) -> ErrorCode:
    with pytest.raises(CoordinatorError) as caught:
        await request
    assert caught.value.code.name in str(caught.value) or "topic" in str(caught.value)
    return caught.value.code


async def with_consumer(
    coordinator: Coordinator, check: Callable[[Consumer, Callable[[Any], Any]], None], *names: str
) -> None:
    """Run ``check(consumer, ask)`` in another thread; ``ask`` runs a coroutine on this loop."""
    loop = asyncio.get_running_loop()
    bootstrap = coordinator.bootstrap

    def ask(request: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(request, loop).result(30)

    def run() -> None:
        with consuming(bootstrap, *names) as consumer:
            check(consumer, ask)

    await asyncio.to_thread(run)


# Groups ---------------------------------------------------------------------------------------------------------------


def test_describe_agrees_with_the_consumers_own_assignment() -> None:
    async def scenario() -> None:
        async with running(topics={"jobs": 3}) as coordinator:

            def check(consumer: Consumer, ask: Callable[[Any], Any]) -> None:
                consumer.commit(offsets=[TopicPartition("jobs", 1, 7, "half")], asynchronous=False)
                group = ask(coordinator.describe("g"))
                assert (group.group_id, group.state, group.protocol_type) == ("g", "Stable", "consumer")
                assert group.protocol in ("range", "roundrobin")
                [member] = group.members
                assert member.member_id == consumer.memberid()
                assert (member.instance_id, member.client_id, member.client_host) == ("i", "ann", "/127.0.0.1")
                assert member.topics == ("jobs",)
                assert member.assigned == tuple((one.topic, one.partition) for one in consumer.assignment())
                committed = ask(coordinator.offsets("g"))
                assert set(committed) == {("jobs", 1)}
                assert committed["jobs", 1].offset == 7
                assert (
                    committed["jobs", 1].metadata.rstrip("\0") == "half"
                )  # librdkafka also sends the end of the C string
                assert ask(coordinator.groups_of_topic("jobs")) == ("g",)
                assert ask(coordinator.groups(states=["stable"])).groups[0].group_id == "g"
                assert ask(error_code_of(coordinator.delete("g"))) is ErrorCode.NON_EMPTY_GROUP
                assert ask(error_code_of(coordinator.reset("g", {"jobs": 0}))) is ErrorCode.UNKNOWN_MEMBER_ID
                partitions = [("jobs", 1)]
                assert (
                    ask(error_code_of(coordinator.delete_offsets("g", partitions)))
                    is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                )

            await with_consumer(coordinator, check, "g", "jobs", "i")
            [static] = (await coordinator.describe("g")).members  # a static member does not leave
            assert await coordinator.remove_members("g", instance_ids=["i"]) == (static.member_id,)
            assert (await coordinator.describe("g")).state == "Empty"

    asyncio.run(scenario())


def test_removed_member_rejoins_with_another_member_id() -> None:
    async def scenario() -> None:
        async with running(topics={"jobs": 1}) as coordinator:

            def check(consumer: Consumer, ask: Callable[[Any], Any]) -> None:
                before = consumer.memberid()
                assert ask(coordinator.remove_members("g", reason="maintenance")) == (before,)
                while consumer.memberid() == before or not consumer.assignment():
                    consumer.poll(0.05)
                [member] = ask(coordinator.describe("g")).members
                assert member.member_id == consumer.memberid() != before

            await with_consumer(coordinator, check, "g", "jobs")
            assert (
                await error_code_of(coordinator.remove_members("g", member_ids=["nobody"]))
                is ErrorCode.UNKNOWN_MEMBER_ID
            )

    asyncio.run(scenario())


def test_consumer_begins_at_the_reset_offset() -> None:
    async def scenario() -> None:
        async with running(topics={"jobs": 3}) as coordinator:
            assert await coordinator.reset("g", {"jobs": "latest", ("jobs", 1): 41}) == {
                ("jobs", 0): 0,
                ("jobs", 1): 41,
                ("jobs", 2): 0,
            }

            def check(consumer: Consumer, ask: Callable[[Any], Any]) -> None:
                [one] = consumer.committed([TopicPartition("jobs", 1)])
                assert one.offset == 41

            await with_consumer(coordinator, check, "g", "jobs")

    asyncio.run(scenario())


def test_groups_with_limit_returns_pages() -> None:
    async def scenario() -> None:
        async with running(topics={"jobs": 1}) as coordinator:
            names = sorted(f"{prefix}{number}" for prefix in "ab" for number in range(12))
            for name in reversed(names):
                await coordinator.reset(name, {"jobs": 1})
            assert [one.group_id for one in (await coordinator.groups()).groups] == names
            pages, after = [], ""
            while True:
                page = await coordinator.groups(limit=5, after=after)
                pages.append([one.group_id for one in page.groups])
                if page.after is None:
                    break
                after = page.after
            assert [len(page) for page in pages] == [5, 5, 5, 5, 4]
            assert [name for page in pages for name in page] == names
            assert [one.group_id for one in (await coordinator.groups(prefix="b", limit=1)).groups] == ["b0"]
            assert (await coordinator.groups(prefix="b", limit=12)).after is None  # a full page may be the last
            assert (await coordinator.groups(states=["Stable"])).groups == ()
            assert (await coordinator.groups(types=["consumer"])).groups == ()
            assert len((await coordinator.groups(types=["Classic"], states=["EMPTY"])).groups) == len(names)
            with pytest.raises(ValueError, match="limit=0: expected a whole number >= 1"):
                await coordinator.groups(limit=0)
            with pytest.raises(TypeError, match="expected a list of words"):
                await coordinator.groups(states="Stable")

    asyncio.run(scenario())


def test_groups_of_topic_finds_active_and_passivated_groups() -> None:
    """After a restart all groups are passivated. A topic whose name is part of another's does not match."""

    async def scenario() -> None:
        async with running(topics={"jobs": 1, "jobs-more": 1}) as coordinator:
            for number in range(150):
                await coordinator.reset(f"g{number:03}", {("jobs", "jobs-more")[number % 2]: 1})
            expected = tuple(f"g{number:03}" for number in range(0, 150, 2))
            assert await coordinator.groups_of_topic("jobs") == expected
            await coordinator.restart()
            assert len(coordinator.node.groups.passivated) == 150
            assert await coordinator.groups_of_topic("jobs") == expected
            assert len(coordinator.node.groups.passivated) == 150
            assert await coordinator.groups_of_topic("nobodys") == ()

    asyncio.run(scenario())


def test_admin_request_for_a_missing_object_raises_kafkas_error_code() -> None:
    async def scenario() -> None:
        async with running(topics={"jobs": 2}) as coordinator:
            assert await error_code_of(coordinator.describe("g")) is ErrorCode.GROUP_ID_NOT_FOUND
            assert await error_code_of(coordinator.delete("g")) is ErrorCode.GROUP_ID_NOT_FOUND
            assert await error_code_of(coordinator.delete_offsets("g", [("jobs", 0)])) is ErrorCode.GROUP_ID_NOT_FOUND
            assert (
                await error_code_of(coordinator.remove_members("g", member_ids=["m"])) is ErrorCode.GROUP_ID_NOT_FOUND
            )
            assert await error_code_of(coordinator.reset("g", {"nobodys": 1})) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await error_code_of(coordinator.reset("g", {("jobs", 2): 1})) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await coordinator.offsets("g") == {}
            for offset in (-1, 1.5, True, "newest"):
                bad: Any = {"jobs": offset}
                with pytest.raises(ValueError, match="expected a whole number from 0 to"):
                    await coordinator.reset("g", bad)
            assert await coordinator.reset("g", {}) == {}
            assert (await coordinator.groups()).groups == ()

    asyncio.run(scenario())


# Topics and settings --------------------------------------------------------------------------------------------------


def test_delete_topic_also_deletes_committed_offsets() -> None:
    async def scenario() -> None:
        async with running() as coordinator:
            made = await coordinator.create_topic("jobs", 2)
            assert (made.name, len(made.partitions), made.is_internal) == ("jobs", 2, False)
            assert len((await coordinator.grow_topic("jobs", 3)).partitions) == 3
            assert await error_code_of(coordinator.create_topic("jobs")) is ErrorCode.TOPIC_ALREADY_EXISTS
            assert await error_code_of(coordinator.grow_topic("jobs", 3)) is ErrorCode.INVALID_PARTITIONS
            assert await error_code_of(coordinator.create_topic("a b")) is ErrorCode.INVALID_TOPIC_EXCEPTION
            assert [one.name for one in await coordinator.topics()] == ["jobs"]
            assert "__consumer_offsets" in {one.name for one in await coordinator.topics(with_internal=True)}
            await coordinator.reset("g", {"jobs": 5})
            await coordinator.delete_topic("jobs")
            assert await coordinator.topics() == ()
            while await coordinator.offsets("g"):
                await asyncio.sleep(0)
            assert await error_code_of(coordinator.delete_topic("jobs")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await error_code_of(coordinator.grow_topic("jobs", 9)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            with pytest.raises(CoordinatorError, match=r"no topic 'jobs': topics\(\) returns those that exist"):
                await coordinator.delete_topic("jobs")  # the advice was to create the topic

    asyncio.run(scenario())


def test_set_changes_settings_that_outlive_a_restart() -> None:
    async def scenario() -> None:
        async with running(offset_metadata_max_bytes=100) as coordinator:
            await coordinator.set(group_max_size=5, offset_metadata_max_bytes=50)
            await coordinator.restart("killed")
            assert (coordinator.settings.group_max_size, coordinator.settings.offset_metadata_max_bytes) == (5, 50)
            await coordinator.set(offset_metadata_max_bytes=None)
            assert coordinator.settings.offset_metadata_max_bytes == 100
            for bad, message in (
                ({"group_max_sizes": 1}, "did you mean 'group_max_size'"),
                ({"group_max_size": 0}, "bad value 0 for setting 'group_max_size': expected a whole number from 1"),
                ({"num_partitions": 3}, "cannot change while the coordinator runs"),
                ({"group_min_session_timeout_ms": 2_000_000}, "group_max_session_timeout_ms"),
            ):
                with pytest.raises(StartError, match=message):
                    await coordinator.set(**bad)
            assert coordinator.settings.group_max_size == 5

    asyncio.run(scenario())


def test_progress_returns_offsets_by_shard_name() -> None:
    """The topics of named shards have escaped names."""

    async def scenario() -> None:
        async with running() as coordinator:
            for topic in ("jobs", "tenants.new.20one", "tenants.acme", "jobs.old"):
                await coordinator.create_topic(topic, 12)
            await coordinator.reset("g", {("jobs", 10): 3, ("jobs", 2): 1, ("jobs.old", 1): 9})
            await coordinator.reset("g", {("tenants.new.20one", 0): 7, ("tenants.acme", 0): 5, ("tenants.acme", 1): 8})
            progress = [await coordinator.progress("g", resource) for resource in ("jobs", "tenants", "others")]
        offsets = [[(name, committed.offset) for name, committed in by_name.items()] for by_name in progress]
        assert offsets == [[(2, 1), (10, 3)], [("acme", 5), ("new one", 7)], []]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (lambda c: c.groups(limit="x"), "limit='x': expected a whole number"),
        (lambda c: c.groups(states=["Stabel"]), r"unknown 'Stabel'; did you mean 'Stable'\? expected some of Empty, "),
        (lambda c: c.groups(types=["shared"]), r"unknown 'shared'; did you mean 'share'\? expected some of classic, "),
        (lambda c: c.create_topic("jobs", "x"), "topic 'jobs' with 'x' partitions: expected a name and a whole number"),
        (lambda c: c.describe(b"g"), "group b'g': expected a string"),
        (lambda c: c.explain(5), "group 5: expected a string"),
        (lambda c: c.rebalances(None), "group None: expected a string"),
        (lambda c: c.delete(b"g"), "group b'g': expected a string"),
        (lambda c: c.offsets(b"g"), "group b'g': expected a string"),
        (lambda c: c.resets(b"g"), "group b'g': expected a string"),
        (lambda c: c.reset("\ud800", {("jobs", 0): 5}), "group .*: expected text; half of a surrogate pair"),
        (lambda c: c.evict_and_reset("\ud800", {("jobs", 0): 5}), "group .*: expected text; half of a surrogate pair"),
        (lambda c: c.delete_offsets(b"g", [("jobs", 0)]), "group b'g': expected a string"),
        (lambda c: c.delete_offsets("g", [("jobs", "0")]), r"partition \('jobs', '0'\): expected a topic and a number"),
        (lambda c: c.reset("g", {("jobs", "0"): 5}), r"partition \('jobs', '0'\): expected a topic and a number"),
        (lambda c: c.reset("g", {("jobs", 0, 1): 5}), r"partition \('jobs', 0, 1\): expected a topic and a number"),
        (lambda c: c.evict_and_reset("g", [("jobs", 0)]), "expected offsets by partition"),
        (lambda c: c.remove_members("g", member_ids="m1"), r"member_ids='m1': .* as in \['m1'\]"),
        (lambda c: c.remove_members("g", instance_ids="pod-0"), "instance_ids='pod-0': expected a list"),
        (lambda c: c.grow_topic(3, 4), "topic 3 with 4 partitions: expected a name and a whole number"),
    ],
)
def test_admin_argument_with_typo_or_wrong_type_raises_error_with_its_name(
    ask: Callable[[Coordinator], Any], expected: str
) -> None:
    async def scenario() -> None:
        async with running() as coordinator:
            await coordinator.create_topic("jobs")
            with pytest.raises((TypeError, ValueError), match=expected):
                await ask(coordinator)
            assert (await coordinator.groups(states=["STABLE", "empty"], types=["Classic"])).groups == ()

    asyncio.run(scenario())
