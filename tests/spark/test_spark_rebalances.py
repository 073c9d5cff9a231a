"""The records of rebalances as a DataFrame, in a real Spark."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from recorder.samples import BILLING, NOON_MS, PAYMENTS, record

from callboard.actors.recorder.record import FurtherCause, LateMember, MemberChanges, MemberCount, Moves, as_json
from callboard.runtime.disk.disk import Disk
from callboard.runtime.node.event_files import EventFiles
from callboard.spark import read_rebalances
from callboard.spark.rebalances import COLUMNS

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


class Limits:
    events_retention_bytes = 1_000_000
    events_retention_ms = 10**12


def test_records_are_a_data_frame(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no records of rebalances in"):
        read_rebalances(spark, tmp_path)
    files = EventFiles(Disk(), tmp_path, Limits())
    full = record(
        "session_expired",
        also=(FurtherCause(NOON_MS, "new_member", PAYMENTS),),
        members=MemberChanges(MemberCount(1, (PAYMENTS,)), stayed=2, late=(LateMember(PAYMENTS, 45_000),)),
        moves=Moves((("a", 3),), 12, 3, 0, (("orders", 2),), 36_000),
    )
    assert set(as_json(full)) == set(COLUMNS)
    files.append([full], 1000)
    files.append([record("member_left", at_s=5, outcome="empty")], 10**12)
    (tmp_path / "events" / f"{7:020}.jsonl").write_text('{"group_id":"orders"\n')
    os.mkfifo(tmp_path / "events" / f"{8:020}.jsonl")  # to read it would take for ever
    first, second = read_rebalances(spark, tmp_path).orderBy("ended_ms").collect()
    assert (first["cause"], first["by"]["client_id"]) == ("session_expired", "billing-1")
    assert first["phases_ms"] == {"join": 300}
    assert (first["joined"]["members"], first["stayed"], first["late"][0]["after_ms"]) == (1, 2, 45_000)
    assert first["also"][0]["member"]["client_host"] == PAYMENTS.client_host
    assert first["moves"].asDict(recursive=True) == {
        "assigned": {"a": 3},
        "total": 12,
        "moved": 3,
        "added": 0,
        "moved_partitions": [["orders", "2"]],
        "stopped_ms": 36_000,
        "idle": 0,
    }
    assert (second["outcome"], second["moves"], second["by"]["member_id"]) == ("empty", None, BILLING.member_id)
