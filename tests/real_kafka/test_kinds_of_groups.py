"""A log of Kafka with groups of all its kinds goes through import, compaction and export, and back to Kafka.

Kinds that Callboard does not serve stay what they are: share groups (KIP-932) and streams groups (KIP-1071).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from peers.waiting import wait_until
from peers.wire import Wire
from pyspark.sql import SparkSession

from callboard.runtime.cli import compact
from callboard.runtime.cli.exchange import export, imports
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.manifest import newest_manifest

from .kafka import RealKafka
from .new_kafka import DEADLINE_S, SETTINGS, make_topic
from .test_exchange import add_static_member, commit, main
from .test_spark_compaction import Live, folders, live

SMALL_SEGMENTS = {**SETTINGS, "log.roll.ms": 20}
SUBTOPOLOGY = {
    "subtopology_id": "0",
    "source_topics": ["orders"],
    "state_changelog_topics": [],
    "copartition_groups": [],
    "repartition_sink_topics": [],
    "repartition_source_topics": [],
}
UNCHANGED = dict.fromkeys(
    (
        *("topic_partitions", "active_tasks", "standby_tasks", "warmup_tasks", "client_tags", "task_offsets"),
        "task_end_offsets",
    )
)
STREAMS = {
    "rebalance_timeout": 60_000,
    "process_id": "p",
    "topology": {"epoch": 1, "subtopologies": [SUBTOPOLOGY]},
    **dict.fromkeys(("active_tasks", "standby_tasks", "warmup_tasks", "client_tags"), ()),
}
CONSUMER = {"rebalance_timeout": 60_000, "topic_partitions": ()}
NOT_SERVED = {10, 11, 12, 13, 14, 15, 17, 19, 20, 21, 22, 23}
"""The key types of share groups and streams groups."""

pytestmark = pytest.mark.usefixtures("kafka_jars")


class Member:
    """A member of a group of a newer kind, which heartbeats when it is told to."""

    def __init__(self, wire: Wire, api: str, version: int, group: str, member_id: str, **joining: Any) -> None:
        self._ask = partial(wire.ask, api, version)
        self._fields = {**UNCHANGED, "group_id": group, "member_id": member_id, "endpoint_information_epoch": 0}
        self._epoch = 0
        self._assignment: Any = None
        self._send(**joining)

    def has_assignment(self) -> bool:
        """Send a heartbeat; whether the member has something now."""
        self._send()
        return bool(self._assignment)

    def leave(self) -> None:
        self._epoch = -1
        self._send()

    def _send(self, **fields: Any) -> None:
        answer = self._ask(**{**self._fields, "member_epoch": self._epoch, **fields})
        assert answer["error_code"] == "NONE", answer
        self._epoch = answer["member_epoch"]
        assignment = answer.get("assignment")
        tasks = answer.get("active_tasks") if assignment is None else assignment["topic_partitions"]
        self._assignment = self._assignment if tasks is None else tasks


def make_groups(kafka: RealKafka) -> None:
    """One group of each kind, with members and a history, and a group that has only offsets."""
    make_topic(kafka.bootstrap)
    commit(kafka.bootstrap, "offsets only", *range(20))
    add_static_member(kafka.bootstrap, "classic")
    with Wire(kafka.host, kafka.port) as wire:
        seat = {"instance_id": "seat", "server_assignor": "range", "subscribed_topic_names": ["orders"]}
        first = Member(wire, "consumer_group_heartbeat", 1, "consumer", "m1", **CONSUMER, **seat)
        pattern = {"subscribed_topic_regex": "ord.*"}
        Member(wire, "consumer_group_heartbeat", 1, "consumer", "m2", **CONSUMER, **pattern)
        for number in range(10):
            Member(wire, "consumer_group_heartbeat", 1, "consumer", f"x{number}", **CONSUMER, **pattern).leave()
        wait_until(first.has_assignment, bool, "the consumer's assignment", DEADLINE_S)
        share = Member(wire, "share_group_heartbeat", 1, "share", "s", subscribed_topic_names=["orders"])
        wait_until(share.has_assignment, bool, "the share consumer's assignment", DEADLINE_S)
        streams = Member(wire, "streams_group_heartbeat", 0, "streams", "t", **STREAMS)
        wait_until(streams.has_assignment, bool, "the tasks of the streams group", DEADLINE_S)


def described(kafka: RealKafka) -> dict[str, Any]:
    hide = {"include_authorized_operations": False}
    with Wire(kafka.host, kafka.port) as wire:
        return {
            "classic": wire.ask("describe_groups", 6, groups=["classic"], **hide)["groups"],
            "consumer": _members_by_id(wire.ask("consumer_group_describe", 1, group_ids=["consumer"], **hide)),
            "share": wire.ask("share_group_describe", 1, group_ids=["share"], **hide)["groups"],
            "streams": wire.ask("streams_group_describe", 0, group_ids=["streams"], **hide)["groups"],
            "offsets": wire.ask("offset_fetch", 8, groups=[{"group_id": "offsets only", "topics": None}])["groups"],
            "groups": sorted(wire.ask("list_groups", 5, states_filter=(), types_filter=())["groups"], key=str),
        }


def has_loaded(description: dict[str, Any]) -> bool:
    """A Kafka that has just started says of some groups that it loads them."""
    return "COORDINATOR_" not in str(description)


def _members_by_id(answer: dict[str, Any]) -> Any:
    """Kafka's order of members depends on how many there have been, which the log does not say after compaction."""
    (group,) = answer["groups"]
    return {**group, "members": sorted(group["members"], key=lambda member: str(member["member_id"]))}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path) -> tuple[RealKafka, dict[str, Any]]:
    """A Kafka with such groups, and what it said of them."""
    assert kafka_jars
    kafka = RealKafka(tmp_path_factory.mktemp("kinds"), SMALL_SEGMENTS)
    kafka.start()
    try:
        make_groups(kafka)
        expected = described(kafka)
    finally:
        kafka.stop()
    kinds = {(group["group_id"], group["group_type"], group["group_state"]) for group in expected["groups"]}
    assert {
        ("offsets only", "classic", "Empty"),
        ("classic", "classic", "Stable"),
        ("share", "share", "Stable"),
        ("streams", "streams", "Stable"),
    } < kinds
    assert len(expected["consumer"]["members"]) == 2
    return kafka, expected


