"""A small aiokafka service, and the test that it needs most: what it does when its session ends behind its back.

    pip install callboard[pytest] aiokafka
    pytest examples/test_aiokafka_service.py

An instance that is cut off for longer than its session goes on with the partitions that it had, and so does whoever got
them. Services are seldom tested for it, because it takes a broker, a network to cut, and a minute for each try. Here
the fixtures of callboard's pytest plugin are the broker, the cut and the minute: ``coordinator`` is fresh for each
test, ``coordinator.faults`` holds an instance's heartbeats up, and ``clock.advance`` lets the session end at once.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import CommitFailedError

from callboard.testing import BlockingTime, ThreadCoordinator

pytestmark = pytest.mark.callboard(topics={"orders": 4})

# The service ---------------------------------------------------------------------------------------------------------


class Store:
    """Stands for a database, in which a total and the place of the last order in it change together, or not at all."""

    def __init__(self) -> None:
        self.totals: Counter[str] = Counter()
        self.next_offsets: Counter[int] = Counter()

    def add(self, partition: int, offset: int, customer: str, cents: int) -> None:
        if offset >= self.next_offsets[partition]:  # take this line away, and a test fails
            self.totals[customer] += cents
            self.next_offsets[partition] = offset + 1


class Billing(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """Adds up what customers have ordered. Any number of instances share the partitions."""

    def __init__(self, bootstrap: str, name: str, store: Store) -> None:
        self.store = store
        self.partitions: set[int] = set()
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            client_id=name,
            group_id="billing",
            enable_auto_commit=False,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=50,
        )

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self.partitions -= {one.partition for one in revoked}

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        for one in assigned:
            self.partitions.add(one.partition)
            self.consumer.seek(one, self.store.next_offsets[one.partition])

    async def run(self) -> None:
        self.consumer.subscribe(["orders"], listener=self)
        await self.consumer.start()
        try:
            async for order in self.consumer:
                self.store.add(order.partition, order.offset, order.key.decode(), int(order.value))
                with suppress(CommitFailedError):  # not ours any more; the store knows what is done
                    await self.consumer.commit({TopicPartition(order.topic, order.partition): order.offset + 1})
        finally:
            await self.consumer.stop()


# Its tests -----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def running(*services: Billing) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(service.run()) for service in services]
    try:
        await until(
            lambda: sum(len(one.partitions) for one in services) == 4 and all(one.partitions for one in services)
        )
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


async def order(bootstrap: str, orders: Iterable[tuple[str, int]]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number, (customer, cents) in enumerate(orders):
            await producer.send_and_wait("orders", b"%d" % cents, customer.encode(), partition=number % 4)


def test_what_was_ordered_is_added_up_and_committed(coordinator: ThreadCoordinator) -> None:
    async def story() -> None:
        store = Store()
        async with running(Billing(coordinator.bootstrap, "one", store)):
            await order(coordinator.bootstrap, [("ann", 100), ("bob", 250), ("ann", 50), ("bob", 1)])
            await until(lambda: store.totals == {"ann": 150, "bob": 251})
            await until(lambda: sum(one.offset for one in coordinator.offsets("billing").values()) == 4)

    asyncio.run(story())


def test_an_instance_that_was_cut_off_counts_nothing_twice(coordinator: ThreadCoordinator, clock: BlockingTime) -> None:
    async def story() -> None:
        store = Store()
        one, two = Billing(coordinator.bootstrap, "one", store), Billing(coordinator.bootstrap, "two", store)
        async with running(one, two):
            cut = coordinator.faults.delay("Heartbeat", client_id="one", seconds=60)
            await until(lambda: cut.hits)
            clock.advance(11, silent=["one"])  # its session ends, and it cannot hear of that
            await until(lambda: two.partitions == {0, 1, 2, 3})
            assert one.partitions, "it goes on with what it had"
            await order(coordinator.bootstrap, [("ann", 1)] * 20)
            await until(lambda: store.totals["ann"] >= 20)
            clock.advance(60)  # the heartbeat arrives, and is told that nobody knows who sent it
            await until(lambda: one.partitions and not one.partitions & two.partitions)
            await order(coordinator.bootstrap, [("ann", 1)] * 20)
            await until(lambda: sum(store.next_offsets.values()) == 40)
        assert store.totals == {"ann": 40}

    asyncio.run(story())
