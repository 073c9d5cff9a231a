"""Real clients authenticate with signed tokens, and again with new ones while they work."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, NamedTuple

import confluent_kafka as confluent
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from cryptography.hazmat.primitives.asymmetric import rsa
from kafka_python_marks import KAFKA_PYTHON

from .server import TEST_SETTINGS, ServerProcess
from .waiting import DEADLINE_S, wait_until

jwt = pytest.importorskip("jwt")
pytestmark = KAFKA_PYTHON

TOPIC = "orders"
OFFSET = 7
LONG_S = 3600.0
SHORT_S = 3.0
TOKENS = 6
RENEWED_S = 1.25  # so the newest token has always two seconds left: Kafka's clients may not begin again within one


class TokenServer(NamedTuple):
    bootstrap: str
    key: Any

    def token(self, lifetime_s: float = LONG_S, **claims: Any) -> tuple[str, float]:
        """A token of alice, and when it ends."""
        now_s = time.time()
        values = {"sub": "alice", "iat": now_s, "exp": now_s + lifetime_s, "aud": "kafka", **claims}
        return str(jwt.encode(values, self.key, algorithm="RS256", headers={"kid": "one"})), now_s + lifetime_s


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenServer]:
    folder = tmp_path_factory.mktemp("oauth")
    key = rsa.generate_private_key(65537, 2048)
    public = {**jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": "one"}
    (folder / "keys.json").write_text(json.dumps({"keys": [public]}))
    settings = {
        **TEST_SETTINGS,
        "sasl_enabled_mechanisms": "OAUTHBEARER",
        "allow_plain_without_tls": "true",
        "connection_failed_authentication_delay_ms": 0,
        "sasl_oauthbearer_jwks_endpoint_url": (folder / "keys.json").as_uri(),
        "sasl_oauthbearer_expected_audience": "kafka",
    }
    options = ("--topic", f"{TOPIC}:1")
    with ServerProcess(folder, settings=settings, options=options, listener="SASL_PLAINTEXT") as process:
        yield TokenServer(process.bootstrap, key)


def confluent_consumer(server: TokenServer, group: str, oauth: Callable[[str], Any], **settings: Any) -> Any:
    return confluent.Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": group,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": oauth,
            "log_level": 0,
            **settings,
        }
    )


def commit_with_confluent(server: TokenServer, group: str) -> int:
    consumer = confluent_consumer(server, group, lambda _: server.token())
    try:
        consumer.poll(0.1)  # calls the callback
        consumer.commit(offsets=[confluent.TopicPartition(TOPIC, 0, OFFSET)], asynchronous=False)
        [found] = consumer.committed([confluent.TopicPartition(TOPIC, 0)], timeout=DEADLINE_S)
        return int(found.offset)
    finally:
        consumer.close()


def commit_with_aiokafka(server: TokenServer, group: str) -> int:
    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return server.token()[0]

    async def commit() -> int:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=server.bootstrap,
            group_id=group,
            enable_auto_commit=False,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Provider(),
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


def commit_with_kafka_python(server: TokenServer, group: str) -> int:
    kafka: Any = import_module("kafka")
    base: Any = import_module("kafka.net.sasl.oauth").AbstractTokenProvider

    class Provider(base):  # type: ignore[misc]
        def token(self) -> str:
            return server.token()[0]

    consumer = kafka.KafkaConsumer(
        bootstrap_servers=server.bootstrap,
        group_id=group,
        enable_auto_commit=False,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Provider(),
    )
    try:
        partition = kafka.TopicPartition(TOPIC, 0)
        consumer.assign([partition])
        consumer.commit({partition: kafka.OffsetAndMetadata(OFFSET, "", -1)})
        return int(consumer.committed(partition))
    finally:
        consumer.close()


COMMITS: dict[str, Callable[[TokenServer, str], int]] = {
    "confluent": commit_with_confluent,
    "aiokafka": commit_with_aiokafka,
    "kafka-python": commit_with_kafka_python,
}


@pytest.mark.parametrize("client", COMMITS)
def test_client_authenticates_with_a_token_and_commits(server: TokenServer, client: str) -> None:
    assert COMMITS[client](server, client) == OFFSET


def test_client_with_a_token_for_another_audience_is_told_so(server: TokenServer) -> None:
    errors: list[str] = []
    consumer = confluent_consumer(
        server, "other", lambda _: server.token(aud="other"), error_cb=lambda error: errors.append(error.str())
    )
    consumer.subscribe([TOPIC])
    wait_until(lambda: consumer.poll(0.05) or errors, bool, "an error")
    consumer.close()
    assert '{"status":"invalid_token"}' in errors[0]


def test_member_with_short_tokens_authenticates_again_without_a_rebalance(server: TokenServer) -> None:
    """KIP-368: the server would close its connection at the end of a token."""
    given: list[str] = []
    assignments: list[int] = []
    lost: list[str] = []

    def token(_: str) -> tuple[str, float]:
        own = server.token(SHORT_S)[0]
        given.append(own)
        return own, time.time() + RENEWED_S

    consumer = confluent_consumer(
        server, "short", token, error_cb=lambda error: lost.append(error.str()), **{"heartbeat.interval.ms": 200}
    )
    consumer.subscribe([TOPIC], on_assign=lambda _consumer, partitions: assignments.append(len(partitions)))
    wait_until(lambda: consumer.poll(0.05) or len(given) >= TOKENS, bool, "tokens")
    consumer.close()
    assert assignments == [1]
    assert lost == []
