"""Groups that change between the classic and the consumer protocol while they have members (KIP-848).

A and B are members of the classic protocol, C and D of the consumer protocol. Before C joins, A has all partitions of t
in generation 1, or A has 0 and 1 and B has 2 in generation 2.
"""

from __future__ import annotations

from typing import Any

from ..consumer_steps import beat, describe_consumers, enter, exit_for_a_while, exit_group, list_groups
from ..script import Script, Step
from ..steps import BOTH, STICKY, commit, describe, fetch, heartbeat, join, leave, offsets, part, sync, wait


def owns(*numbers: int, name: str = "range") -> list[dict[str, str]]:
    return [{"name": name, "metadata": " ".join(["$owns t", *map(str, numbers)])}]


def rejoin(line: str, member_id: str, *owned: int, **changes: Any) -> Step:
    return join(line, member_id, **{"protocols": owns(*owned), **changes})


def assigned(line: str, assignments: dict[str, str], generation: int = 1, **changes: Any) -> Step:
    """The SyncGroup of the leader, whose id is the first of ``assignments``: numbers of t by member."""
    step = sync(line, next(iter(assignments)), generation, **changes)
    step[3]["assignments"] = [
        {"member_id": member_id, "assignment": f"$assigns t {numbers}".rstrip()}
        for member_id, numbers in assignments.items()
    ]
    return step


def alone(**changes: Any) -> list[Step]:
    """A has all partitions, in the stable generation 1."""
    instance_id = changes.get("group_instance_id")
    member_id = f"${instance_id or 'A'}1"
    again = [] if instance_id else [join("A", member_id, **changes)]
    synced = assigned("A", {member_id: "0 1 2"}, group_instance_id=instance_id)
    synced[3]["protocol_name"] = changes.get("protocols", [{"name": "range"}])[0]["name"]
    return [join("A", **changes), *again, synced]


def refused(assignment: str) -> list[Step]:
    """A has an assignment, in hexadecimal digits, with which its group cannot be upgraded."""
    synced = sync("A", "$A1", 1, v=2)
    synced[3]["assignments"] = [{"member_id": "$A1", "assignment": "$hex " + assignment.replace(" ", "")}]
    return [join("A", v=3), synced, enter("C", "t"), heartbeat("A", "$A1"), describe("D")]


PAIR: list[Step] = [
    *alone(),
    join("B"),
    join("B", "$B1"),
    join("A", "$A1"),
    assigned("A", {"$A1": "0 1", "$B1": "2"}, 2),
    sync("B", "$B1", 2),
]

UPGRADED: list[Step] = [*alone(), enter("C", "t")]
"""C has joined with epoch 2. A has all partitions, and has to give back one or two."""

MIXED: list[Step] = [
    *UPGRADED,
    heartbeat("A", "$A1"),
    rejoin("A", "$A1", 0, 1, 2),
    sync("A", "$A1", 1),
    rejoin("A", "$A1", 0, 1),
    sync("A", "$A1", 2),
    beat("C", 2, {}),
    beat("C", 2, {"t": [2]}),
]
"""A has 0 and 1, C has 2, both in epoch 2."""

DOWNGRADED: list[Step] = [
    heartbeat("A", "$A1", 2),
    describe("D"),
    join("A", "$A1"),
    assigned("A", {"$A1": "0 1 2"}, 3),
    heartbeat("A", "$A1", 3),
    describe("D"),
]
"""What follows when C has left MIXED."""

