"""SyncGroup, Heartbeat and sessions."""

from __future__ import annotations

from ..script import Script
from ..steps import commit, describe, disconnect, heartbeat, join, leave, member, pair, sync, wait

SHORT = {"session_timeout": 6000}
REBALANCE = {"rebalance_timeout": 6000}
JOINED = [*pair(), join("A", "$A1"), join("B", "$B1")]  # generation 3, nobody has synced
JOINED_IN_HASTE = [*pair(REBALANCE, REBALANCE), join("A", "$A1", **REBALANCE), join("B", "$B1", **REBALANCE)]

SYNCING: dict[str, Script] = {
    **{
        f"sync refused v{v}": [
            sync("A", "nobody", v=v),
            sync("A", "nobody", v=v, group_id=""),
            *member("A"),
            sync("A", "nobody", v=v),
            sync("A", "$A1", 9, v=v),
            sync("A", "$A1", 9, v=v, protocol_name="x"),
            sync("A", "$A1", v=v, protocol_name="sticky"),
            sync("A", "$A1", v=v, protocol_type="connect"),
            sync("A", "$A1", v=v, group_instance_id="seat"),
            sync("A", "$A1", v=v),
            leave("A", "$A1"),
            sync("A", "$A1", v=v),
        ]
        for v in range(6)
    },
    **{
        f"sync, leader last v{v}": [
            *JOINED,
            sync("B", "$B1", 3, v=v),
            heartbeat("A", "$A1", 3),
            sync("A", "$A1", 3, {"$A1": "left", "$B1": "right"}, v=v),
            sync("B", "$B1", 3, v=v),
            sync("A", "$A1", 3, {"$A1": "else"}, v=v),
            describe("A"),
        ]
        for v in range(6)
    },
    "sync, leader first": [
        *JOINED,
        sync("A", "$A1", 3, {"$A1": "left", "$B1": "right"}),
        describe("A"),
        sync("B", "$B1", 3),
    ],
    "sync without protocol type and name": [
        *member("A"),
        sync("A", "$A1", protocol_type=None),
        sync("A", "$A1", protocol_name=None),
        sync("A", "$A1", protocol_type=None, protocol_name=None),
        sync("A", "nobody", protocol_type=None, protocol_name=None),
        sync("A", "nobody", protocol_type=None, protocol_name=None, group_id="$group-absent"),
        sync("A", "$A1", v=4),
    ],
    "sync of a group that is absent": [sync("A", "nobody", protocol_name=None), sync("A", "", v=0), describe("A")],
    "sync with nothing for the leader": [*JOINED, sync("A", "$A1", 3, {"$B1": "right"}), sync("B", "$B1", 3)],
    "sync with parts for nobody": [
        *JOINED,
        sync("A", "$A1", 3, {"nobody": "lost", "$A1": "left"}),
        sync("B", "$B1", 3),
        describe("A"),
    ],
    "sync twice": [*JOINED, sync("B", "$B1", 3), sync("B2", "$B1", 3), sync("A", "$A1", 3, {"$B1": "right"})],
    "sync while others join": [
        *JOINED,
        sync("B", "$B1", 3),
        join("C"),
        join("C", "$C1"),
        sync("A", "$A1", 3),
        heartbeat("B", "$B1", 3),
        join("A", "$A1"),
        join("B", "$B1"),
    ],
    "sync of followers, the leader leaves": [*JOINED, sync("B", "$B1", 3), leave("C", "$A1"), join("B", "$B1")],
    "sync of followers, the leader dies": [
        *pair(SHORT),
        join("A", "$A1", **SHORT),
        join("B", "$B1"),
        sync("B", "$B1", 3),
        wait(7500),
        join("B", "$B1"),
    ],
    "sync of followers, the leader never": [
        *JOINED_IN_HASTE,
        sync("B", "$B1", 3),
        wait(4000),
        wait(3500),
        heartbeat("A", "$A1", 3),
        heartbeat("B", "$B1", 3),
        join("B", "$B1"),
    ],
    "sync of the leader, followers never": [
        *JOINED_IN_HASTE,
        sync("A", "$A1", 3, {"$A1": "left"}),
        wait(4000),
        heartbeat("A", "$A1", 3),
        wait(3500),
        heartbeat("A", "$A1", 3),
        heartbeat("B", "$B1", 3),
        join("A", "$A1"),
        describe("A"),
    ],
    "sync never": [
        *JOINED_IN_HASTE,
        wait(7500),
        describe("A"),
        heartbeat("A", "$A1", 3),
        heartbeat("B", "$B1", 3),
        join("A"),
    ],
    "sync of everybody in time": [
        *JOINED_IN_HASTE,
        sync("A", "$A1", 3, {"$A1": "left"}),
        sync("B", "$B1", 3),
        wait(7500),
        heartbeat("A", "$A1", 3),
        heartbeat("B", "$B1", 3),
        describe("A"),
    ],
    "sync of a client that vanishes": [
        *JOINED,
        sync("B", "$B1", 3),
        disconnect("B"),
        sync("A", "$A1", 3, {"$B1": "right"}),
        sync("B2", "$B1", 3),
    ],
    **{
        f"heartbeat refused v{v}": [
            heartbeat("A", "nobody", v=v),
            heartbeat("A", "nobody", v=v, group=""),
            *member("A"),
            heartbeat("A", "nobody", v=v),
            heartbeat("A", "$A1", 9, v=v),
            heartbeat("A", "$A1", 0, v=v),
            heartbeat("A", "$A1", -1, v=v),
            heartbeat("A", "$A1", v=v),
            leave("A", "$A1"),
            heartbeat("A", "$A1", v=v),
        ]
        for v in range(5)
    },
    "heartbeat in each state": [
        *JOINED,
        heartbeat("A", "$A1", 3),
        heartbeat("B", "$B1", 3),
        heartbeat("B", "$B1", 2),
        sync("A", "$A1", 3, {"$A1": "left"}),
        heartbeat("B", "$B1", 3),
        join("C"),
        heartbeat("B", "$B1", 3),
        join("C", "$C1"),
        heartbeat("B", "$B1", 3),
        heartbeat("B", "$B1", 2),
        heartbeat("C2", "$C1", 3),
    ],
    "sessions end without heartbeats": [*member("A", **SHORT), wait(7500), heartbeat("A", "$A1"), describe("A")],
    "heartbeats keep a session": [
        *member("A", **SHORT),
        wait(4000),
        heartbeat("A", "$A1"),
        wait(4000),
        heartbeat("A", "$A1"),
        wait(7500),
        heartbeat("A", "$A1"),
    ],
    "refused heartbeats keep no session": [
        *member("A", **SHORT),
        wait(4000),
        heartbeat("A", "$A1", 9),
        wait(3500),
        heartbeat("A", "$A1"),
    ],
    "commits keep a session": [
        *member("A", **SHORT),
        wait(4000),
        commit("A", "$A1", 1),
        wait(4000),
        commit("A", "$A1", 1),
        wait(7500),
        commit("A", "$A1", 1),
    ],
    "syncs keep no session": [*member("A", **SHORT), wait(4000), sync("A", "$A1"), wait(4000), sync("A", "$A1")],
    "joins that change nothing keep a session": [
        *pair(second=SHORT),
        wait(4000),
        join("B", "$B1", **SHORT),
        wait(4000),
        join("B", "$B1", **SHORT),
        heartbeat("A", "$A1", 2),
    ],
    "heartbeats in a rebalance keep a session": [
        *pair(SHORT),
        join("B", "$B1", protocols=[{"name": "range", "metadata": "$reads u"}]),
        wait(4000),
        heartbeat("A", "$A1", 2),
        wait(4000),
        heartbeat("A", "$A1", 2),
        wait(7500),
        heartbeat("A", "$A1", 2),
    ],
    "a member that joins lives on": [
        *pair(SHORT),
        join("A", "$A1", **SHORT),
        wait(8000),
        join("B", "$B1"),
        describe("B"),
    ],
    "a member that syncs lives on": [
        *pair(second=SHORT),
        join("A", "$A1"),
        join("B", "$B1", **SHORT),
        sync("B", "$B1", 3),
        wait(8000),
        sync("A", "$A1", 3, {"$B1": "right"}),
        describe("A"),
        wait(4000),
        heartbeat("B", "$B1", 3),
        wait(7500),
        heartbeat("B", "$B1", 3),
    ],
}
