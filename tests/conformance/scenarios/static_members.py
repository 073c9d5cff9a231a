"""Members with an instance id (KIP-345): they come back to their seat, and whoever holds it still is fenced."""

from __future__ import annotations

from typing import Any

from ..script import Script
from ..steps import (
    ALIEN,
    BOTH,
    BOTH_STICKY_FIRST,
    OTHER_TOPIC,
    STICKY,
    beat,
    commit,
    describe,
    join,
    leave,
    member,
    pair,
    sync,
    wait,
)

A: dict[str, Any] = {"group_instance_id": "a"}
B: dict[str, Any] = {"group_instance_id": "b"}
SEATS = pair(A, B)

STATIC: dict[str, Script] = {
    **{
        f"static first member v{v}": [*member("A", v, **A), beat("A", "$a1", seat="a"), describe("A")]
        for v in range(5, 10)
    },
    **{
        f"static leader restarts v{v}": [
            *SEATS,
            join("A", v=v, **A),
            sync("A", "$a2", 2, {}, **A),
            beat("A", "$a2", 2, "a"),
            beat("A", "$a1", 2, "a"),
            beat("B", "$b1", 2, "b"),
            describe("A"),
            join("A", "$a2", v=v, **A),
            join("B", "$b1", v=v, **B),
        ]
        for v in range(5, 10)
    },
    **{
        f"static follower restarts v{v}": [
            *SEATS,
            join("B", v=v, **B),
            sync("B", "$b2", 2, **B),
            beat("A", "$a1", 2, "a"),
            join("B2", "$b1", v=v, **B),
            sync("B2", "$b1", 2, **B),
            beat("B2", "$b1", 2, "b"),
            commit("B2", "$b1", 2, **B),
            leave("B2", ("$b1", "b")),
            describe("A"),
        ]
        for v in range(5, 10)
    },
    "static unknown seats": [
        join("A", "nobody", **A),
        *member("A", **A),
        join("B", "nobody", **B),
        join("B", "$a1", **B),
        beat("A", "$a1", 1, "b"),
        sync("A", "$a1", 1, **B),
        commit("A", "$a1", 1, **B),
        leave("A", ("$a1", "b")),
        describe("A"),
    ],
    "static known members, seats of others": [
        *SEATS,
        join("B", "$b1", **A),
        join("A", "$a1", **B),
        sync("A", "$b1", 2, **A),
        sync("A", "$b1", 9, **A),
        beat("A", "$b1", 2, "a"),
        commit("A", "$b1", 2, **A),
        leave("A", ("$b1", "a")),
        describe("A"),
    ],
    "static without saying so": [
        *SEATS,
        beat("A", "$a1", 2),
        sync("A", "$a1", 2),
        commit("A", "$a1", 2),
        join("B", "$b1"),
    ],
    "dynamic with a seat that is taken": [
        *member("A", **A),
        join("B"),
        join("B", "$B1"),
        join("A", "$a1", **A),
        beat("B", "$B1", 2, "a"),
        commit("B", "$B1", 2, **A),
    ],
    "static follower syncs, then restarts": [
        *SEATS,
        join("A", "$a1", **A),
        join("B", "$b1", **B),
        sync("B", "$b1", 3, **B),
        join("B2", **B),
        join("A", "$a1", **A),
        sync("A", "$a1", 4, {"$a1": "left", "$b2": "right"}, **A),
        describe("A"),
    ],
    "static follower joins, then restarts": [
        *SEATS,
        join("B", "$b1", protocols=OTHER_TOPIC, **B),
        join("B2", protocols=OTHER_TOPIC, **B),
        join("A", "$a1", **A),
    ],
    "static leader joins, then restarts": [
        *SEATS,
        join("A", "$a1", **A),
        join("A2", **A),
        join("B", "$b1", **B),
    ],
    "static leader restarts before it assigns": [
        *SEATS,
        join("A", "$a1", **A),
        join("B", "$b1", **B),
        sync("B", "$b1", 3, **B),
        join("A2", **A),
        join("B", "$b1", **B),
        describe("A"),
    ],
    "static members rejoin with their ids": [
        *SEATS,
        join("B", "$b1", **B),
        join("A", "$a1", **A),
        join("B", "$b1", **B),
        join("A", "$a1", **A),
        join("B", "$b1", **B),
    ],
    "static follower with another subscription": [
        *SEATS,
        join("B", "$b1", protocols=OTHER_TOPIC, **B),
        beat("A", "$a1", 2, "a"),
        join("A", "$a1", **A),
    ],
    "static restart with another subscription": [
        *SEATS,
        join("B", protocols=OTHER_TOPIC, **B),
        beat("A", "$a1", 2, "a"),
        sync("B", "$b2", 2, **B),
        describe("A"),
    ],
    "static restart that changes the vote": [
        *member("A", protocols=BOTH, **A),
        join("A2", protocols=BOTH_STICKY_FIRST, **A),
        describe("A"),
    ],
    "static restart that changes the vote of two": [
        *member("A", protocols=BOTH, **A),
        join("B", protocols=BOTH, **B),
        join("A", "$a1", protocols=BOTH, **A),
        sync("A", "$a1", 2, {"$a1": "left"}, **A),
        sync("B", "$b1", 2, **B),
        join("B", protocols=STICKY, **B),
        beat("A", "$a1", 2, "a"),
        join("A", "$a1", protocols=BOTH, **A),
    ],
    "static restart with a protocol that nobody has": [
        *SEATS,
        join("B", protocols=ALIEN, **B),
        join("B", protocol_type="connect", **B),
        beat("B", "$b1", 2, "b"),
    ],
    "static restart with other timeouts": [
        *SEATS,
        join("B", session_timeout=6000, **B),
        wait(7500),
        beat("A", "$a1", 2, "a"),
        describe("A"),
    ],
    "static restarts, each with an id of its own": [
        *member("A", **A),
        join("A", **A),
        join("A", **A),
        join("A", **A),
        beat("A", "$a2", 1, "a"),
        beat("A", "$a4", 1, "a"),
    ],
    "static member of an empty group": [
        *member("A", **A),
        leave("A", ("", "a")),
        join("A", "$a1", **A),
        join("A", **A),
        describe("A"),
    ],
    "static member leaves while it joins": [
        *SEATS,
        join("A", "$a1", **A),
        leave("C", ("", "a")),
        join("B", "$b1", **B),
    ],
    "static follower misses the rebalance": [
        *pair({"rebalance_timeout": 6000, **A}, {"rebalance_timeout": 6000, **B}),
        join("A", "$a1", rebalance_timeout=6000, **A),
        wait(7500),
        sync("A", "$a1", 3, {"$a1": "left", "$b1": "right"}, **A),
        describe("A"),
        beat("B", "$b1", 2, "b"),
        beat("B", "$b1", 3, "b"),
        sync("B", "$b1", 3, **B),
    ],
    "static leader misses the rebalance": [
        *pair({"rebalance_timeout": 6000, **A}, {"rebalance_timeout": 6000, **B}),
        join("B", "$b1", protocols=OTHER_TOPIC, rebalance_timeout=6000, **B),
        wait(7500),
        describe("A"),
        beat("A", "$a1", 2, "a"),
        join("A", "$a1", **A),
    ],
    "static members that never sync": [
        *pair({"rebalance_timeout": 6000, **A}, {"rebalance_timeout": 6000, **B}),
        join("A", "$a1", rebalance_timeout=6000, **A),
        join("B", "$b1", rebalance_timeout=6000, **B),
        sync("A", "$a1", 3, {"$a1": "left"}, **A),
        wait(7500),
        describe("A"),
        beat("B", "$b1", 3, "b"),
        join("B", **B),
    ],
    "only static members, and none comes": [
        *pair({"rebalance_timeout": 6000, "session_timeout": 30_000, **A}, {"rebalance_timeout": 6000, **B}),
        leave("C", ("", "b")),
        wait(7500),
        describe("A"),
        beat("A", "$a1", 2, "a"),
        wait(20_000),
        describe("A"),
        wait(15_000),
        describe("A"),
    ],
    "static member in a group that rebalances": [
        *pair({}, B),
        join("C"),
        join("C", "$C1"),
        join("B2", **B),
        join("B", "$b1", **B),
        join("A", "$A1"),
        describe("A"),
    ],
    "static newcomer needs no id": [*member("A"), join("B", **B), beat("A", "$A1"), join("A", "$A1")],
    "static member expires": [
        *pair(A, {"session_timeout": 6000, **B}),
        wait(7500),
        beat("A", "$a1", 2, "a"),
        beat("B", "$b1", 2, "b"),
        join("B", "$b1", **B),
    ],
}
