"""A small aiokafka service with tests, also of a session that expires without the service noticing.

    pip install callboard[pytest] aiokafka
    pytest examples/test_aiokafka_service.py

An instance that is disconnected for longer than its session continues with its partitions, although another instance
owns them. Such a test usually needs a broker, a network that can be cut, and a minute of time. Here the fixtures of
callboard's pytest plugin replace them: ``coordinator`` is new for each test, ``coordinator.faults`` delays the
heartbeats of an instance, and ``clock.advance`` expires the session at once.
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
    """In place of a database in which a total and the offset of the last order change in one transaction."""

    def __init__(self) -> None:
        self.totals: Counter[str] = Counter()
        self.next_offsets: Counter[int] = Counter()

    def add(self, partition: int, offset: int, customer: str, cents: int) -> None:
        if offset >= self.next_offsets[partition]:  # without this check a test fails
            self.totals[customer] += cents
            self.next_offsets[partition] = offset + 1


class Billing(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """Adds up the orders of each customer. Any number of instances share the partitions."""

    def __init__(self, bootstrap: str, name: str, store: Store) -> None:
        self.store = store
        self.partitions: set[int] = set()
        self.orders_read = 0
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            client_id=name,
            group_id="billing",
            enable_auto_commit=False,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=50,
        )

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self.partitions -= {partition.partition for partition in revoked}

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        for partition in assigned:
            self.partitions.add(partition.partition)
            self.consumer.seek(partition, self.store.next_offsets[partition.partition])

    async def run(self) -> None:
        self.consumer.subscribe(["orders"], listener=self)
        await self.consumer.start()
        try:
            async for order in self.consumer:
                self.store.add(order.partition, order.offset, order.key.decode(), int(order.value))
                self.orders_read += 1
                with suppress(CommitFailedError):  # the partition was reassigned; the store has the offset
                    await self.consumer.commit({TopicPartition(order.topic, order.partition): order.offset + 1})
        finally:
            await self.consumer.stop()


# Its tests -----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def running(*services: Billing) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(service.run()) for service in services]
    try:
        await wait_until(
            lambda: (
                sum(len(service.partitions) for service in services) == 4
                and all(service.partitions for service in services)
            )
        )
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def wait_until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


async def produce_orders(bootstrap: str, orders: Iterable[tuple[str, int]]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number, (customer, cents) in enumerate(orders):
            await producer.send_and_wait("orders", b"%d" % cents, customer.encode(), partition=number % 4)


def test_orders_are_added_up_and_committed(coordinator: ThreadCoordinator) -> None:
    async def scenario() -> None:
        store = Store()
        async with running(Billing(coordinator.bootstrap, "only", store)):
            await produce_orders(coordinator.bootstrap, [("ann", 100), ("bob", 250), ("ann", 50), ("bob", 1)])
            await wait_until(lambda: store.totals == {"ann": 150, "bob": 251})
            await wait_until(
                lambda: sum(committed.offset for committed in coordinator.offsets("billing").values()) == 4
            )

    asyncio.run(scenario())


def test_disconnected_instance_counts_no_order_twice(coordinator: ThreadCoordinator, clock: BlockingTime) -> None:
    async def scenario() -> None:
        store = Store()
        first, second = (Billing(coordinator.bootstrap, name, store) for name in ("first", "second"))
        async with running(first, second):
            delay = coordinator.faults.delay("Heartbeat", client_id="first", seconds=60)
            await wait_until(lambda: delay.hits)
            clock.advance(11, silent=["first"])  # its session expires without its knowledge
            await wait_until(lambda: second.partitions == {0, 1, 2, 3})
            assert first.partitions, "it continues with its partitions"
            await produce_orders(coordinator.bootstrap, [("ann", 1)] * 20)
            await wait_until(lambda: first.orders_read and second.orders_read == 20)  # one of them is read by both
            clock.advance(60)  # the heartbeat arrives and is answered UNKNOWN_MEMBER_ID
            await wait_until(lambda: first.partitions and not first.partitions & second.partitions)
            await produce_orders(coordinator.bootstrap, [("ann", 1)] * 20)
            await wait_until(lambda: sum(store.next_offsets.values()) == 40)
        assert store.totals == {"ann": 40}

    asyncio.run(scenario())
