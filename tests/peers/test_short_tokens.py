"""Real clients with tokens of seconds, over TLS: they stay in their groups, and no commit is lost.

Java's client, librdkafka, kafka-python and Callboard's members authenticate again on their connections (KIP-368).
aiokafka does not: its connections are closed when their sessions have ended, and it connects again.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import confluent_kafka as confluent
import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from cryptography.hazmat.primitives.asymmetric import ec
from kafka_python_marks import KAFKA_PYTHON
from tls_helpers import TlsFolder

import callboard
from callboard.runtime.client.cluster import Cluster
from callboard.runtime.client.security import load_security
from callboard.runtime.settings.address import parse_address

from .java import JavaConsumer
from .server import TEST_SETTINGS, ServerProcess
from .waiting import DEADLINE_S, wait_until

jwt = pytest.importorskip("jwt")
JAVA_OAUTH = "org.apache.kafka.common.security.oauthbearer"
TOPIC = "orders"
LIFETIME_S = float(os.environ.get("CALLBOARD_TOKEN_LIFETIME_S", "5"))
RUN_S = float(os.environ.get("CALLBOARD_TOKENS_RUN_S", "11"))
"""At least two lifetimes."""
IS_LONG = LIFETIME_S >= 10
SAID_S = LIFETIME_S if IS_LONG else LIFETIME_S / 2
"""After which time librdkafka is told that a token ends. It asks for another one after 80 % of it. Kafka's rules need
more than a second of the last token's lifetime then, because a client may not begin again within one."""
LONG_LIFETIME_S = 3600.0
COMMIT_INTERVAL_S = 0.25
RENEWED_S = LIFETIME_S / 5
"""How often the file with the token of Callboard's members is written."""

pytestmark = [
    *KAFKA_PYTHON,
    # aiokafka does not close the connections that the server has closed.
    pytest.mark.filterwarnings("ignore:Unclosed AIOKafkaConnection:ResourceWarning"),
    pytest.mark.timeout(RUN_S + 5 * DEADLINE_S),
]


