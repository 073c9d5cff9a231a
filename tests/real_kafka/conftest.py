"""Fixtures of the differential tests: a real Kafka, and Callboard with the same settings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from peers.server import TEST_SETTINGS, ServerProcess

from .kafka import KafkaUnavailable, RealKafka, jars, missing
from .new_kafka import NewKafka
from .side_by_side import Address, SideBySide
from .tools import KafkaTools

# HOST:PORT of a broker that replaces our server, to test these tests.
BOOTSTRAP = os.environ.get("CALLBOARD_TEST_BOOTSTRAP")


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """The folder with Kafka's jars. Without Java or Maven the tests are skipped; in CI they fail."""
    reason = missing()
    if reason is not None:
        _skip_or_fail(reason)
    try:
        return jars()
    except KafkaUnavailable as unavailable:
        _skip_or_fail(str(unavailable))


@pytest.fixture(scope="session")
def real_kafka(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """One real Kafka for the whole session."""
    kafka = RealKafka(tmp_path_factory.mktemp("real-kafka"))
    kafka.start()
    yield kafka
    kafka.stop()


@pytest.fixture(scope="session")
def new_kafka(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> NewKafka:
    """Makes stopped nodes that have their topics, but no groups."""
    assert kafka_jars
    return NewKafka(tmp_path_factory.mktemp("new-kafka"))


@pytest.fixture(scope="session")
def kafka_tools(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTools]:
    """Kafka's tools, in one process for the whole session."""
    tools = KafkaTools(kafka_jars, tmp_path_factory.mktemp("kafka-tools"))
    yield tools
    tools.finish()


@pytest.fixture(scope="session")
def our_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """The address of our server, with the settings of the real Kafka, or of the broker that replaces it."""
    if BOOTSTRAP:
        host, _, port = BOOTSTRAP.rpartition(":")
        yield host, int(port)
        return
    settings = {**TEST_SETTINGS, "auto_create_topics_enable": "false"}
    with ServerProcess(tmp_path_factory.mktemp("our-server"), settings=settings) as server:
        yield server.host, server.port


@pytest.fixture
def side_by_side(real_kafka: RealKafka, our_address: Address) -> Iterator[SideBySide]:
    """Both servers, for requests that are sent to both."""
    with SideBySide(our_address, (real_kafka.host, real_kafka.port)) as side_by_side:
        yield side_by_side


def _skip_or_fail(reason: str) -> NoReturn:
    # A developer's machine may lack Java, but CI must not pass without the comparison.
    if os.environ.get("CI"):
        pytest.fail(f"in CI the comparison with a real Kafka is not optional: {reason}")
    pytest.skip(reason)
