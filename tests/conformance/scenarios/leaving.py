"""LeaveGroup, DescribeGroups, ListGroups and DeleteGroups."""

from __future__ import annotations

from ..script import Script, Step
from ..steps import (
    OTHER_TOPIC,
    commit,
    delete,
    describe,
    disconnect,
    fetch,
    heartbeat,
    join,
    leave,
    member,
    pair,
    sync,
    wait,
)

STATIC_PAIR = pair({"group_instance_id": "a"}, {"group_instance_id": "b"})


def list_groups(line: str, v: int, states: list[str], types: list[str]) -> Step:
    return [line, "list_groups", v, {"states_filter": states, "types_filter": types}]


LEAVING: dict[str, Script] = {
    "a leave behind a parked join, and a hang-up": [
        *pair(),
        join("B", "$B1", protocols=OTHER_TOPIC),
        leave("B", "$B1"),
        disconnect("B"),
        heartbeat("A", "$A1", 2),
        join("A", "$A1"),
        describe("C"),
    ],
    **{
        f"leave v{v}": [
            leave("A", "nobody", v=v),
            leave("A", "nobody", v=v, group=""),
            *member("A"),
            leave("A", "nobody", v=v),
            leave("A", "", v=v),
            leave("A", ("", "a"), v=v),
            leave("A", "$A1", v=v),
            describe("A"),
            leave("A", "$A1", v=v),
            leave("A", "nobody", v=v),
        ]
        for v in range(6)
    },
    **{
        f"leave of several v{v}": [
            *STATIC_PAIR,
            leave("A", ("", "a"), ("$b1", "b"), v=v),
            describe("A"),
            leave("A", ("", "a"), ("$b1", "b"), v=v),
            leave("A", ("", "a"), ("$b1", "b"), v=v, group="$group-absent"),
            leave("A", ("", "a"), ("$b1", "b"), v=v, group=""),
        ]
        for v in range(3, 6)
    },
    "leave of nobody": [*member("A"), leave("A"), leave("A", group="$group-absent"), describe("A")],
    "leave of the same twice": [*pair(), leave("A", "$B1", "$B1"), heartbeat("A", "$A1", 2)],
    "leave of one fenced, one not": [*STATIC_PAIR, leave("A", ("$b1", "a"), ("$b1", "b")), describe("A")],
    "leave of one unknown, one not": [
        *STATIC_PAIR,
        leave("A", ("", "nobody"), ("", "b"), ("$a1", "nobody")),
        describe("A"),
    ],
    "leave of a static member by its id": [
        *STATIC_PAIR,
        leave("A", "$b1"),
        heartbeat("A", "$a1", 2, "a"),
        describe("A"),
    ],
    "leave of a pending member": [
        *member("A"),
        join("B"),
        leave("A", "$B1"),
        heartbeat("A", "$A1"),
        leave("A", "$B1"),
        describe("A"),
    ],
    "leave of a pending member of a new group": [
        join("A"),
        leave("A", "$A1"),
        describe("A"),
        delete("A"),
        describe("A"),
    ],
    "leave of joined, pending and unknown": [
        *member("A"),
        join("B"),
        leave("A", "$A1", "$B1", "nobody"),
        describe("A"),
    ],
    "leave of joined and pending, others stay": [
        *pair(),
        join("C"),
        leave("C", "$B1", "$C1", "nobody"),
        heartbeat("A", "$A1", 2),
        join("A", "$A1"),
    ],
    "leave while joining": [*pair(), join("B", "$B1"), join("A", "$A1"), leave("C", "$A1"), join("B", "$B1")],
    "leave of the one who is waited for": [*pair(), join("A", "$A1"), leave("C", "$B1"), describe("A")],
    "leave of a follower": [*pair(), leave("B", "$B1"), heartbeat("A", "$A1", 2), join("A", "$A1"), describe("A")],
    "leave of the leader": [*pair(), leave("A", "$A1"), heartbeat("B", "$B1", 2), join("B", "$B1"), describe("B")],
    "leave of the leader, and it comes again": [
        *pair(),
        leave("A", "$A1"),
        join("A"),
        join("A", "$A2"),
        join("B", "$B1"),
    ],
    "leave in the sync phase": [
        *pair(),
        join("A", "$A1"),
        join("B", "$B1"),
        leave("B", "$B1"),
        sync("A", "$A1", 3, {"$A1": "left"}),
        join("A", "$A1"),
    ],
}

