"""Transactional producers of three libraries: read, process, send the offsets, commit; and what goes wrong with that.

Each test runs with confluent-kafka, aiokafka and kafka-python; ``CALLBOARD_TEST_BOOTSTRAP`` as in
``test_real_clients``. What is committed is asked over the wire, as a consumer that needs stable offsets asks.
"""

from __future__ import annotations

import pytest

from .company import Company, wait_for_shares
from .server import ServerProcess
from .stage import Peer
from .waiting import wait_until
from .wire import Wire

PARTITION = 0
NEVER = -1
SHORT_TIMEOUT_MS = 1_000
UNSTABLE = "UNSTABLE_OFFSET_COMMIT"


@pytest.fixture
def staged(company: Company, library: str) -> Company:
    """With the topic there."""
    company.backstage(library).ask("create_topic", topic=company.topic)
    return company


def look(company: Company, bootstrap: str) -> tuple[int, str]:
    """The group's offset for the partition, and the error, as they are now."""
    host, _, port = bootstrap.rpartition(":")
    with Wire(host, int(port)) as wire:
        asked = [{"name": company.topic, "partition_indexes": [PARTITION]}]
        answer = wire.ask("offset_fetch", 7, group_id=company.group, topics=asked, require_stable=True)
    [[found]] = [topic["partitions"] for topic in answer["topics"]]
    return found["committed_offset"], found["error_code"]


def stable(company: Company, bootstrap: str) -> int:
    """The same when no transaction is open any more."""
    offset, _ = wait_until(lambda: look(company, bootstrap), lambda seen: seen[1] == "NONE", "a stable offset")
    return offset


def begun(company: Company, library: str, offset: int, **options: int) -> Peer:
    """A producer with an open transaction that has committed an offset."""
    transactor = company.transactor(library, **options)
    transactor.ask("init")
    transactor.ask("begin")
    transactor.ask("send_offsets", offsets=[(PARTITION, offset)])
    return transactor


def test_offsets_of_committed_transactions_only_are_visible(staged: Company, bootstrap: str, library: str) -> None:
    transactor = begun(staged, library, 5)
    assert look(staged, bootstrap) == (NEVER, UNSTABLE)
    transactor.ask("commit")
    assert stable(staged, bootstrap) == 5
    for offset, end, expected in ((7, "abort", 5), (9, "commit", 9)):
        transactor.ask("begin")
        transactor.ask("send", partition=PARTITION, value="record")
        transactor.ask("send_offsets", offsets=[(PARTITION, offset)])
        transactor.ask(end)
        assert stable(staged, bootstrap) == expected
    transactor.close()


def test_transaction_of_a_dead_producer_is_aborted_after_its_timeout(
    staged: Company, bootstrap: str, library: str
) -> None:
    """``kill -9`` of the producer: nobody waits for it longer than it has asked for."""
    transactor = begun(staged, library, 5, timeout_ms=SHORT_TIMEOUT_MS)
    transactor.kill()
    assert stable(staged, bootstrap) == NEVER
    heir = begun(staged, library, 6)
    heir.ask("commit")
    assert stable(staged, bootstrap) == 6


def test_producer_with_an_old_epoch_is_fenced(staged: Company, bootstrap: str, library: str) -> None:
    """A second producer takes over: what the first has begun is aborted, and it can do nothing any more."""
    zombie = begun(staged, library, 5)
    heir = begun(staged, library, 6)
    refused = zombie.try_ask("commit")
    assert "error" in refused and any(word in refused["error"].lower() for word in ("fenced", "epoch")), refused
    heir.ask("commit")
    assert stable(staged, bootstrap) == 6


def test_read_committed_consumer_sees_only_committed_records(staged: Company, library: str) -> None:
    """One transaction is aborted, one committed, one open: only the second is read until the third is committed too."""
    transactor = staged.transactor(library)
    transactor.ask("init")
    reader = staged.member(library, "reader", isolation="read_committed")
    wait_for_shares(reader)
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
    wait_until(values, lambda seen: len(seen) > 1, "the record of the transaction that is committed now")
    assert values() == [b"committed", b"open"]


class TestServer:
    """The server is killed and started again on the same port and data."""

    def test_open_transaction_survives_a_restart(
        self, staged: Company, server: ServerProcess, bootstrap: str, library: str
    ) -> None:
        """``kill -9`` before the end of the transaction: it is still open afterwards, and its producer commits it."""
        transactor = begun(staged, library, 5)
        server.kill()
        server.start()
        assert look(staged, bootstrap) == (NEVER, UNSTABLE)
        transactor.ask("commit")
        assert stable(staged, bootstrap) == 5

    def test_acknowledged_end_of_a_transaction_survives_a_restart(
        self, staged: Company, server: ServerProcess, bootstrap: str, library: str
    ) -> None:
        """``kill -9`` right behind the answer, markers or not; the next producer goes on with a higher epoch."""
        transactor = begun(staged, library, 5)
        transactor.ask("commit")
        server.kill()
        server.start()
        assert stable(staged, bootstrap) == 5
        transactor.kill()
        heir = begun(staged, library, 6)
        heir.ask("abort")
        assert stable(staged, bootstrap) == 5

    def test_transaction_of_a_producer_that_died_with_the_server_times_out(
        self, staged: Company, server: ServerProcess, bootstrap: str, library: str
    ) -> None:
        transactor = begun(staged, library, 5, timeout_ms=SHORT_TIMEOUT_MS)
        server.kill()
        transactor.kill()
        server.start()
        assert stable(staged, bootstrap) == NEVER
