"""Offsets that are committed in transactions: pending, committed, aborted, fenced.

Kafka writes a transaction's markers after it has answered EndTxn, so a script waits there before it looks.
"""

from __future__ import annotations

from typing import Any

from ..script import Script, Step
from ..steps import (
    commit,
    delete,
    delete_offsets,
    describe,
    fetch,
    join,
    leave,
    member,
    offsets,
    pair,
    part,
    sync,
    wait,
)

MARKERS_MS = 1500
TIMEOUT_MS = 60_000
TX = "$group-tx"


def init(
    line: str, v: int = 4, tx: str | None = TX, timeout: int = TIMEOUT_MS, producer: Any = -1, epoch: int = -1
) -> Step:
    values = {
        "transactional_id": tx,
        "transaction_timeout": timeout,
        "producer_id": producer,
        "producer_epoch": epoch,
        "enable2_pc": False,
        "keep_prepared_txn": False,
    }
    return [line, "init_producer_id", v, values]


def add(line: str, v: int = 3, producer: Any = "$pid1", epoch: int = 0, tx: str = TX, group: str = "$group") -> Step:
    values = {"transactional_id": tx, "producer_id": producer, "producer_epoch": epoch, "group_id": group}
    return [line, "add_offsets_to_txn", v, values]


def txn(
    line: str,
    who: str = "",
    generation: int = -1,
    *topics: Any,
    v: int = 3,
    producer: Any = "$pid1",
    epoch: int = 0,
    **changes: Any,
) -> Step:
    values = {
        "transactional_id": TX,
        "group_id": "$group",
        "producer_id": producer,
        "producer_epoch": epoch,
        "generation_id": generation,
        "member_id": who,
        "group_instance_id": None,
        "topics": list(topics or [offsets("t", part(0), part(1, 41))]),
    }
    return [line, "txn_offset_commit", v, {**values, **changes}]


def end(line: str, committed: bool, v: int = 3, producer: Any = "$pid1", epoch: int = 0, tx: str = TX) -> Step:
    return [
        line,
        "end_txn",
        v,
        {"transactional_id": tx, "producer_id": producer, "producer_epoch": epoch, "committed": committed},
    ]


def look(line: str) -> list[Step]:
    return [
        fetch(line, {"t": [0, 1, 2]}),
        fetch(line, {"t": [0, 1, 2]}, require_stable=True),
        fetch(line),
        fetch(line, require_stable=True),
    ]


