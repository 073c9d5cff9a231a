"""Rows of records of groups of the consumer protocol. The records are those of a real Kafka."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from project_paths import ROOT
from pyarrow.fs import LocalFileSystem
from pyspark.sql import SparkSession

from callboard.runtime.log.format.batch import encode_batch, frame_record, read_batches
from callboard.runtime.log.format.records import decode
from callboard.spark.columns import ALL_COLUMNS, CONSUMER_FIELDS, arrow_schema
from callboard.spark.history.remote import read_file
from callboard.spark.history.table import _with_all_columns
from callboard.spark.rows import record_row

STATIC = "jRb/AtlkQJytziJXEgUSWg"
ORDERS = "pGBr4yDSR-iD3mnDi10FTg"


def rows() -> list[dict[str, Any]]:
    lines = (ROOT / "tests" / "log" / "consumer_group_records.txt").read_text().splitlines()
    pairs = [line.split() for line in lines if not line.startswith("#")]
    found = []
    for offset, (key_text, value_text) in enumerate(pairs):
        key, value = bytes.fromhex(key_text), None if value_text == "-" else bytes.fromhex(value_text)
        [batch] = read_batches(encode_batch(offset, 5, 5, [frame_record(0, 0, key, value)]))
        found.append(record_row(0, batch, offset, 5, (key, value), decode(key, value)))
    return found


ROWS = rows()


def test_all_rows_fit_the_columns() -> None:
    table = pa.RecordBatch.from_pylist(ROWS, schema=arrow_schema(tuple(ALL_COLUMNS)))
    for row, expected in zip(table.to_pylist(), ROWS, strict=True):
        assert row["kind"] == "consumer"
        assert (row["group"], row["key_type"], row["key"]) == ("vectors", expected["key_type"], expected["key"])
        assert (row["consumer"] is None) == (expected["consumer"] is None)
    assert Counter(row["key_type"] for row in ROWS).keys() == {3, 5, 6, 7, 8, 16}


def shown(offset: int) -> dict[str, Any]:
    """The fields that are not null, of the record at this offset."""
    schema = arrow_schema(tuple(ALL_COLUMNS))
    [row] = pa.RecordBatch.from_pylist([ROWS[offset]], schema=schema).to_pylist()
    return {name: value for name, value in row["consumer"].items() if value is not None}


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (3, {"epoch": 2, "metadata_hash": -5734829497332081045}),
        (
            2,
            {
                "member_id": STATIC,
                "instance_id": "seat-1",
                "rack_id": "r1",
                "client_id": "rec",
                "client_host": "/127.0.0.1",
                "topics": ["orders"],
                "regex": "",
                "rebalance_timeout_ms": 300_000,
                "server_assignor": "range",
            },
        ),
        (6, {"epoch": 2, "timestamp": datetime(2026, 11, 26, 18, 24, 27, 451_000, UTC)}),
        (
            4,
            {
                "member_id": STATIC,
                "partitions": [{"topic_id": ORDERS, "partition": number, "epoch": None} for number in range(3)],
            },
        ),
        (
            22,
            {
                "member_id": STATIC,
                "epoch": 3,
                "previous_epoch": 3,
                "state": "UNREVOKED_PARTITIONS",
                "partitions": [{"topic_id": ORDERS, "partition": number, "epoch": 2} for number in range(2)],
                "pending_revocation": [{"topic_id": ORDERS, "partition": 2, "epoch": 2}],
            },
        ),
        (
            8,
            {
                "regex": "(^orders-.*)",
                "topics": ["orders-eu"],
                "timestamp": datetime(2026, 11, 26, 18, 24, 27, 317_000, UTC),
            },
        ),
        (25, {"member_id": "kwgwleRUS8ykEopy/FGMyA"}),
    ],
    ids=["group", "member", "target epoch", "target", "assignment", "regex", "tombstone"],
)
def test_fields_of_each_type(offset: int, expected: dict[str, Any]) -> None:
    assert shown(offset) == expected
    assert expected.keys() <= CONSUMER_FIELDS.keys()


def test_a_classic_member_has_a_session_timeout() -> None:
    (member,) = [
        row["consumer"]
        for row in ROWS
        if row["key_type"] == 5 and row["consumer"] and row["consumer"]["client_id"] == "old"
    ]
    assert member["session_timeout_ms"] == 45_000


def test_files_of_an_older_version_are_read(tmp_path: Path) -> None:
    """They do not have the column."""
    schema = arrow_schema(tuple(ALL_COLUMNS))
    old = pa.Table.from_pylist([{"log_offset": 7, "kind": "offset"}], schema=schema).drop_columns(["consumer"])
    pq.write_table(old, tmp_path / "old.parquet")
    [batch] = read_file(LocalFileSystem(), str(tmp_path / "old.parquet"), None, schema)
    assert batch.schema == schema
    assert [(row["log_offset"], row["consumer"]) for row in batch.to_pylist()] == [(7, None)]


def test_tables_of_an_older_version_are_read(spark: SparkSession) -> None:
    frame = _with_all_columns(spark.createDataFrame([(7,)], "log_offset bigint"))
    assert set(frame.columns) == set(ALL_COLUMNS)
    assert [(row["log_offset"], row["consumer"]) for row in frame.collect()] == [(7, None)]
