"""Transactional producers of three libraries: offsets in transactions, timeouts, fencing and restarts.

Each test runs with confluent-kafka, aiokafka and kafka-python; ``CALLBOARD_TEST_BOOTSTRAP`` as in
``test_real_clients``. Committed offsets are fetched by raw requests with ``require_stable``.
"""

from __future__ import annotations

import pytest

from .group_clients import GroupClients, wait_until_partitions_are_shared
from .peer import Peer
from .server import ServerProcess
from .waiting import wait_until
from .wire import Wire

PARTITION = 0
NEVER = -1
SHORT_TIMEOUT_MS = 1_000
UNSTABLE = "UNSTABLE_OFFSET_COMMIT"


@pytest.fixture
def clients_with_topic(clients: GroupClients, library: str) -> GroupClients:
    """The clients, with tsuccessor topic created."""
    clients.producer_admin(library).ask("create_topic", topic=clients.topic)
    return clients


def fetch_offset(clients: GroupClients, bootstrap: str) -> tuple[int, str]:
    """The group's committed offset of the partition, and the error code."""
    host, _, port = bootstrap.rpartition(":")
    with Wire(host, int(port)) as wire:
        request = [{"name": clients.topic, "partition_indexes": [PARTITION]}]
        answer = wire.ask("offset_fetch", 7, group_id=clients.group, topics=request, require_stable=True)
    [[row]] = [topic["partitions"] for topic in answer["topics"]]
    return row["committed_offset"], row["error_code"]


def wait_for_stable_offset(clients: GroupClients, bootstrap: str) -> int:
    """Wait until no transaction is open; return the committed offset."""
    offset, _ = wait_until(
        lambda: fetch_offset(clients, bootstrap), lambda value: value[1] == "NONE", "a stable offset"
    )
    return offset


def begin_transaction(clients: GroupClients, library: str, offset: int, **options: int) -> Peer:
    """A producer with an open transaction that has committed an offset."""
    transactor = clients.transactor(library, **options)
    transactor.ask("init")
    transactor.ask("begin")
    transactor.ask("send_offsets", offsets=[(PARTITION, offset)])
    return transactor


def test_offsets_of_committed_transactions_only_are_visible(
    clients_with_topic: GroupClients, bootstrap: str, library: str
) -> None:
    transactor = begin_transaction(clients_with_topic, library, 5)
    assert fetch_offset(clients_with_topic, bootstrap) == (NEVER, UNSTABLE)
    transactor.ask("commit")
    assert wait_for_stable_offset(clients_with_topic, bootstrap) == 5
    for offset, end, expected in ((7, "abort", 5), (9, "commit", 9)):
        transactor.ask("begin")
        transactor.ask("send", partition=PARTITION, value="record")
        transactor.ask("send_offsets", offsets=[(PARTITION, offset)])
        transactor.ask(end)
        assert wait_for_stable_offset(clients_with_topic, bootstrap) == expected
    transactor.close()


def test_transaction_of_a_dead_producer_is_aborted_after_its_timeout(
    clients_with_topic: GroupClients, bootstrap: str, library: str
) -> None:
    """The producer is killed; its transaction times out."""
    transactor = begin_transaction(clients_with_topic, library, 5, timeout_ms=SHORT_TIMEOUT_MS)
    transactor.kill()
    assert wait_for_stable_offset(clients_with_topic, bootstrap) == NEVER
    successor = begin_transaction(clients_with_topic, library, 6)
    successor.ask("commit")
    assert wait_for_stable_offset(clients_with_topic, bootstrap) == 6


def test_producer_with_an_old_epoch_is_fenced(clients_with_topic: GroupClients, bootstrap: str, library: str) -> None:
    """A second producer with the same id aborts the transaction of the first, whose requests are refused."""
    fenced = begin_transaction(clients_with_topic, library, 5)
    successor = begin_transaction(clients_with_topic, library, 6)
    refused = fenced.try_ask("commit")
    assert "error" in refused and any(word in refused["error"].lower() for word in ("fenced", "epoch")), refused
    successor.ask("commit")
    assert wait_for_stable_offset(clients_with_topic, bootstrap) == 6


def test_read_committed_consumer_sees_only_committed_records(clients_with_topic: GroupClients, library: str) -> None:
    """Of an aborted, a committed and an open transaction only the second is read, until the third is committed."""
    transactor = clients_with_topic.transactor(library)
    transactor.ask("init")
    reader = clients_with_topic.member(library, "reader", isolation="read_committed")
    wait_until_partitions_are_shared(reader)
    for value, end in (("aborted", "abort"), ("committed", "commit"), ("open", "")):
        transactor.ask("begin")
        transactor.ask("send", partition=PARTITION, value=value)
        if end:
            transactor.ask(end)

    def values() -> list[bytes | None]:
        return [record.value for _, record in reader.received()]

    wait_until(values, bool, "the committed record")
    assert values() == [b"committed"]
    transactor.ask("commit")
    wait_until(values, lambda value: len(value) > 1, "the record of the transaction that is committed now")
    assert values() == [b"committed", b"open"]


class TestServer:
    """The server is killed and started again on the same port and data."""

    def test_open_transaction_survives_a_restart(
        self, clients_with_topic: GroupClients, server: ServerProcess, bootstrap: str, library: str
    ) -> None:
        """Killed before the end of a transaction: it is still open after the restart, and its producer commits it."""
        transactor = begin_transaction(clients_with_topic, library, 5)
        server.kill()
        server.start()
        assert fetch_offset(clients_with_topic, bootstrap) == (NEVER, UNSTABLE)
        transactor.ask("commit")
        assert wait_for_stable_offset(clients_with_topic, bootstrap) == 5

    def test_acknowledged_end_of_a_transaction_survives_a_restart(
        self, clients_with_topic: GroupClients, server: ServerProcess, bootstrap: str, library: str
    ) -> None:
        """Killed right after the answer, with or without markers; the next producer gets a higher epoch."""
        transactor = begin_transaction(clients_with_topic, library, 5)
        transactor.ask("commit")
        server.kill()
        server.start()
        assert wait_for_stable_offset(clients_with_topic, bootstrap) == 5
        transactor.kill()
        successor = begin_transaction(clients_with_topic, library, 6)
        successor.ask("abort")
        assert wait_for_stable_offset(clients_with_topic, bootstrap) == 5

    def test_transaction_of_a_producer_that_died_with_the_server_times_out(
        self, clients_with_topic: GroupClients, server: ServerProcess, bootstrap: str, library: str
    ) -> None:
        transactor = begin_transaction(clients_with_topic, library, 5, timeout_ms=SHORT_TIMEOUT_MS)
        server.kill()
        transactor.kill()
        server.start()
        assert wait_for_stable_offset(clients_with_topic, bootstrap) == NEVER