MIGRATION: dict[str, Script] = {
    "a classic group is upgraded": [
        *PAIR,
        describe("D"),
        enter("C", "t"),
        describe("D"),
        describe_consumers("D"),
        describe_consumers("D", v=0),
        list_groups("D", types=["consumer"]),
        heartbeat("A", "$A1", 2),
        heartbeat("B", "$B1", 2),
        sync("B", "$B1", 2),
        rejoin("A", "$A1", 0, 1),
        rejoin("B", "$B1", 2),
        sync("A", "$A1", 2),
        sync("B", "$B1", 3),
        heartbeat("A", "$A1", 2),
        heartbeat("B", "$B1", 3),
        describe_consumers("D"),
    ],
    "a mixed group gives its partitions to a new member": [
        *MIXED,
        describe_consumers("D"),
        heartbeat("A", "$A1", 2),
        heartbeat("A", "$A1", 1),
        heartbeat("A", "nobody", 2),
        heartbeat("C", "C", 2),
        sync("A", "$A1", 1),
        sync("A", "nobody", 2),
        sync("C", "C", 2),
        sync("A", "$A1", 2, protocol_name="sticky"),
        sync("A", "$A1", 2, protocol_type="connect"),
        sync("A", "$A1", 2, protocol_type=None, protocol_name=None, v=4),
        sync("A", "$A1", 2),
    ],
    "a classic member joins a consumer group": [
        enter("C", "t"),
        join("A"),
        join("A", "$new1"),
        sync("A", "$new1", 3),
        heartbeat("A", "$new1", 3),
        describe_consumers("D"),
        beat("C", 2, {"t": [0, 1, 2]}),
        heartbeat("A", "$new1", 3),
        beat("C", 2, {"t": [0, 1]}),
        heartbeat("A", "$new1", 3),
        rejoin("A", "$new1"),
        sync("A", "$new1", 3),
        heartbeat("A", "$new1", 3),
        describe_consumers("D"),
    ],
    "classic joins that are refused by a consumer group": [
        enter("C", "t"),
        join("A", protocol_type="connect"),
        join("A", protocols=[]),
        join("A", "nobody", protocol_type="connect"),
        join("A", "nobody", protocols=BOTH),
        join("B", "somebody", protocols=[{"name": "alien", "metadata": "$reads t"}]),
        join("B", "somebody", protocols=STICKY),
        join("B", "else", protocols=[{"name": "sticky", "metadata": "$bytes x"}]),
        join("B", "nobody-at-all", group_instance_id="b"),
        describe_consumers("D"),
    ],
    "classic members of old versions join a consumer group": [
        enter("C", "t"),
        join("A", v=0),
        describe_consumers("D"),
        join("B", "b-of-its-own", v=3),
        sync("B", "b-of-its-own", 4, v=0),
        heartbeat("B", "b-of-its-own", 4, v=0),
    ],
    "a classic member leaves a mixed group": [
        *MIXED,
        leave("A", "nobody", "$A1"),
        heartbeat("A", "$A1", 2),
        describe_consumers("D"),
        beat("C", 2, {"t": [2]}),
        describe_consumers("D"),
    ],
    "commits of classic members in a consumer group": [
        *MIXED,
        commit("A", "$A1", 2, offsets("t", part(0))),
        commit("A", "$A1", 1, offsets("t", part(0))),
        commit("A", "$A1", 3, offsets("t", part(0))),
        commit("A", "$A1", 2, offsets("t", part(1)), v=5),
        commit("A", "nobody", 2, offsets("t", part(0))),
        commit("C", "C", 2, offsets("t", part(2))),
        commit("A", "$A1", 1, offsets("t", part(2))),
        fetch("A", {"t": [0, 1, 2]}, v=8),
    ],
    "the last consumer member leaves": [*MIXED, exit_group("C"), *DOWNGRADED],
    "the last consumer member is removed": [*MIXED, leave("D", "C"), beat("C", 2), *DOWNGRADED],
    "a new classic member joins after a downgrade": [
        *MIXED,
        exit_group("C"),
        join("B"),
        join("B", "$B1"),
        join("A", "$A1"),
        assigned("A", {"$A1": "0 1", "$B1": "2"}, 4),
        sync("B", "$B1", 4),
        heartbeat("B", "$B1", 4),
        describe("D"),
    ],
    "a group goes up, down, and up again": [
        *MIXED,
        exit_group("C"),
        *DOWNGRADED,
        enter("C", "t"),
        heartbeat("A", "$A1", 3),
        rejoin("A", "$A1", 0, 1, 2),
        describe_consumers("D"),
    ],
    "the last classic member becomes a consumer": [
        *MIXED,
        leave("A", "$A1"),
        enter("A", "t"),
        describe_consumers("D"),
        beat("C", 2, {"t": [2]}),
        exit_group("C"),
        exit_group("A"),
        describe_consumers("D"),
        join("B"),
        describe("D"),
    ],
    "all members leave at once": [
        *MIXED,
        leave("D", "$A1", "C"),
        describe_consumers("D"),
        enter("C", "t"),
        describe_consumers("D"),
    ],
    "a consumer member becomes classic with the same id": [
        *MIXED,
        rejoin("C", "C", 2),
        describe_consumers("D"),
        sync("C", "C", 2),
        heartbeat("C", "C", 2),
        leave("A", "$A1"),
        describe("D"),
        heartbeat("C", "C", 2),
    ],
    "a classic member becomes a consumer with the same id": [
        *UPGRADED,
        enter("A", "t", member_id="$A1"),
        describe_consumers("D"),
        heartbeat("A", "$A1", 1),
        exit_group("C"),
        describe_consumers("D"),
    ],
    "a static classic member is replaced by a consumer": [
        *alone(group_instance_id="a"),
        enter("C", "t", instance_id="a"),
        describe_consumers("D"),
        heartbeat("A", "$a1", 1, "a"),
        join("A", "$a1", group_instance_id="a"),
        sync("A", "$a1", 1, group_instance_id="a"),
        commit("A", "$a1", 1, offsets("t", part(0)), group_instance_id="a"),
        beat("C", 1, {"t": [0, 1, 2]}, instance_id="a"),
        beat("C", 2, {"t": [0, 1, 2]}, instance_id="a"),
    ],
    "a static consumer member is replaced by a classic one": [
        enter("C", "t", instance_id="c"),
        join("A", group_instance_id="c"),
        describe("D"),
        describe_consumers("D"),
        beat("C", 2, {"t": [0, 1, 2]}, instance_id="c"),
    ],
    "one of two static consumer members is replaced by a classic one": [
        enter("C", "t", instance_id="c"),
        enter("D", "t"),
        beat("C", 2, {"t": [0, 1, 2]}, instance_id="c"),
        beat("C", 2, {"t": [0, 1]}, instance_id="c"),
        beat("D", 3, {}),
        exit_for_a_while("C", "c"),
        join("A", group_instance_id="c", protocols=owns()),
        sync("A", "$new1", 3, group_instance_id="c"),
        heartbeat("A", "$new1", 3, "c"),
        heartbeat("A", "$new1", 3, "nobody"),
        heartbeat("A", "C", 3, "c"),
        describe_consumers("E"),
        exit_group("D"),
        describe("E"),
        heartbeat("A", "$new1", 3, "c"),
    ],
    "a static member that is classic is replaced in a mixed group": [
        *alone(group_instance_id="a"),
        enter("C", "t"),
        join("A2", group_instance_id="a", protocols=owns(0, 1, 2)),
        heartbeat("A", "$a1", 1, "a"),
        sync("A2", "$new1", 1, group_instance_id="a"),
        describe_consumers("D"),
        leave("D", ("", "a")),
        describe_consumers("D"),
    ],
    "a group with other subscriptions is upgraded": [
        *alone(),
        enter("C", "u"),
        heartbeat("A", "$A1"),
        rejoin("A", "$A1", 0, 1, 2),
        sync("A", "$A1", 2),
        describe_consumers("D"),
    ],
    "groups that cannot be upgraded": [
        join("A", protocol_type="connect", v=3),
        enter("C", "t"),
        sync("A", "$A1", 1, {"$A1": "all"}, protocol_type="connect"),
        enter("C", "t"),
        describe("D"),
    ],
    "a malformed assignment is not upgraded": [
        join("A", v=3),
        sync("A", "$A1", 1, {"$A1": "x"}, v=2),
        enter("C", "t"),
        heartbeat("A", "$A1"),
        describe("D"),
    ],
    "a custom assignment is not upgraded": refused("0000 00000000 00000001 61"),
    "an assignment that ends early is not upgraded": refused("0000 00000001 0001"),
    "an assignment with a negative version is not upgraded": refused("ffff 00000000 ffffffff"),
    "an assignment with too many topics is not upgraded": refused("0000 7fffffff"),
    "an assignment with a negative number of topics is not upgraded": refused("0000 ffffffff"),
    "an assignment with a cut off topic is not upgraded": refused("0000 00000001 0005 74"),
    "an assignment with too many partitions is not upgraded": refused("0000 00000001 0001 74 00000005 00000000"),
    "an assignment with cut off partitions is not upgraded": refused("0000 00000001 0001 74 00000005 000000000000"),
    "an assignment with cut off user data is not upgraded": refused("0000 00000000 00000005 61"),
    "a group in the sync phase is upgraded": [
        *alone(),
        join("B"),
        join("B", "$B1"),
        join("A", "$A1"),
        sync("B", "$B1", 2),
        enter("C", "t"),
        heartbeat("A", "$A1", 2),
        rejoin("B", "$B1"),
    ],
    "a group in the join phase is upgraded": [
        *alone(),
        join("B"),
        join("B", "$B1"),
        enter("C", "t"),
        heartbeat("A", "$A1", 1),
        heartbeat("B", "$B1", 1),
        rejoin("B", "$B1"),
    ],
    "invalid heartbeats do not upgrade a group": [
        *alone(),
        enter("C", "t", server_assignor="none"),
        enter("C", "t", subscribed_topic_regex="t("),
        beat("C", 1),
        exit_group("C"),
        describe_consumers("D"),
        heartbeat("A", "$A1"),
        describe("D"),
    ],
}

