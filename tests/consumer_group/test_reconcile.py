"""Reconciliation gives the same result as Kafka's.

``reconciliations.json.xz`` has 600 random members, and what Kafka's class CurrentAssignmentBuilder made of each
(kafka-group-coordinator 4.3.1, called directly). A partition is [topic, number] there, or [topic, number, epoch].
"""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from callboard.actors.consumer_group.reconcile import RULES, Reconciliation, reconcile
from callboard.actors.consumer_group.records import CurrentValue, MemberState, Partition, PartitionEpochs
from callboard.actors.errors import CoordinatorError, ErrorCode

CASES: list[dict[str, Any]] = json.loads(
    lzma.decompress(Path(__file__).with_name("reconciliations.json.xz").read_bytes())
)["cases"]


def partitions(items: list[list[int]]) -> list[Partition]:
    return [(bytes([item[0]]), item[1]) for item in items]


def with_epochs(items: list[list[int]]) -> PartitionEpochs:
    return {(bytes([topic]), number): epoch for topic, number, epoch in items}


def as_json(assigned: PartitionEpochs) -> list[list[int]]:
    return [[topic_id[0], number, epoch] for (topic_id, number), epoch in sorted(assigned.items())]


def next_of(given: dict[str, Any]) -> dict[str, Any]:
    current = CurrentValue(
        *(given["epoch"], given["previous"], MemberState[given["state"]]),
        *(with_epochs(given["assigned"]), with_epochs(given["pending"])),
    )
    numbers = [int(name[1:]) for name in given["names"]]
    reconciliation = Reconciliation(
        current,
        given["target_epoch"],
        partitions(given["target"]),
        {bytes([number]) for number in numbers if number < given["topics"]},
        set(partitions(given["busy"])).__contains__,
        None if given["owned"] is None else partitions(given["owned"]),
        given["changed"],
        bool(numbers),
    )
    try:
        after = reconcile(reconciliation)
    except CoordinatorError as error:
        assert error.code == ErrorCode.FENCED_MEMBER_EPOCH
        return {"error": "FencedMemberEpochException"}
    return {
        "epoch": after.member_epoch,
        "previous": after.previous_member_epoch,
        "state": after.state.name,
        "assigned": as_json(after.assigned),
        "pending": as_json(after.pending_revocation),
    }


@pytest.mark.parametrize("state", [state.name for state in MemberState])
def test_as_kafka(state: str) -> None:
    cases = [case for case in CASES if case["given"]["state"] == state]
    assert len(cases) > 40
    assert [next_of(case["given"]) for case in cases] == [case["next"] for case in cases]


def test_each_state_has_its_rules() -> None:
    assert set(RULES) == set(MemberState)