TRANSACTIONS: dict[str, Script] = {
    **{
        f"offsets committed v{v}": [
            init("A", v=min(v, 4)),
            add("A", v=v),
            txn("A", v=v),
            *look("C"),
            describe("C"),
            end("A", True, v=v),
            wait(MARKERS_MS),
            *look("C"),
            describe("C"),
        ]
        for v in range(4)
    },
    "offsets aborted": [
        commit("C", "", -1, offsets("t", part(0, 7))),
        init("A"),
        add("A"),
        txn("A"),
        *look("C"),
        end("A", False),
        wait(MARKERS_MS),
        *look("C"),
    ],
    "one transaction after the other": [
        init("A"),
        add("A"),
        txn("A"),
        end("A", True),
        wait(MARKERS_MS),
        add("A"),
        txn("A", "", -1, offsets("t", part(0, 77, None, 4), part(2, 78))),
        *look("C"),
        end("A", True),
        wait(MARKERS_MS),
        *look("C"),
        end("A", True),
        end("A", False),
    ],
    "a plain commit after the one in a transaction": [
        init("A"),
        add("A"),
        txn("A", "", -1, offsets("t", part(0, 5))),
        commit("C", "", -1, offsets("t", part(0, 9))),
        *look("C"),
        end("A", True),
        wait(MARKERS_MS),
        *look("C"),
    ],
    "a plain commit before the one in a transaction": [
        commit("C", "", -1, offsets("t", part(0, 9))),
        init("A"),
        add("A"),
        txn("A", "", -1, offsets("t", part(0, 5))),
        end("A", True),
        wait(MARKERS_MS),
        *look("C"),
    ],
    "two producers and one group": [
        init("A"),
        init("B", tx="$group-tx2"),
        add("A"),
        add("B", producer="$pid2", tx="$group-tx2"),
        txn("A", "", -1, offsets("t", part(0, 5))),
        txn("B", "", -1, offsets("t", part(0, 6), part(1, 7)), producer="$pid2", transactional_id="$group-tx2"),
        end("A", True),
        wait(MARKERS_MS),
        *look("C"),
        end("B", False, producer="$pid2", tx="$group-tx2"),
        wait(MARKERS_MS),
        *look("C"),
    ],
    "one producer and two groups": [
        init("A"),
        add("A"),
        add("A", group="$group-2"),
        txn("A"),
        txn("A", group_id="$group-2"),
        fetch("C", {"t": [0]}, require_stable=True, group_id="$group-2"),
        end("A", True),
        wait(MARKERS_MS),
        *look("C"),
        fetch("C", {"t": [0]}, require_stable=True, group_id="$group-2"),
    ],
    "without having said which group": [init("A"), txn("A"), txn("A", v=4), *look("C"), end("A", True)],
    "producers that are not known": [
        add("A", producer=12345),
        txn("A", producer=12345),
        end("A", True, producer=12345),
        init("A"),
        add("A", producer=12345),
        end("A", True, producer=12345),
        add("A", epoch=7),
        end("A", True, epoch=7),
        end("A", True),
        add("A", tx=""),
        add("A", group=""),
        txn("A", group_id=""),
        init("A", tx=""),
        init("A", timeout=0),
        init("A", timeout=-1),
        init("A", timeout=900_001),
    ],
    "a producer that comes again": [
        init("A"),
        add("A"),
        txn("A"),
        init("A2"),
        wait(MARKERS_MS),
        init("A2"),
        wait(MARKERS_MS),
        *look("C"),
        add("A"),
        end("A", True),
        txn("A"),
        *look("C"),
    ],
    "a producer that comes again with its epoch": [
        init("A"),
        init("A", producer="$pid1", epoch=0),
        init("A", producer="$pid1", epoch=0),
        init("A", producer="$pid1", epoch=7),
        init("A", producer=12345, epoch=0),
        init("A", producer="$pid1", epoch=-1),
        init("A", producer=-1, epoch=3),
    ],
    "producers without a name": [init("A", tx=None), init("A", tx=None, timeout=-1)],
    "a producer that dies": [
        init("A", timeout=3000),
        add("A"),
        txn("A"),
        *look("C"),
        wait(25_000),  # Kafka looks for them every ten seconds
        *look("C"),
        end("A", True),
        add("A"),
    ],
    **{
        f"members commit in transactions v{v}": [
            *pair(),
            init("P"),
            add("P"),
            txn("P", "$A1", 2, v=v),
            txn("P", "nobody", 2, v=v),
            txn("P", "$A1", 1, v=v),
            txn("P", "$A1", 9, v=v),
            txn("P", "", -1, v=v),
            txn("P", "$A1", -1, v=v),
            txn("P", "$A1", 2, v=v, group_instance_id="seat"),
            txn("P", "", -1, v=v, group_instance_id="seat"),
            join("A", "$A1"),
            txn("P", "$B1", 2, v=v),
            join("B", "$B1"),
            txn("P", "$A1", 3, v=v),
            txn("P", "$A1", 2, v=v),
            sync("A", "$A1", 3, {"$A1": "x"}),
            end("P", True),
            wait(MARKERS_MS),
            *look("C"),
        ]
        for v in (3, 4)
    },
    "static members commit in transactions": [
        *member("A", group_instance_id="a"),
        init("P"),
        add("P"),
        txn("P", "$a1", 1, group_instance_id="a"),
        txn("P", "nobody", 1, group_instance_id="a"),
        txn("P", "$a1", 1, group_instance_id="b"),
        end("P", True),
        wait(MARKERS_MS),
        *look("C"),
    ],
    "groups that are not there": [
        init("P"),
        add("P"),
        txn("P", "nobody", 5),
        txn("P", "", 0),
        describe("C"),
        txn("P"),
        describe("C"),
        end("P", False),
        wait(MARKERS_MS),
        describe("C"),
    ],
    "too much metadata and no such partition": [
        init("P"),
        add("P"),
        txn("P", "", -1, offsets("t", part(0, 1, "x" * 4097), part(1, 2), part(9, 3))),
        txn("P", "", -1, {"name": "never-made", "partitions": [part(0)]}),
        end("P", True),
        wait(MARKERS_MS),
        *look("C"),
    ],
    "a group is deleted in the middle": [
        init("P"),
        add("P"),
        txn("P"),
        delete_offsets("C", {"t": [0]}),
        *look("C"),
        end("P", True),
        wait(MARKERS_MS),
        *look("C"),
        add("P"),
        txn("P"),
        delete("C"),
        describe("C"),
        end("P", True),
        wait(MARKERS_MS),
        *look("C"),
        describe("C"),
    ],
    "a group with a member, its offsets pending": [
        *member("A"),
        init("P"),
        add("P"),
        txn("P", "$A1", 1),
        leave("A", "$A1"),
        *look("C"),
        end("P", True),
        wait(MARKERS_MS),
        *look("C"),
    ],
    "transactions of the second version": [
        init("P", v=5),
        add("P", v=4),
        txn("P", v=5),
        *look("C"),
        end("P", True, v=5),
        wait(MARKERS_MS),
        *look("C"),
        txn("P", v=5),
        txn("P", v=5, epoch=1),
        *look("C"),
        end("P", False, v=5),
        end("P", False, v=5, epoch=1),
        wait(MARKERS_MS),
        *look("C"),
        end("P", True, v=5, epoch=2),
        end("P", True, v=5, epoch=3),
    ],
}