class TokenServer(NamedTuple):
    """``folder``: has the authority's certificate, a file with a token, and the server's data."""

    bootstrap: str
    folder: Path
    key: Any

    def token(self, lifetime_s: float = LIFETIME_S) -> tuple[str, float]:
        """A token of alice, and when librdkafka is told that it ends."""
        now_s = time.time()
        claims = {"sub": "alice", "iat": now_s, "exp": now_s + lifetime_s}
        return str(jwt.encode(claims, self.key, algorithm="ES256", headers={"kid": "one"})), now_s + SAID_S

    @property
    def authority(self) -> str:
        return str(self.folder / "ca.pem")

    @property
    def security(self) -> dict[str, str]:
        """The settings of Callboard's clients."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": self.authority,
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": (self.folder / "token").as_uri(),
        }

    def write_token(self) -> None:
        new = self.folder / "token.new"
        new.write_text(self.token()[0])
        new.replace(self.folder / "token")

    def authentications(self, client: str) -> dict[int, list[datetime]]:
        """When a client has authenticated, by the port of its connection."""
        times: dict[int, list[datetime]] = {}
        for line in (self.folder / "data" / "audit.jsonl").read_text().splitlines():
            event = json.loads(line)
            if event["kind"] == "authenticated" and event["client_id"] == client:
                times.setdefault(event["port"], []).append(datetime.fromisoformat(event["time"]))
        return times


class Run:
    """The run of one client. It begins with the first commit. ``committed``: the last offset that was answered."""

    def __init__(self, server: TokenServer, client: str) -> None:
        self.server = server
        self.client = client
        self.committed = 0
        self.assignments = 0
        self._ends_s = float("inf")

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._ends_s

    def commit_was_answered(self) -> None:
        self.committed += 1
        if self.committed == 1:
            self._ends_s = time.monotonic() + RUN_S

    def assigned(self, *_: Any) -> None:
        self.assignments += 1


def run_confluent(run: Run) -> None:
    errors: list[str] = []
    consumer = confluent.Consumer(
        {
            "bootstrap.servers": run.server.bootstrap,
            "client.id": run.client,
            "group.id": run.client,
            "enable.auto.commit": False,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": run.server.authority,
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: run.server.token(),
            "error_cb": lambda error: errors.append(error.str()),
        }
    )
    consumer.subscribe([TOPIC], on_assign=run.assigned)
    while not run.is_over:
        consumer.poll(COMMIT_INTERVAL_S)
        if consumer.assignment():
            position = confluent.TopicPartition(TOPIC, 0, run.committed + 1)
            consumer.commit(offsets=[position], asynchronous=False)
            run.commit_was_answered()
    consumer.close()
    assert errors == []


def run_kafka_python(run: Run) -> None:
    kafka: Any = import_module("kafka")
    base: Any = import_module("kafka.net.sasl.oauth").AbstractTokenProvider

    class Provider(base):  # type: ignore[misc]
        def token(self) -> str:
            return run.server.token()[0]

    class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        def on_partitions_assigned(self, assigned: Any) -> None:
            run.assigned()

    consumer = kafka.KafkaConsumer(
        bootstrap_servers=run.server.bootstrap,
        client_id=run.client,
        group_id=run.client,
        enable_auto_commit=False,
        security_protocol="SASL_SSL",
        ssl_cafile=run.server.authority,
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Provider(),
    )
    consumer.subscribe([TOPIC], listener=Listener())
    consumer.topics()  # a leader that learns of the topic later joins again
    while not run.is_over:
        consumer.poll(timeout_ms=COMMIT_INTERVAL_S * 1000)
        if consumer.assignment():
            partition = kafka.TopicPartition(TOPIC, 0)
            consumer.commit({partition: kafka.OffsetAndMetadata(run.committed + 1, "", -1)})
            run.commit_was_answered()
    consumer.close()


def run_aiokafka(run: Run) -> None:
    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return run.server.token()[0]

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        def on_partitions_assigned(self, assigned: Any) -> None:
            run.assigned()

    async def consume() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=run.server.bootstrap,
            client_id=run.client,
            group_id=run.client,
            enable_auto_commit=False,
            security_protocol="SASL_SSL",
            ssl_context=ssl.create_default_context(cafile=run.server.authority),
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Provider(),
        )
        consumer.subscribe([TOPIC], listener=Listener())
        await consumer.start()
        while not run.is_over:
            await consumer.getmany(timeout_ms=int(COMMIT_INTERVAL_S * 1000))
            if consumer.assignment():
                await consumer.commit({TopicPartition(TOPIC, 0): run.committed + 1})
                run.commit_was_answered()
        await consumer.stop()

    asyncio.run(consume())


def run_callboard(run: Run) -> None:
    async def consume() -> None:
        async with (
            callboard.connect(run.server.bootstrap, run.server.security) as coordinator,
            coordinator.member(run.client, resources={TOPIC: 1}, client_id=run.client) as member,
        ):
            assignment = await member.next_assignment()
            run.assigned()
            while not run.is_over:
                await asyncio.sleep(COMMIT_INTERVAL_S)
                await assignment.shards[0].commit(run.committed + 1)
                run.commit_was_answered()

    asyncio.run(consume())


RUNS: dict[str, Callable[[Run], None]] = {
    "confluent": run_confluent,
    "kafka-python": run_kafka_python,
    "aiokafka": run_aiokafka,
    "own": run_callboard,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenServer]:
    folder = tmp_path_factory.mktemp("tokens")
    files = TlsFolder(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    public = {**jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": "one"}
    (folder / "keys.json").write_text(json.dumps({"keys": [public]}))
    settings = {
        **TEST_SETTINGS,
        **files.settings(),
        "sasl_enabled_mechanisms": "OAUTHBEARER",
        "sasl_oauthbearer_jwks_endpoint_url": (folder / "keys.json").as_uri(),
        "audit": "file",
    }
    options = ("--topic", f"{TOPIC}:1")
    with ServerProcess(folder, settings=settings, options=options, listener="SASL_SSL") as process:
        yield TokenServer(process.bootstrap, folder, key)


@pytest.fixture(scope="module")
def runs(server: TokenServer) -> Iterator[dict[str, Run]]:
    """All clients at once. An error of one is raised."""
    over: list[bool] = []

    def renew() -> None:
        while not over:
            server.write_token()
            time.sleep(RENEWED_S)

    server.write_token()
    Thread(target=renew, daemon=True).start()
    found = {client: Run(server, client) for client in RUNS}
    with ThreadPoolExecutor(len(found)) as threads:
        done = [threads.submit(RUNS[client], run) for client, run in found.items()]
        for future in done:
            future.result(RUN_S + DEADLINE_S)
    yield found
    over.append(True)


@pytest.mark.parametrize("client", RUNS)
def test_no_commit_is_lost(server: TokenServer, runs: dict[str, Run], client: str) -> None:
    with Cluster(
        parse_address("bootstrap", server.bootstrap, 1), DEADLINE_S, load_security(server.security, {})
    ) as own:
        offsets = own.committed(client)
    assert [entry.offset for entry in offsets.values()] == [runs[client].committed]
    assert runs[client].committed > 0


@pytest.mark.parametrize("client", RUNS)
def test_member_stays_in_its_group(runs: dict[str, Run], client: str) -> None:
    assert runs[client].assignments == 1


@pytest.mark.parametrize("client", [client for client in RUNS if client != "aiokafka"])
def test_connections_last_longer_than_tokens(server: TokenServer, runs: dict[str, Run], client: str) -> None:
    """A connection authenticates once in a lifetime. A client that a busy machine delays may lose it rightly."""
    assert runs[client].is_over
    connections = server.authentications(client)
    assert max(map(len, connections.values())) >= RUN_S // LIFETIME_S, connections
    begins = [min(times) for times in connections.values()]
    late = [begin for begin in begins if begin - min(begins) > timedelta(seconds=LIFETIME_S)]
    assert not IS_LONG or late == [], connections


def test_client_that_does_not_authenticate_again_connects_again(server: TokenServer, runs: dict[str, Run]) -> None:
    assert runs["aiokafka"].is_over
    connections = server.authentications("aiokafka")
    assert {len(times) for times in connections.values()} == {1}
    assert len(connections) >= RUN_S // LIFETIME_S


def test_java_authenticates_with_a_token(
    server: TokenServer, class_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one of an hour: by default it renews its token once a minute at most."""
    file = tmp_path / "token"
    file.write_text(server.token(LONG_LIFETIME_S)[0])
    monkeypatch.setenv("JDK_JAVA_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={file.as_uri()}")
    security = {
        "client.id": "java",
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": server.authority,
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": f"{JAVA_OAUTH}.OAuthBearerLoginCallbackHandler",
        "sasl.jaas.config": f"{JAVA_OAUTH}.OAuthBearerLoginModule required;",
        "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
    }
    options = {"topic": TOPIC, "group_id": "java", "bootstrap_server": server.bootstrap}
    consumer = JavaConsumer(class_path, "java", tmp_path, security=security, **options)
    try:
        wait_until(lambda: consumer.assignment, lambda owned: owned == {0}, "an assignment")
    finally:
        consumer.kill()
    assert server.authentications("java")
