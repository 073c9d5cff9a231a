"""Real clients over TLS, with a server that requires their certificates and with one that does not."""

from __future__ import annotations

import asyncio
import signal
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka as confluent
import pytest
from aiokafka import AIOKafkaConsumer
from kafka_python_marks import KAFKA_PYTHON
from tls_helpers import TlsFolder

from .server import TEST_SETTINGS, ServerProcess
from .waiting import DEADLINE_S, wait_until

pytestmark = KAFKA_PYTHON

TOPIC = "orders"
OFFSET = 7


class TlsServer(NamedTuple):
    process: ServerProcess
    files: TlsFolder

    @property
    def bootstrap(self) -> str:
        return self.process.bootstrap


@contextmanager
def serving(folder: Path, client_auth: str) -> Iterator[TlsServer]:
    files = TlsFolder(folder)
    settings = {**TEST_SETTINGS, **files.settings(ssl_client_auth=client_auth)}
    with ServerProcess(folder, settings=settings, options=("--topic", f"{TOPIC}:1"), listener="SSL") as server:
        yield TlsServer(server, files)


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    """A server that requires certificates."""
    with serving(tmp_path_factory.mktemp("mutual"), "required") as server:
        yield server


@pytest.fixture(scope="module")
def one_sided(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    """A server that asks for no certificate."""
    with serving(tmp_path_factory.mktemp("one_sided"), "none") as server:
        yield server


def commit_with_confluent(server: TlsServer, group: str, keystore: Path | None) -> int:
    own = {} if keystore is None else {"ssl.certificate.location": str(keystore), "ssl.key.location": str(keystore)}
    consumer = confluent.Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": group,
            "security.protocol": "SSL",
            "ssl.ca.location": str(server.files.truststore),
            **own,
        }
    )
    partition = confluent.TopicPartition(TOPIC, 0, OFFSET)
    try:
        consumer.assign([partition])
        consumer.commit(offsets=[partition], asynchronous=False)
        [committed] = consumer.committed([partition], timeout=DEADLINE_S)
    finally:
        consumer.close()
    return int(committed.offset)


def commit_with_kafka_python(server: TlsServer, group: str, keystore: Path | None) -> int:
    kafka: Any = import_module("kafka")  # not at the top, since it raises deprecation warnings
    own = {} if keystore is None else {"ssl_certfile": str(keystore), "ssl_keyfile": str(keystore)}
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=server.bootstrap,
        group_id=group,
        security_protocol="SSL",
        ssl_cafile=str(server.files.truststore),
        enable_auto_commit=False,
        **own,
    )
    partition = kafka.TopicPartition(TOPIC, 0)
    try:
        consumer.assign([partition])
        consumer.commit({partition: kafka.OffsetAndMetadata(OFFSET, "", -1)})
        committed: Any = consumer.committed(partition)
    finally:
        consumer.close()
    return int(committed)


def commit_with_aiokafka(server: TlsServer, group: str, keystore: Path | None) -> int:
    context = ssl.create_default_context(cafile=str(server.files.truststore))
    if keystore is not None:
        context.load_cert_chain(keystore)

    async def commit() -> int:
        consumer = AIOKafkaConsumer(
            TOPIC,
            bootstrap_servers=server.bootstrap,
            group_id=group,
            security_protocol="SSL",
            ssl_context=context,
            enable_auto_commit=False,
        )
        await consumer.start()  # joins the group
        try:
            [partition] = consumer.assignment()
            await consumer.commit({partition: OFFSET})
            return int(await consumer.committed(partition))
        finally:
            await consumer.stop()

    return asyncio.run(asyncio.wait_for(commit(), DEADLINE_S))


CLIENTS = {
    "confluent-kafka": commit_with_confluent,
    "kafka-python": commit_with_kafka_python,
    "aiokafka": commit_with_aiokafka,
}
Commit = Callable[[TlsServer, str, Path | None], int]


@pytest.mark.parametrize("client", CLIENTS)
def test_client_commits_over_tls(one_sided: TlsServer, client: str) -> None:
    commit: Commit = CLIENTS[client]
    assert commit(one_sided, client, None) == OFFSET


@pytest.mark.parametrize("client", CLIENTS)
def test_client_commits_over_mutual_tls(mutual: TlsServer, client: str) -> None:
    commit: Commit = CLIENTS[client]
    assert commit(mutual, client, mutual.files.client(client)) == OFFSET


def test_sighup_reads_the_certificates_again(one_sided: TlsServer) -> None:
    """Also if the files have not changed."""
    before = one_sided.process.log_size()
    one_sided.process.send(signal.SIGHUP)
    expected = "new TLS certificates are used for new connections"
    wait_until(lambda: one_sided.process.log_since(before), lambda log: expected in log, expected)
    assert commit_with_confluent(one_sided, "after SIGHUP", None) == OFFSET
