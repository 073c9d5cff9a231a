"""Kafka Connect with two distributed workers, and Kafka Streams with both guarantees, on Callboard's topics.

The programs are Kafka's own; Maven brings them. docs/frameworks.md has the commands for a reader.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from peers.java import JAVA
from peers.server import ServerProcess
from peers.waiting import wait_until

from .kafka import FRAMEWORKS, HOST, free_ports, jars

DEADLINE_S = 120.0
STOP_S = 30.0
HEAP = ("java", "-Xmx192m", *JAVA[2:])
WORDS = 300
DIFFERENT_WORDS = 7
CONNECT = "org.apache.kafka.connect"

pytestmark = pytest.mark.usefixtures("kafka_jars")


@pytest.fixture(scope="module")
def class_path() -> str:
    return f"{jars(FRAMEWORKS)}/*"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """Topics are compacted every second, so the programs read compacted topics."""
    with ServerProcess(tmp_path, settings={"log_cleaner_backoff_ms": 1000}) as server:
        yield server


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def start(closing: ExitStack, log: Path, *command: str) -> subprocess.Popen[bytes]:
    """Start a program that is terminated at the end of the test."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    closing.callback(stop, process)
    return process


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# Kafka Connect -------------------------------------------------------------------------------------------------------


class Worker:
    """A distributed worker with its REST interface on ``port``."""

    def __init__(self, closing: ExitStack, class_path: str, folder: Path, bootstrap: str) -> None:
        [self.port] = free_ports(1)
        properties = folder / f"worker-{self.port}.properties"
        properties.write_text(
            f"bootstrap.servers={bootstrap}\n"
            "group.id=connect\n"
            "config.storage.topic=connect-configs\nconfig.storage.replication.factor=1\n"
            "offset.storage.topic=connect-offsets\noffset.storage.replication.factor=1\n"
            "status.storage.topic=connect-status\nstatus.storage.replication.factor=1\n"
            "offset.flush.interval.ms=500\nscheduled.rebalance.max.delay.ms=1000\n"
            "key.converter=org.apache.kafka.connect.storage.StringConverter\n"
            "value.converter=org.apache.kafka.connect.storage.StringConverter\n"
            f"listeners=http://{HOST}:{self.port}\n"
        )
        command = (*HEAP, "-cp", class_path, f"{CONNECT}.cli.ConnectDistributed", str(properties))
        self.process = start(closing, folder / f"worker-{self.port}.txt", *command)

    def ask(self, path: str, config: Any = None) -> Any:
        """Return the answer; None while the worker is starting or rebalancing. ``config``: is put at the path."""
        method, data = ("GET", None) if config is None else ("PUT", json.dumps(config).encode())
        with suppress(URLError, ConnectionError, TimeoutError):
            url, headers = f"http://{HOST}:{self.port}{path}", {"Content-Type": "application/json"}
            with urlopen(Request(url, data, headers, method=method), timeout=10) as answer:
                return json.load(answer)

    def has_connector(self, name: str, config: Any) -> bool:
        """Make a connector, or give it the same configuration again, since an answer may be lost."""
        return self.ask(f"/connectors/{name}/config", config) is not None

    def running_tasks(self, connector: str) -> int:
        status = self.ask(f"/connectors/{connector}/status")
        return 0 if status is None else [task["state"] for task in status["tasks"]].count("RUNNING")


def file_connector(kind: str, file: Path, **config: str) -> dict[str, str]:
    connector = f"{CONNECT}.file.FileStream{kind}Connector"
    return {"connector.class": connector, "tasks.max": "1", "file": str(file), **config}


def lines_of(file: Path) -> list[str]:
    return sorted(file.read_text().split()) if file.exists() else []


def test_two_connect_workers_copy_file_and_take_over(
    tmp_path: Path, class_path: str, server: ServerProcess, closing: ExitStack
) -> None:
    """Tasks of the worker that ends go to the other one, which goes on at the stored offsets.

    A worker ends if one of the topics that the other one has created is not compacted.
    """
    first, second = (Worker(closing, class_path, tmp_path, server.bootstrap) for _ in range(2))
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("a\nb\n")
    for name, config in (
        ("read", file_connector("Source", source, topic="lines")),
        ("write", file_connector("Sink", sink, topics="lines")),
    ):
        wait_until(partial(first.has_connector, name, config), bool, f"connector {name}", DEADLINE_S)
    wait_until(lambda: lines_of(sink), lambda lines: lines == ["a", "b"], "the first lines", DEADLINE_S)
    stop(second.process)
    with source.open("a") as file:
        file.write("c\n")
    wait_until(lambda: lines_of(sink), lambda lines: lines == ["a", "b", "c"], "the line after", DEADLINE_S)
    for name in ("read", "write"):
        wait_until(partial(first.running_tasks, name), lambda count: count == 1, name, DEADLINE_S)


# Kafka Streams -------------------------------------------------------------------------------------------------------


def newest_counts(bootstrap: str, group: str) -> dict[bytes, int]:
    """The last count of each word, as a consumer of committed records reads it."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe(["counts"])
    counts: dict[bytes, int] = {}

    def read() -> int:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            counts[message.key() or b""] = int(message.value() or b"0")
        return sum(counts.values())

    try:
        wait_until(read, lambda total: total >= WORDS, "all words to be counted", DEADLINE_S)
    finally:
        consumer.close()
    return counts


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_streams_application_counts_words(
    tmp_path: Path, class_path: str, server: ServerProcess, closing: ExitStack, guarantee: str
) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    for created in admin.create_topics([NewTopic("words", 2, 1), NewTopic("counts", 2, 1)]).values():
        created.result()
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for number in range(WORDS):
        producer.produce("words", value=f"word-{number % DIFFERENT_WORDS}")
    producer.flush()
    program = str(Path(__file__).with_name("WordCount.java"))
    command = (*HEAP, "-cp", class_path, program, server.bootstrap, guarantee, str(tmp_path / "state"))
    start(closing, tmp_path / "streams.txt", *command)
    counts = newest_counts(server.bootstrap, "reader")
    assert sum(counts.values()) == WORDS
    assert len(counts) == DIFFERENT_WORDS
