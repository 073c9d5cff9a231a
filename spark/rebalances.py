"""The records of rebalances in a data folder as a DataFrame. See ``runtime/node/event_files.py``."""

from __future__ import annotations

import logging
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("callboard.spark")

FOLDER = "events"

MEMBER = (
    "struct<member_id:string,instance_id:string,client_id:string,client_host:string,principal:string,software:string>"
)
COUNT = f"struct<members:int,names:array<{MEMBER}>>"
MOVES = (
    "struct<assigned:map<string,int>,total:int,moved:int,added:int,moved_partitions:array<array<string>>,"
    "stopped_ms:bigint,idle:int>"
)

COLUMNS = {
    "group_id": "string",
    "generation": "int",
    "is_epoch": "boolean",
    "began_ms": "bigint",
    "ended_ms": "bigint",
    "duration_ms": "bigint",
    "outcome": "string",
    "cause": "string",
    "by": MEMBER,
    "client_reason": "string",
    "also": f"array<struct<wall_ms:bigint,cause:string,member:{MEMBER}>>",
    "restarts": "int",
    "joined": COUNT,
    "left": COUNT,
    "stayed": "int",
    "late": f"array<struct<member:{MEMBER},after_ms:bigint>>",
    "absent": f"array<struct<member:{MEMBER},decision:string>>",
    "absent_count": "int",
    "phases_ms": "map<string,bigint>",
    "protocol": "string",
    "leader": "string",
    "moves": MOVES,
}
"""Those of docs/operate.md."""


def read_rebalances(spark: SparkSession, data: str | Path) -> DataFrame:
    """The rebalances that a server has recorded in its data folder ``data``, one row each, in any order.

    Every action reads the files again, and every worker must see them under the same path. Damaged lines are left out.
    A server that deletes an old file meanwhile may fail the action. Raises FileNotFoundError if there are no records.
    """
    folder = Path(data).absolute() / FOLDER
    paths = []
    for path in sorted(folder.glob("*.jsonl")):
        if path.is_file():
            paths.append(str(path))
        else:
            log.warning("%s is left out: it is no file, and to read it may take for ever", path)
    if not paths:
        raise FileNotFoundError(f"no records of rebalances in '{folder}': expected the data folder of callboard serve")
    schema = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())
    return spark.read.json(paths, schema=schema, mode="DROPMALFORMED").where("group_id is not null")
