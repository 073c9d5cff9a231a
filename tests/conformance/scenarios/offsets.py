"""OffsetCommit, OffsetFetch, OffsetDelete, and the expiry of offsets."""

from __future__ import annotations

from ..script import Script
from ..steps import (
    NOWHERE,
    commit,
    delete_offsets,
    describe,
    fetch,
    heartbeat,
    join,
    leave,
    member,
    offsets,
    pair,
    part,
    sync,
    wait,
)
from .transactions import add, end, init, txn

METADATA_MAX = 4096  # offset.metadata.max.bytes
EVERYTHING = {"t": [0, 1, 9], "never-made": [0]}
HOUR_MS = 3_600_000

COMMITS: dict[str, Script] = {
    **{
        f"commit without a member v{v}": [
            commit(
                "A", "", -1, offsets("t", part(0), part(1, 7, "", 3), part(9)), NOWHERE, offsets("u", part(0, 9)), v=v
            ),
            fetch("A"),
            describe("A"),
            commit("A", "somebody", -1, v=v),
            commit("A", "", -1, v=v, group_instance_id="seat"),
            commit("A", "nobody", 5, v=v),
            commit("A", "", 5, v=v),
            commit("A", "nobody", 0, v=v),
            commit("A", "nobody", 5, v=v, group_id="$group-absent"),
            commit("A", "", 0, v=v, group_id="$group-absent"),
            commit("A", "", -2, v=v, group_id="$group-minus"),
            describe("A", "$group-absent", "$group-minus"),
            fetch("A"),
        ]
        for v in range(2, 11)
    },
    **{
        f"commit of a member v{v}": [
            *member("A"),
            commit("A", "$A1", 1, v=v),
            commit("A", "$A1", 0, v=v),
            commit("A", "$A1", 9, v=v),
            commit("A", "nobody", 1, v=v),
            commit("A", "nobody", 9, v=v),
            commit("A", "", 1, v=v),
            commit("A", "", -1, v=v),
            commit("A", "$A1", -1, v=v),
            commit("A", "nobody", -1, v=v),
            commit("A", "$A1", 1, v=v, group_instance_id="seat"),
            commit("A", "", -1, v=v, group_instance_id="seat"),
            fetch("A"),
            leave("A", "$A1"),
            commit("A", "$A1", 1, v=v),
            commit("A", "", -1, offsets("t", part(2, 77)), v=v),
            fetch("A"),
        ]
        for v in range(2, 11)
    },
    **{
        f"commit of too much metadata v{v}": [
            commit(
                "A", "", -1, offsets("t", part(0, 1, "x" * (METADATA_MAX + 1)), part(1, 2, "x" * METADATA_MAX)), v=v
            ),
            fetch("A", {"t": [0]}),
            commit("A", "", -1, offsets("t", part(2, 1, "ü" * (METADATA_MAX // 2 + 1))), v=v),
            commit("A", "", -1, offsets("t", part(2, 1, "ü" * METADATA_MAX)), v=v),
            fetch("A", {"t": [2]}),
        ]
        for v in (2, 7, 10)
    },
    "commit of odd values": [
        commit("A", "", -1, offsets("t", part(0, -1), part(1, -2, None), part(2, 2**63 - 1, "", 2**31 - 1))),
        fetch("A"),
        commit("A", "", -1, offsets("t", part(0, 5, "", -7), part(0, 6), part(-1, 7))),
        fetch("A"),
        ["A", "offset_commit", 9, {**commit("A")[3], "topics": []}],
        commit("A", "", -1, offsets("t")),
        describe("A"),
    ],
    **{
        f"commit of a topic twice v{v}": [
            commit("A", "", generation, *topics, v=v)
            for generation in (-1, 5)
            for topics in (
                [offsets("t", part(0)), offsets("t", part(1))],
                [offsets("t", part(0)), offsets("u", part(0)), offsets("t", part(1), part(0, 9))],
                [NOWHERE, offsets("t", part(0)), offsets("u", part(0)), offsets("t", part(1))],
                [offsets("t", part(0)), offsets("t", part(9)), NOWHERE, NOWHERE],
                [offsets("t", part(0)), offsets("u"), offsets("t", part(1))],
                [{**NOWHERE, "partitions": []}, offsets("t", part(0)), offsets("t", part(1))],
                [{**NOWHERE, "partitions": []}, {**NOWHERE, "partitions": []}],
            )
        ]
        for v in (2, 8, 9, 10)
    },
    "commit of nothing to a group that is absent": [
        ["A", "offset_commit", 9, {**commit("A")[3], "topics": []}],
        describe("A"),
        commit("A", "", -1, NOWHERE),
        describe("A"),
    ],
    "commit of the old generation in a rebalance": [
        *pair(),
        join("B", "$B1", protocols=[{"name": "range", "metadata": "$reads u"}]),
        commit("A", "$A1", 2),
        commit("A", "$A1", 3),
        commit("B2", "$B1", 2),
        fetch("A"),
        join("A", "$A1"),
        commit("A", "$A1", 2),
        commit("A", "$A1", 3),
        commit("A", "nobody", 3),
        commit("A", "", -1),
        sync("A", "$A1", 3, {"$A1": "x"}),
        commit("A", "$A1", 3),
        commit("B", "$B1", 3),
    ],
    "commit of a static member": [
        *member("A", group_instance_id="a"),
        commit("A", "$a1", 1, group_instance_id="a"),
        commit("A", "$a1", 1),
        commit("A", "nobody", 1, group_instance_id="a"),
        commit("A", "$a1", 1, group_instance_id="b"),
        commit("A", "$a1", 5, group_instance_id="a"),
        commit("A", "nobody", 5, group_instance_id="a"),
        commit("A", "nobody", -1, group_instance_id="a"),
        commit("A", "", -1, group_instance_id="a"),
    ],
    "commit of members that have gone": [
        *pair(),
        leave("B", "$B1"),
        commit("B", "$B1", 2),
        leave("A", "$A1"),
        commit("A", "$A1", 2),
        commit("A"),
        fetch("A"),
    ],
    "commit after commit": [
        commit("A", "", -1, offsets("t", part(0, 10))),
        commit("A", "", -1, offsets("t", part(0, 5, "back"))),
        fetch("A", {"t": [0]}),
        *member("A"),
        fetch("A", {"t": [0]}),
        commit("A", "$A1", 1, offsets("t", part(0, 11, ""))),
        fetch("A", {"t": [0]}),
    ],
    "commit pipelined": [
        *member("A"),
        commit("A", "$A1", 1, offsets("t", part(0, 1))),
        commit("A2", "$A1", 1, offsets("t", part(0, 2))),
        fetch("A2", {"t": [0]}, require_stable=True),
    ],
}

# All runs of a script share the group with the empty id, so no other script of this server uses it.
NAMELESS: dict[str, Script] = {
    "commit for a group without a name": [
        commit("A", "", -1, offsets("u", part(0, 3)), group_id=""),
        commit("A", "", 3, offsets("u", part(0, 4)), group_id=""),
        fetch("A", {"u": [0]}, group_id=""),
    ],
}

FETCHES: dict[str, Script] = {
    **{
        f"fetch v{v}": [
            fetch("A", EVERYTHING, v=v),
            fetch("A", {}, v=v),
            commit("A", "", -1, offsets("t", part(0, 40, "x", 5), part(2)), offsets("u", part(0, 9, ""))),
            fetch("A", EVERYTHING, v=v),
            fetch("A", {"u": [0, 0], "t": [2, 0]}, v=v),
            fetch("A", {}, v=v),
            *([fetch("A", v=v), fetch("A", v=v, group_id="$group-absent")] if v >= 2 else []),
            fetch("A", EVERYTHING, v=v, group_id=""),
            fetch("A", EVERYTHING, v=v, group_id="$group-absent"),
            describe("A", "$group-absent"),
            *member("A"),
            fetch("A", EVERYTHING, v=v),
        ]
        for v in range(1, 11)
    },
    **{
        f"fetch of several groups v{v}": [
            commit("A"),
            commit("A", "", -1, offsets("u", part(0)), group_id="$group-2"),
            [
                "A",
                "offset_fetch",
                v,
                {
                    "groups": [
                        {"group_id": "$group-2", "member_id": None, "member_epoch": -1, "topics": None},
                        {"group_id": "$group-absent", "member_id": None, "member_epoch": -1, "topics": None},
                        {"group_id": "$group", "member_id": None, "member_epoch": -1, "topics": None},
                    ],
                    "require_stable": stable,
                },
            ],
        ]
        for v in range(8, 11)
        for stable in (False, True)
    },
    "fetch with a member and an epoch": [
        *member("A"),
        commit("A", "$A1", 1),
        fetch("A", {"t": [0]}, member_id="$A1", member_epoch=1),
        fetch("A", {"t": [0]}, member_id="nobody", member_epoch=3),
        fetch("A", {"t": [0]}, member_id="", member_epoch=-1, group_id="$group-absent"),
        fetch("A", member_id="$A1", member_epoch=9),
    ],
    "fetch while a group rebalances": [
        *pair(),
        commit("A", "$A1", 2),
        join("A", "$A1"),
        fetch("C"),
        fetch("C", {"t": [0, 5]}),
    ],
    "fetch by no groups at all": [["A", "offset_fetch", 9, {"groups": [], "require_stable": False}]],
}

DELETES: dict[str, Script] = {
    "offsets deleted of a group that is absent": [
        delete_offsets("A", {"t": [0]}),
        delete_offsets("A", {"t": [0]}, ""),
        delete_offsets("A", {"never-made": [0]}),
        delete_offsets("A", {"never-made": [0]}, ""),
    ],
    "offsets deleted of a simple group": [
        commit("A", "", -1, offsets("t", part(0), part(1)), offsets("u", part(0))),
        delete_offsets("A", {"t": [0, 2], "never-made": [0]}),
        fetch("A"),
        delete_offsets("A", {"t": [9]}),
        delete_offsets("A", {"t": [1], "u": [0]}),
        fetch("A"),
        describe("A"),
        delete_offsets("A", {"t": [1]}),
        delete_offsets("A", {}),
    ],
    "offsets deleted of a group that reads": [
        *member("A"),
        commit("A", "$A1", 1, offsets("t", part(0)), offsets("u", part(0))),
        delete_offsets("C", {"t": [0], "u": [0]}),
        fetch("C"),
        join("A", "$A1", protocols=[{"name": "range", "metadata": "$reads u"}]),
        delete_offsets("C", {"t": [0], "u": [0]}),
        sync("A", "$A1", 2, {"$A1": "x"}),
        delete_offsets("C", {"t": [0], "u": [0]}),
        leave("A", "$A1"),
        commit("A"),
        delete_offsets("C", {"t": [0], "u": [0]}),
        fetch("C"),
    ],
    "offsets deleted while a group rebalances": [
        *pair(),
        commit("A", "$A1", 2, offsets("t", part(0)), offsets("u", part(0))),
        join("A", "$A1"),
        delete_offsets("C", {"t": [0], "u": [0]}),
        join("B", "$B1"),
        delete_offsets("C", {"t": [0], "u": [0]}),
        fetch("C"),
    ],
    "offsets deleted of a group of another kind": [
        *member("A", protocol_type="connect", protocols=[{"name": "range", "metadata": "$bytes worker"}]),
        commit("A", "$A1", 1),
        delete_offsets("C", {"t": [0]}),
        leave("A", "$A1"),
        delete_offsets("C", {"t": [0]}),
        fetch("C"),
    ],
}

# First members come without an id of their own: Kafka may remove a group that has only a pending member at any look.
EXPIRIES: dict[str, Script] = {
    "offsets of a simple group expire": [
        commit("A", "", -1, offsets("t", part(0))),
        wait(40_000),
        commit("A", "", -1, offsets("t", part(1))),
        fetch("A"),
        wait(32_000),
        fetch("A"),
        describe("A"),
        wait(45_000),
        fetch("A"),
        describe("A"),
    ],
    "offsets of a group that is empty expire": [
        *member("A", 3, session_timeout=1_000_000),
        commit("A", "$A1", 1, offsets("t", part(0)), offsets("u", part(0))),
        wait(40_000),
        fetch("A", {"t": [0], "u": [0]}),
        leave("A", "$A1"),
        wait(40_000),
        fetch("A"),
        wait(35_000),
        fetch("A"),
        describe("A"),
        commit("A", "$A1", 1),
    ],
    "offsets of what nobody reads expire": [
        *member("A", 3, session_timeout=1_000_000),
        commit("A", "$A1", 1, offsets("t", part(0)), offsets("u", part(0))),
        wait(75_000),
        fetch("A"),
        describe("A"),
    ],
    "offsets stay while a group rebalances": [
        *pair({"v": 3, "session_timeout": 1_000_000, "rebalance_timeout": 1_000_000}, {"session_timeout": 1_000_000}),
        commit("A", "$A1", 2, offsets("t", part(0)), offsets("u", part(0))),
        join("B", "$B1", protocols=[{"name": "range", "metadata": "$reads u"}], session_timeout=1_000_000),
        wait(75_000),
        fetch("C"),
        heartbeat("C", "$A1", 2),
    ],
    "offsets of a group of another kind expire": [
        *member(
            "A",
            3,
            protocol_type="connect",
            protocols=[{"name": "range", "metadata": "$bytes w"}],
            session_timeout=1_000_000,
        ),
        commit("A", "$A1", 1, offsets("t", part(0))),
        wait(75_000),
        fetch("A"),
        leave("A", "$A1"),
        wait(75_000),
        fetch("A"),
        describe("A"),
    ],
    "offsets with a time of their own expire": [
        commit("A", "", -1, offsets("t", part(0)), v=4, retention_time=20_000),
        commit("A", "", -1, offsets("t", part(1)), v=4, retention_time=HOUR_MS),
        wait(25_000),
        fetch("A"),
        wait(45_000),
        fetch("A"),
        describe("A"),
    ],
    "offsets stay while a transaction is open": [
        commit("C", "", -1, offsets("t", part(0), part(1))),
        init("P", timeout=300_000),
        add("P"),
        txn("P", "", -1, offsets("t", part(0, 7))),
        wait(75_000),
        fetch("C"),
        describe("C"),
        end("P", False),
        wait(5000),
        fetch("C"),
        describe("C"),
    ],
}
