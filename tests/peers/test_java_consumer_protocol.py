"""Java consumers with ``group.protocol=consumer`` (KIP-848), and the change from the classic protocol and back.

Skipped where there is no Java or no Maven, which brings the jars; in CI that is a failure.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from .group_clients import PARTITIONS, is_fair_share
from .java import JavaMembers, JavaProducer
from .peer_main import PARTITIONS_PER_TOPIC
from .server import ServerProcess
from .test_consumer_protocol import SETTINGS, SHORT_SESSION_TIMEOUT_MS
from .waiting import wait_until

TOPIC, OTHER_TOPIC, GROUP = "orders", "payments", "shop"
RECORDS = 60
PAUSE_S = 0.005  # between two records of a ``Load``


class JavaGroup:
    """A group whose members are in several processes."""

    def __init__(self, jars: Path, folder: Path, bootstrap: str, closing: ExitStack) -> None:
        self._jars = jars
        self._folder = folder
        self.bootstrap = bootstrap
        self._closing = closing

    def members(self, name: str, group: str = GROUP) -> JavaMembers:
        """A process for members."""
        members = JavaMembers(self._jars, name, self._folder, self.bootstrap, group)
        self._closing.callback(members.finish)
        return members

    def produce(self) -> None:
        options: dict[str, Any] = {"topic": TOPIC, "bootstrap_server": self.bootstrap, "max_messages": RECORDS}
        # With keys the records go to all partitions.
        options |= {"repeating_keys": 2 * PARTITIONS_PER_TOPIC}
        producer = JavaProducer(self._jars, "producer", self._folder, **options)
        self._closing.callback(producer.finish)
        assert len(producer.sent()) == RECORDS


class Load(threading.Thread):
    """Produces records to all partitions in turn, until it is ended. ``sent``: the partition and offset of each."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self.sent: list[tuple[int, int]] = []
        self._is_ended = threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})

    def run(self) -> None:
        for partition in itertools.cycle(PARTITIONS):
            self._producer.produce(TOPIC, b"record", partition=partition, on_delivery=self._delivered)
            self._producer.poll(0)
            if self._is_ended.wait(PAUSE_S):
                break
        self._producer.flush()

    def _delivered(self, error: object, message: Any) -> None:
        assert error is None, error
        self.sent.append((message.partition(), message.offset()))

    def end(self) -> None:
        self._is_ended.set()
        self.join()


@pytest.fixture
def java_group(class_path: Path, tmp_path: Path) -> Iterator[JavaGroup]:
    settings = {**SETTINGS, "group_consumer_session_timeout_ms": SHORT_SESSION_TIMEOUT_MS}
    options = ("--topic", f"{TOPIC}:{PARTITIONS_PER_TOPIC}", "--topic", f"{OTHER_TOPIC}:1")
    with ExitStack() as closing, ServerProcess(tmp_path, settings=settings, options=options) as server:
        yield JavaGroup(class_path, tmp_path, server.bootstrap, closing)


@pytest.fixture
def load(java_group: JavaGroup) -> Iterator[Load]:
    load = Load(java_group.bootstrap)
    load.start()
    yield load
    load.end()


def join(members: JavaMembers, name: str, **options: str) -> None:
    members.ask("join", member=name, **({"topic": TOPIC} if "pattern" not in options else {}), **options)


def wait_for_shares(*members: tuple[JavaMembers, str]) -> list[frozenset[int]]:
    """Wait until each partition has one owner among the members and their shares are balanced."""
    return wait_until(
        lambda: [process.assignment(name) for process, name in members], is_fair_share, "the partitions to be shared"
    )


def test_members_of_java(java_group: JavaGroup) -> None:
    """Incremental callbacks, commits of both kinds, a description, a static member, and one that is killed."""
    members = java_group.members("members")
    join(members, "first")
    wait_for_shares((members, "first"))
    join(members, "second")
    kept, given = wait_for_shares((members, "first"), (members, "second"))
    assert members.moved("first", "assigned") == [sorted(PARTITIONS)]
    assert members.moved("first", "revoked") == [sorted(given)], "only what moves"
    assert members.moved("second", "assigned") == [sorted(given)]

    check_commits(java_group, members, kept, given)
    check_description(members, kept, given)
    check_static_member(members)
    check_killed_member(java_group, members)
    assert members.events("error") == []
    assert members.events("lost") == []


