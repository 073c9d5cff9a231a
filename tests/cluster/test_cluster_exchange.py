"""``callboard cluster import`` and ``export``: a single node's data folder becomes a cluster, and the other way."""

from __future__ import annotations

import asyncio
import json
import signal
import stat
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Self

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as Partition
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)
from peers.wire import Wire

from callboard.runtime.cli.log.newest import load_newest
from callboard.runtime.cli.log.scan import find_partitions
from callboard.runtime.disk.disk import Disk
from callboard.runtime.disk.group_commit import immediate_outcome
from callboard.runtime.kafka.api.describe_configs import GROUP
from callboard.runtime.log.folder import INFO_NAME
from callboard.runtime.security.document import USERS
from callboard.runtime.security.store import SecurityStore
from callboard.runtime.settings.dynamic import DynamicSettings
from callboard.runtime.settings.group_configs import SESSION_TIMEOUT
from callboard.runtime.settings.table import Settings
from callboard.runtime.topics.store import TopicsFile, load_table

from .cluster_server_helpers import ClusterServer, cluster_of
from .command_helpers import Run, runner
from .probe import TOPIC as PAIR_TOPIC

GROUPS = [f"group-{number}" for number in range(12)]
OPEN_ID = "never-ended"
TOPIC = "jobs"
LONG_MS = 900_000
SHORT_MS = 5_000
WAIT_S = 60.0
PAIR = ("left", "right-1")
"""Their partitions have different owners, as a rule."""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


@pytest.fixture
def store(tmp_path: Path) -> str:
    (tmp_path / "shared").mkdir()
    return (tmp_path / "shared").as_uri()


