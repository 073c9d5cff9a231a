"""How ``callboard log`` shows records of groups of the consumer protocol."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from callboard.actors.consumer_group.records import (
    ClassicMember,
    ConsumerRecord,
    CurrentRecord,
    CurrentValue,
    GroupEpochRecord,
    GroupEpochValue,
    MemberRecord,
    MemberState,
    MemberValue,
    RegexRecord,
    RegexValue,
    TargetEpochRecord,
    TargetEpochValue,
    TargetRecord,
    TopicMetadata,
    TopicMetadataRecord,
)
from callboard.runtime.cli.log.dump import as_json, format_line
from callboard.runtime.cli.log.scan import LoggedRecord, LogPartition
from callboard.runtime.cli.log.stats import describe_key
from callboard.runtime.log.format.records import encode
from callboard.runtime.log.partition import TOPIC

TOPIC_ID = bytes.fromhex("a4606be320d247e883de69c38b5d054e")
ID = "pGBr4yDSR-iD3mnDi10FTg"  # as kafka-topics.sh prints it
MEMBER = MemberValue("seat", "r1", "c", "/h", ("orders",), "o.*", 300_000, "range")
CLASSIC = MemberValue(None, None, "c", "/h", ("orders",), classic=ClassicMember(45_000, (("range", b"\0\1"),)))
CURRENT = CurrentValue(3, 2, MemberState.UNREVOKED_PARTITIONS, {(TOPIC_ID, 0): 2}, {(TOPIC_ID, 1): 3})

SHOWN: dict[str, tuple[ConsumerRecord, str, dict[str, object]]] = {
    "group epoch": (
        GroupEpochRecord("g", GroupEpochValue(2, -7)),
        "group epoch     g epoch 2, metadata hash -7",
        {"epoch": 2, "metadata_hash": -7},
    ),
    "topic metadata": (
        TopicMetadataRecord("g", (TopicMetadata(TOPIC_ID, "orders", 3, ((0, ("a",)),)),)),
        "topic metadata  g reads orders (partitions: 3)",
        {"topics": [{"topic_id": ID, "name": "orders", "partition_count": 3, "racks": [[0, ["a"]]]}]},
    ),
    "member": (
        MemberRecord("g", "m", MEMBER),
        "member          g m subscribes to orders, regex 'o.*' (instance seat, assignor range)",
        {
            "member_id": "m",
            "instance_id": "seat",
            "rack_id": "r1",
            "client_id": "c",
            "client_host": "/h",
            "topics": ["orders"],
            "regex": "o.*",
            "rebalance_timeout_ms": 300_000,
            "server_assignor": "range",
            "classic": None,
        },
    ),
    "classic member": (
        MemberRecord("g", "m", CLASSIC),
        "member          g m subscribes to orders (classic protocol)",
        {
            "member_id": "m",
            "instance_id": None,
            "rack_id": None,
            "client_id": "c",
            "client_host": "/h",
            "topics": ["orders"],
            "regex": "",
            "rebalance_timeout_ms": -1,
            "server_assignor": None,
            "classic": {"session_timeout_ms": 45_000, "protocols": [{"name": "range", "metadata": "AAE="}]},
        },
    ),
    "target epoch": (
        TargetEpochRecord("g", TargetEpochValue(2, 1_700_000_000_000)),
        "target epoch    g assignment epoch 2",
        {"assignment_epoch": 2, "assignment_timestamp_ms": 1_700_000_000_000},
    ),
    "target": (
        TargetRecord("g", "m", ((TOPIC_ID, 0), (TOPIC_ID, 1))),
        f"target          g m shall have [{ID}-0 {ID}-1]",
        {"member_id": "m", "partitions": [f"{ID}-0", f"{ID}-1"]},
    ),
    "assignment": (
        CurrentRecord("g", "m", CURRENT),
        f"assignment      g m epoch 3 UNREVOKED_PARTITIONS: has [{ID}-0], gives back [{ID}-1]",
        {
            "member_id": "m",
            "member_epoch": 3,
            "previous_member_epoch": 2,
            "state": "UNREVOKED_PARTITIONS",
            "assigned": {f"{ID}-0": 2},
            "pending_revocation": {f"{ID}-1": 3},
        },
    ),
    "regex": (
        RegexRecord("g", "o.*", RegexValue(("orders",), 203, 1_700_000_000_000)),
        "regex           g 'o.*' matches orders",
        {
            "regex": "o.*",
            "topics": ["orders"],
            "topics_version": 203,
            "resolved_timestamp_ms": 1_700_000_000_000,
        },
    ),
}


def logged(record: ConsumerRecord) -> LoggedRecord:
    return LoggedRecord(LogPartition(TOPIC, 0, Path()), 7, 5, record)


@pytest.mark.parametrize("name", SHOWN)
def test_records_are_shown_with_their_fields(name: str) -> None:
    record, line, fields = SHOWN[name]
    assert format_line(logged(record)).endswith(line)
    shown = json.loads(json.dumps(as_json(logged(record))))
    assert {"group": "g", **fields}.items() <= shown.items()
    assert (shown["log_offset"], shown["timestamp_ms"], shown["tombstone"]) == (7, 5, False)


@pytest.mark.parametrize("name", SHOWN)
def test_tombstones_are_shown_with_their_key(name: str) -> None:
    record = SHOWN[name][0]._replace(value=None)
    assert format_line(logged(record)).endswith(" deleted")
    shown = as_json(logged(record))
    assert (shown["group"], shown["tombstone"]) == ("g", True)
    assert describe_key(TOPIC, encode(record)[0]) == (shown["kind"], "g")