def imported(kafka: RealKafka, data: Path) -> list[Live]:
    """Import the log; return the live records of each partition."""
    assert main(imports, "--kafka-dir", kafka.data, "--data", data) == 0
    records = live_records(data)
    assert NOT_SERVED | {2, 3, 5, 6, 7, 8, 16} <= {int.from_bytes(key[:2]) for part in records for key in part}
    return records


def live_records(data: Path) -> list[Live]:
    return [live(folder, 10**9) for folder in folders(data)]


def is_compacted(data: Path) -> bool:
    return any(newest_manifest(Disk(), folder).generation for folder in folders(data))


def test_kafka_describes_the_same_after_import_compaction_and_export(
    stopped: tuple[RealKafka, dict[str, Any]], tmp_path: Path
) -> None:
    kafka, expected = stopped
    data = tmp_path / "data"
    before = imported(kafka, data)
    assert main(compact, "--data", data, "--force") == 0
    assert is_compacted(data)
    assert live_records(data) == before
    assert main(export, "--data", data, "--kafka-dir", kafka.data, "--replace") == 0
    kafka.start()
    try:
        assert wait_until(lambda: described(kafka), has_loaded, "the groups of Kafka", DEADLINE_S) == expected
    finally:
        kafka.stop()


def test_spark_compaction_keeps_all_kinds(
    spark: SparkSession, stopped: tuple[RealKafka, dict[str, Any]], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    before = imported(stopped[0], data)
    assert main(compact, "--data", data, "--spark", "--force") == 0
    assert is_compacted(data)
    assert live_records(data) == before