class SingleServer(ClusterServer):
    """A server that is alone, on a data folder."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder, "", name)

    @property
    def data(self) -> Path:
        return self._folder / self.name

    def stop(self) -> None:
        self.send(signal.SIGTERM)
        assert self.wait() == 0
        self.end()


def bootstrap(server: ClusterServer) -> str:
    return "{}:{}".format(*server.address)


def commit(server: ClusterServer, offsets: Mapping[str, int]) -> None:
    """Commit an offset for each group."""
    for group, offset in offsets.items():
        consumer = Consumer({"bootstrap.servers": bootstrap(server), "group.id": group})
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
        consumer.close()


def committed(server: ClusterServer, groups: Sequence[str] = GROUPS, topic: str = TOPIC) -> dict[str, int]:
    """When no transaction about them is open."""
    offsets = {}
    for group in groups:
        consumer = Consumer({"bootstrap.servers": bootstrap(server), "group.id": group})
        [position] = consumer.committed([TopicPartition(topic, 0)], timeout=60)
        offsets[group] = position.offset
        consumer.close()
    return offsets


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def producer_id(server: ClusterServer) -> int:
    """Of a new producer."""

    async def ask() -> int:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap(server), enable_idempotence=True)
        await producer.start()
        await producer.send_and_wait(TOPIC, b"x", partition=0)
        found = producer._txn_manager.producer_id
        await producer.stop()
        return int(found)

    return asyncio.run(ask())


def transactions(server: ClusterServer) -> None:
    """One that is committed, and one that goes on."""

    async def work() -> None:
        for transactional_id in ("done", OPEN_ID):
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap(server), transactional_id=transactional_id, transaction_timeout_ms=LONG_MS
            )
            await producer.start()
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({Partition(TOPIC, 1): 5}, GROUPS[0])
            if transactional_id == "done":
                await producer.commit_transaction()
                await producer.stop()
            else:
                await producer._sender.close()  # like a process that was killed
                await producer.client.close()
                producer._closed = True

    asyncio.run(work())


def state(data: Path) -> Mapping[str, object]:
    """The newest value of each group and transactional id."""
    return {
        key: value for partition in find_partitions(data) for key, value in load_newest(partition, Disk()).state.items()
    }


def topics(data: Path) -> TopicsFile:
    loaded = load_table(data / "topics.json", Disk())
    assert loaded is not None
    assert loaded.table is not None
    return loaded.table


def set_session_timeout(address: str, group: str, timeout_ms: int) -> None:
    """As ``kafka-configs.sh --entity-type groups`` does; confluent_kafka does not know this type of resource."""
    host, _, port = address.rpartition(":")
    wire = Wire(host, int(port))
    configs = [{"name": SESSION_TIMEOUT.name, "config_operation": 0, "value": str(timeout_ms)}]
    resource = {"resource_type": GROUP, "resource_name": group, "configs": configs}
    answer = wire.ask("incremental_alter_configs", 1, resources=[resource], validate_only=False)
    assert answer["responses"][0]["error_code"] == "NONE"
    wire.close()


def session_timeouts(data: Path) -> dict[str, int]:
    configs = DynamicSettings(Settings())
    configs.load(data)
    return {group: own[SESSION_TIMEOUT.name] for group, own in configs.groups.given.items()}


def fill(server: SingleServer) -> int:
    """Groups, offsets, transactions, topics and a changed setting. Returns the highest producer id."""
    admin = AdminClient({"bootstrap.servers": bootstrap(server)})
    for future in admin.create_topics([NewTopic(TOPIC, 3, config={"retention.ms": "5000"})]).values():
        future.result(60)
    entry = ConfigEntry("group.max.size", "77", incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    for future in admin.incremental_alter_configs([change]).values():
        future.result(60)
    set_session_timeout(bootstrap(server), GROUPS[0], 50_000)
    commit(server, {group: number for number, group in enumerate(GROUPS, 1)})
    transactions(server)
    return producer_id(server)


def add_user(data: Path, name: str) -> None:
    store = SecurityStore(data, Disk(), lambda: b"secret")
    assert immediate_outcome(partial(store.change, USERS, lambda users: {**users, name: {}})) is None


def test_round_trip_from_a_single_node_to_a_cluster_and_back(tmp_path: Path, store: str, run: Run) -> None:
    single = SingleServer(tmp_path, "single")
    single.start()
    first_id = fill(single)
    single.stop()
    add_user(single.data, "alice")
    before, before_topics = state(single.data), topics(single.data)

    imported = run("import", str(single.data), "--cluster", store)
    assert imported.code == 0, imported.err
    assert "groups             12" in imported.out
    assert "start each node with the changed settings: --set group_max_size=77" in imported.out
    assert state(single.data) == before, "the folder is not changed"
    with cluster_of(3, tmp_path, store) as servers:
        assert committed(servers[1]) == {group: number for number, group in enumerate(GROUPS, 1)}
        back = tmp_path / "back"
        exported = run("export", str(back), "--cluster", store)
        assert exported.code == 0, exported.err
        assert state(back) == before
        commit(servers[2], {GROUPS[0]: 1000})
        set_session_timeout(bootstrap(servers[1]), GROUPS[1], 55_000)
        second_id = producer_id(servers[0])
        again = tmp_path / "again"
        assert run("export", str(again), "--cluster", store).code == 0
    assert second_id > first_id
    assert (back / "settings.json").read_bytes() == (single.data / "settings.json").read_bytes()
    assert (back / "security.json").read_bytes() == (single.data / "security.json").read_bytes()
    assert stat.S_IMODE((back / "security.json").stat().st_mode) == 0o600
    assert session_timeouts(back) == {GROUPS[0]: 50_000}
    assert session_timeouts(again) == {GROUPS[0]: 50_000, GROUPS[1]: 55_000}
    ids = [json.loads((data / INFO_NAME).read_text()) for data in (single.data, back)]
    assert ids[0] == ids[1]
    by_name = {row.name: row._replace(first_slot=0) for row in topics(back).topics}
    assert {row.name: row._replace(first_slot=0) for row in before_topics.topics}.items() <= by_name.items()

    after = SingleServer(tmp_path, "again")
    after.start()
    assert committed(after) == {**{group: number for number, group in enumerate(GROUPS, 1)}, GROUPS[0]: 1000}
    third_id = producer_id(after)
    after.stop()
    assert third_id > second_id
    (tmp_path / "second").mkdir()
    url = (tmp_path / "second").as_uri()
    assert run("import", str(after.data), "--cluster", url).code == 0
    with cluster_of(1, tmp_path / "second", url) as servers:
        assert producer_id(servers[0]) > third_id
        assert committed(servers[0])[GROUPS[0]] == 1000


class Transactions:
    """Commits the same offset for two groups in each transaction, in a thread. ``count``: complete ones."""

    def __init__(self, server: ClusterServer) -> None:
        self.count = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap(server),
                "transactional.id": "pairs",
                "transaction.timeout.ms": SHORT_MS,
                "log_level": 3,
            }
        )
        consumers = [Consumer({"bootstrap.servers": bootstrap(server), "group.id": group}) for group in PAIR]
        self._groups = [consumer.consumer_group_metadata() for consumer in consumers]
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._producer.init_transactions(60)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._producer.begin_transaction()
            for group in self._groups:
                position = TopicPartition(PAIR_TOPIC, 0, self.count + 1)
                self._producer.send_offsets_to_transaction([position], group, 60)
            self._producer.commit_transaction(60)
            self.count += 1


def test_export_beside_transactions_has_each_as_a_whole(tmp_path: Path, store: str, run: Run) -> None:
    copies: list[tuple[Path, int]] = []
    with cluster_of(2, tmp_path, store) as servers, Transactions(servers[0]) as transactions:
        for number in range(2):
            goal = transactions.count + 2
            wait_until(lambda goal=goal: transactions.count >= goal)  # type: ignore[misc]
            copies.append((tmp_path / f"copy-{number}", transactions.count))
            exported = run("export", str(copies[-1][0]), "--cluster", store)
            assert exported.code == 0, exported.err
    for path, least in copies:
        server = SingleServer(tmp_path, path.name)
        server.start()
        offsets = committed(server, PAIR, PAIR_TOPIC)
        server.stop()
        assert len(set(offsets.values())) == 1, offsets
        assert min(offsets.values()) >= least