GROUPS: dict[str, Script] = {
    **{
        f"describe v{v}": [
            describe("A", "$group", "", "$group-never", v=v),
            *member("A", group_instance_id="seat"),
            describe("A", "$group", "", "$group-never", v=v),
            join("A", "$seat1", group_instance_id="seat"),
            describe("A", v=v),
            join("B"),
            describe("A", v=v),
            leave("A", "$seat1"),
            describe("A", v=v),
            commit("A", group_id="$group-simple"),
            describe("A", "$group-simple", v=v),
            describe("A", "$group", "$group", v=v),
        ]
        for v in range(7)
    },
    "describe with authorized operations": [
        *member("A"),
        ["A", "describe_groups", 3, {"groups": ["$group", "none"], "include_authorized_operations": True}],
        ["A", "describe_groups", 6, {"groups": ["$group", "none"], "include_authorized_operations": True}],
    ],
    "describe of a group that rebalances": [
        *pair(),
        join("C"),
        join("C", "$C1"),
        describe("A"),
        join("A", "$A1"),
        describe("A"),
    ],
    **{
        f"delete v{v}": [
            delete("A", "$group", "", "$group-never", v=v),
            *member("A"),
            commit("A", "$A1", 1),
            commit("A", group_id="$group-simple"),
            delete("A", "$group", "", "$group-never", "$group-simple", v=v),
            leave("A", "$A1"),
            delete("A", "$group", "$group-never", v=v),
            describe("A"),
            fetch("A"),
            commit("A", "$A1", 1),
            commit("A", "$A1", 1, v=8),
            delete("A", v=v),
            *member("A")[:1],
            join("A", "$A2"),
            describe("A"),
        ]
        for v in range(3)
    },
    "delete of a group that rebalances": [*pair(), join("A", "$A1"), delete("C"), join("B", "$B1"), delete("C")],
    "delete of a group with a pending member": [join("A"), delete("A"), describe("A"), join("A", "$A1"), describe("A")],
    "delete of the same twice in one request": [commit("A"), delete("A", "$group", "$group"), describe("A")],
    "delete of everything, and it begins anew": [
        *member("A"),
        leave("A", "$A1"),
        delete("A"),
        join("A"),
        join("A", "$A2"),
        describe("A"),
    ],
    **{
        f"list v{v}": [
            *member("A"),
            commit("A", group_id="$group-simple"),
            *(
                list_groups("A", v, states, types)
                for states in ([], ["Stable"], ["stable", "EMPTY"], ["nonsense"], ["PreparingRebalance", "Dead"])
                for types in ([[], ["classic"], ["Consumer", "CLASSIC"], ["nonsense"]] if v >= 5 else [[]])
            ),
            list_groups("A", v, ["Assigning"], []),
            list_groups("A", v, [" stable "], []),
        ]
        for v in range(6)
    },
    "list in each state": [
        join("A"),
        list_groups("C", 5, [], []),
        join("A", "$A1"),
        list_groups("C", 5, [], []),
        sync("A", "$A1", 1, {"$A1": "x"}),
        list_groups("C", 5, [], []),
        join("B"),
        join("B", "$B1"),
        list_groups("C", 5, [], []),
        leave("C", "$A1", "$B1"),
        list_groups("C", 5, [], []),
        delete("C"),
        list_groups("C", 5, [], []),
        wait(100),
    ],
}