EXPIRY_MS = 8500

MIGRATION_DISABLED: dict[str, Script] = {
    "no change to the consumer protocol": [*alone(), enter("C", "t"), heartbeat("A", "$A1"), describe("D")],
    "no change to the classic protocol": [
        enter("C", "t"),
        join("A"),
        join("A", "nobody"),
        join("A", group_instance_id="a"),
        beat("C", 2),
        describe_consumers("D"),
    ],
    "an empty group changes": [
        enter("C", "t"),
        exit_group("C"),
        *alone(),
        leave("A", "$A1"),
        enter("C", "t"),
        describe_consumers("D"),
    ],
}

MIGRATION_UPGRADE: dict[str, Script] = {
    "only classic members stay in a consumer group": [
        *MIXED,
        exit_group("C"),
        heartbeat("A", "$A1", 2),
        describe_consumers("D"),
        rejoin("A", "$A1", 0, 1),
        sync("A", "$A1", 3),
        heartbeat("A", "$A1", 3),
        describe_consumers("D"),
        leave("A", "$A1"),
        describe_consumers("D"),
    ],
    "a classic member takes the place of the last consumer": [
        enter("C", "t", instance_id="c"),
        join("A", group_instance_id="c"),
        sync("A", "$new1", 2, group_instance_id="c"),
        describe_consumers("D"),
    ],
}

