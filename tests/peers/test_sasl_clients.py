"""Real clients authenticate by each mechanism over TLS, and commit offsets."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, NamedTuple

import confluent_kafka as confluent
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka_python_marks import KAFKA_PYTHON
from program_helpers import run
from tls_helpers import TlsFolder

from .server import TEST_SETTINGS, ServerProcess
from .waiting import DEADLINE_S, wait_until

pytestmark = KAFKA_PYTHON

TOPIC = "orders"
OFFSET = 7
USER, PASSWORD = "alice", "secret, with = and ü"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SETTINGS = {
    **TEST_SETTINGS,
    "sasl_enabled_mechanisms": ",".join(MECHANISMS),
    "connection_failed_authentication_delay_ms": 0,
}


class SaslServer(NamedTuple):
    bootstrap: str
    authority: str


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslServer]:
    folder = tmp_path_factory.mktemp("sasl")
    files = TlsFolder(folder)
    (folder / "password").write_text(f"{PASSWORD}\n", encoding="utf-8")
    added = run("users", "add", USER, "--password-file", "password", "--data", "data", folder=folder)
    assert (added.returncode, added.stdout) == (0, "user 'alice' added\n"), added.stderr
    options = ("--topic", f"{TOPIC}:1")
    settings = {**SETTINGS, **files.settings()}
    with ServerProcess(folder, settings=settings, options=options, listener="SASL_SSL") as server:
        yield SaslServer(server.bootstrap, str(files.truststore))


def confluent_settings(server: SaslServer, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "bootstrap.servers": server.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": server.authority,
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": password,
    }


def commit_with_confluent(server: SaslServer, group: str, mechanism: str) -> int:
    consumer = confluent.Consumer({**confluent_settings(server, mechanism), "group.id": group})
    try:
        position = confluent.TopicPartition(TOPIC, 0, OFFSET)
        consumer.commit(offsets=[position], asynchronous=False)
        [found] = consumer.committed([confluent.TopicPartition(TOPIC, 0)], timeout=DEADLINE_S)
        return int(found.offset)
    finally:
        consumer.close()


def commit_with_aiokafka(server: SaslServer, group: str, mechanism: str) -> int:
    async def commit() -> int:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=server.bootstrap,
            group_id=group,
            enable_auto_commit=False,
            security_protocol="SASL_SSL",
            ssl_context=ssl.create_default_context(cafile=server.authority),
            sasl_mechanism=mechanism,
            sasl_plain_username=USER,
            sasl_plain_password=PASSWORD,
        )
        await consumer.start()
        try:
            partition = TopicPartition(TOPIC, 0)
            consumer.assign([partition])
            await consumer.commit({partition: OFFSET})
            return int(await consumer.committed(partition))
        finally:
            await consumer.stop()

    return asyncio.run(commit())


def commit_with_kafka_python(server: SaslServer, group: str, mechanism: str) -> int:
    kafka: Any = import_module("kafka")
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=server.bootstrap,
        group_id=group,
        enable_auto_commit=False,
        security_protocol="SASL_SSL",
        ssl_cafile=server.authority,
        sasl_mechanism=mechanism,
        sasl_plain_username=USER,
        sasl_plain_password=PASSWORD,
    )
    try:
        partition = kafka.TopicPartition(TOPIC, 0)
        consumer.assign([partition])
        consumer.commit({partition: kafka.OffsetAndMetadata(OFFSET, "", -1)})
        return int(consumer.committed(partition))
    finally:
        consumer.close()


COMMITS: dict[str, Callable[[SaslServer, str, str], int]] = {
    "confluent": commit_with_confluent,
    "aiokafka": commit_with_aiokafka,
    "kafka-python": commit_with_kafka_python,
}


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", COMMITS)
def test_client_authenticates_and_commits(server: SaslServer, client: str, mechanism: str) -> None:
    assert COMMITS[client](server, f"{client}-{mechanism}", mechanism) == OFFSET


def test_client_with_a_wrong_password_is_told_so(server: SaslServer) -> None:
    errors: list[str] = []
    settings = confluent_settings(server, "PLAIN", "wrong")
    consumer = confluent.Consumer(
        {**settings, "group.id": "wrong", "error_cb": lambda error: errors.append(error.str()), "log_level": 0}
    )
    consumer.subscribe([TOPIC])
    wait_until(lambda: consumer.poll(0.05) or errors, bool, "an error")
    consumer.close()
    assert "Authentication failed: Invalid username or password" in errors[0]


def test_admin_client_changes_users(server: SaslServer) -> None:
    admin = AdminClient(confluent_settings(server, "SCRAM-SHA-512"))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
    upsertion = UserScramCredentialUpsertion("bob", info, b"hidden")
    deletion = UserScramCredentialDeletion("nobody", ScramMechanism.SCRAM_SHA_256)
    futures: Any = admin.alter_user_scram_credentials([upsertion, deletion])
    assert futures["bob"].result(DEADLINE_S) is None
    with pytest.raises(confluent.KafkaException, match="Attempt to delete a user credential that does not exist"):
        futures["nobody"].result(DEADLINE_S)
    found: Any = admin.describe_user_scram_credentials(["bob"])
    described = found["bob"].result(DEADLINE_S)
    assert [(each.mechanism, each.iterations) for each in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 8192)
    ]
    with_bob = {**confluent_settings(server, "SCRAM-SHA-256", "hidden"), "sasl.username": "bob"}
    assert TOPIC in AdminClient(with_bob).list_topics(timeout=DEADLINE_S).topics