def check_commits(java_group: JavaGroup, members: JavaMembers, kept: frozenset[int], given: frozenset[int]) -> None:
    """Both members receive their records. One commits synchronously, the other one does not wait."""
    java_group.produce()
    for name, share in (("first", kept), ("second", given)):
        received = wait_until(
            lambda name=name: {(event["partition"], event["offset"]) for event in members.of(name, "record")},  # type: ignore[misc]
            lambda found, share=share: {partition for partition, _ in found} == share,  # type: ignore[misc]
            f"records of {sorted(share)}",
        )
        assert {partition for partition, _ in received} == share
    wait_until(lambda: len(members.events("record")), lambda count: count == RECORDS, f"{RECORDS} records")

    def at(partitions: frozenset[int], offset: int) -> dict[str, int]:
        return {str(partition): offset for partition in sorted(partitions)}

    members.ask("commit_sync", member="first", topic=TOPIC, offsets=at(kept, 3))
    members.ask("commit_async", member="second", topic=TOPIC, offsets=at(given, 4))
    [committed] = wait_until(lambda: members.of("second", "committed"), bool, "the callback of a commit")
    assert (committed["partitions"], committed["error"]) == (sorted(given), "null")
    fetched = members.ask("committed", member="first", topic=TOPIC, offsets=at(PARTITIONS, 0))
    assert fetched == at(kept, 3) | at(given, 4)


def check_description(members: JavaMembers, kept: frozenset[int], given: frozenset[int]) -> None:
    described = wait_until(lambda: members.ask("describe"), lambda found: found["state"] == "Stable", "a stable group")
    epoch = described["epoch"]
    assert (described["type"], described["assignor"], described["target_epoch"]) == ("Consumer", "uniform", epoch)
    assert described["members"] == {
        name: {
            "instance": "",
            "epoch": epoch,
            "upgraded": "true",
            "partitions": sorted(share),
            "target": sorted(share),
        }
        for name, share in (("first", kept), ("second", given))
    }


def check_static_member(members: JavaMembers) -> None:
    """It leaves for a while, and its successor has its partitions; the others do not notice."""
    join(members, "third", instance="i")
    *others, share = wait_for_shares(*((members, name) for name in ("first", "second", "third")))
    revoked = len(members.events("revoked"))
    members.ask("leave", member="third")
    join(members, "fourth", instance="i")
    wait_until(lambda: members.assignment("fourth"), lambda found: found == share, "the share of the instance")
    assert [members.assignment(name) for name in ("first", "second")] == others
    assert {event["member"] for event in members.events("revoked")[revoked:]} <= {"third"}
    assert members.ask("describe")["members"]["fourth"]["instance"] == "i"


def check_killed_member(java_group: JavaGroup, members: JavaMembers) -> None:
    """The others take over its partitions when its session has ended."""
    names = ("first", "second", "fourth")
    victim = java_group.members("victim")
    join(victim, "fifth")
    wait_for_shares(*((members, name) for name in names), (victim, "fifth"))
    victim.kill()
    wait_for_shares(*((members, name) for name in names))
    assert set(members.ask("describe")["members"]) == set(names)


def test_patterns_of_java(java_group: JavaGroup) -> None:
    """``SubscriptionPattern``: the coordinator matches the topics, with RE2."""
    members = java_group.members("members", "by-pattern")
    join(members, "first", pattern="o.*s")
    wait_for_shares((members, "first"))
    join(members, "second", pattern="o.*s")
    wait_for_shares((members, "first"), (members, "second"))
    join(members, "invalid", pattern="o(")
    [failure] = wait_until(lambda: members.of("invalid", "error"), bool, "an error of an invalid pattern")
    assert "InvalidRegularExpression" in failure["error"]
    assert "missing closing )" in failure["error"]


def test_rolling_change_of_the_protocol_of_java_and_back(java_group: JavaGroup, load: Load) -> None:
    """Under load. Consumers are replaced one by one; the others go on. No partition has two consumers at once."""
    members = java_group.members("members")
    running = ["old 1", "old 2"]
    for name in running:
        join(members, name, protocol="classic")
    wait_for_shares(*((members, name) for name in running))
    for turn, protocol in enumerate(("consumer", "consumer", "classic", "classic")):
        members.ask("leave", member=running.pop(0))
        running.append(f"{protocol} {turn}")
        join(members, running[-1], protocol=protocol)
        wait_for_shares(*((members, name) for name in running))
        if turn == 1:
            assert members.ask("describe")["type"] == "Consumer"
    assert members.ask("describe")["type"] == "Classic"
    load.end()
    wait_until(lambda: len(members.events("record")), lambda count: count >= len(load.sent), "all records")
    assert members.events("error") == []
    check_owners(members.events())
    received = [(event["partition"], event["offset"]) for event in members.events("record")]
    assert sorted(received) == sorted(load.sent)
    assert len(received) > RECORDS


def check_owners(events: list[Any]) -> None:
    """A partition is assigned to one member at a time, which gets its records."""
    owners: dict[int, str] = {}
    for event in events:
        if event["event"] == "record":
            assert owners.get(event["partition"]) == event["member"], event
        elif event["event"] == "assigned":
            assert not owners.keys() & event["partitions"], f"{event} while the owners are {owners}"
            owners |= dict.fromkeys(event["partitions"], event["member"])
        elif event["event"] in ("revoked", "lost"):
            for partition in event["partitions"]:
                assert owners.pop(partition) == event["member"], event