MIGRATION_DOWNGRADE: dict[str, Script] = {
    "no upgrade, but a downgrade": [
        *alone(),
        enter("C", "t"),
        leave("A", "$A1"),
        enter("C", "t"),
        join("B", "b-of-its-own"),
        beat("C", 2, {"t": [0, 1, 2]}),
        exit_group("C"),
        heartbeat("B", "b-of-its-own", 3),
        describe("D"),
    ],
}

MIGRATION_DELAYED: dict[str, Script] = {
    "a group without a generation is not upgraded": [
        join("A", v=3),
        enter("C", "t"),
        describe("D"),
        wait(3300),
        describe("D"),
    ],
}

MIGRATION_SMALL: dict[str, Script] = {
    "the session of the last consumer member ends": [
        *MIXED,
        wait(EXPIRY_MS),
        heartbeat("A", "$A1", 2),
        describe("D"),
    ],
    "a classic member does not sync in time": [
        enter("C", "t"),
        join("A", "a-of-its-own", rebalance_timeout=1000),
        beat("C", 2),
        wait(1300),
        heartbeat("A", "a-of-its-own", 3),
        describe_consumers("D"),
    ],
    "a classic member does not join again in time": [
        *alone(rebalance_timeout=3000),
        enter("C", "t"),
        heartbeat("A", "$A1"),
        wait(2000),
        heartbeat("A", "$A1"),
        wait(1600),
        heartbeat("A", "$A1"),
        describe_consumers("D"),
    ],
    "a classic member has its own session timeout": [
        enter("C", "t"),
        join("A", "a-of-its-own", session_timeout=3000),
        sync("A", "a-of-its-own", 3),
        beat("C", 2, {"t": [0, 1, 2]}),
        wait(1800),
        heartbeat("A", "a-of-its-own", 3),
        wait(1800),
        heartbeat("A", "a-of-its-own", 3),
        wait(3600),
        heartbeat("A", "a-of-its-own", 3),
        describe_consumers("D"),
    ],
    "a full consumer group refuses classic members": [
        enter("C", "t"),
        enter("D", "t"),
        join("A"),
        join("A", "nobody"),
        join("A", group_instance_id="a"),
        exit_group("D"),
        join("A", "a-of-its-own"),
        describe_consumers("D"),
    ],
}
