"""Offsets of groups of the consumer protocol: who may commit, fetch and delete them."""

from __future__ import annotations

from ..consumer_steps import beat, describe_consumers, enter, exit_group, two_members
from ..script import Script
from ..steps import NOWHERE, commit, delete, delete_offsets, fetch, offsets, part, wait
from .transactions import MARKERS_MS, add, end, init, txn

CONSUMER_OFFSETS: dict[str, Script] = {
    **{
        f"a member commits and fetches v{v}": [
            enter("A", "t"),
            commit("A", "A", 2, v=v),
            commit("A", "A", 3, v=v),
            commit("A", "A", 1, v=v),
            commit("A", "B", 2, v=v),
            commit("A", "", 2, v=v),
            commit("A", "A", -1, v=v),
            commit("A", v=v),
            commit("A", "A", 2, NOWHERE, offsets("u", part(0)), v=v),
            commit("A", "A", 2, offsets("t", part(0, 42, "x" * 5000), part(7)), v=v),
            fetch("A", member_id="A", member_epoch=2),
            fetch("A", {"t": [0, 1, 2], "u": [0]}, v=v),
        ]
        for v in (9, 10)
    },
    **{
        f"a member commits v{v}": [
            enter("A", "t"),
            commit("A", "A", 2, v=v),
            commit("A", "A", 3, v=v),
            commit("A", "B", 2, v=v),
            commit("A", v=v),
            exit_group("A"),
            commit("A", "A", 2, v=v),
            commit("A", v=v),
            fetch("A", {"t": [0, 1]}),
        ]
        for v in (2, 8)
    },
    "who may fetch": [
        enter("A", "t"),
        commit("A", "A", 2),
        *(
            fetch("A", {"t": [0, 1]}, v, member_id=member_id, member_epoch=epoch)
            for v in (9, 10)
            for member_id, epoch in (("A", 2), ("A", 1), ("A", 3), ("A", -1), ("B", 2), ("", 2), ("B", -1))
        ),
        fetch("A", {"t": [0]}, 8),
        fetch("A", {"t": [0]}, 7),
        exit_group("A"),
        fetch("A", {"t": [0]}, member_id="A", member_epoch=2),
        fetch("A", {"t": [0]}, member_id="A", member_epoch=-1),
        fetch("A", {"t": [0]}),
        fetch("A", {"t": [0]}, group_id="$group-absent", member_id="A", member_epoch=2),
    ],
    "a commit with the epoch before": [
        *two_members(),
        commit("A", "A", 2, offsets("t", part(0), part(1))),
        commit("A", "A", 2, offsets("t", part(0), part(2))),
        commit("A", "A", 2, offsets("t", part(2))),
        commit("A", "A", 1, offsets("t", part(0))),
        commit("A", "A", 2, offsets("u", part(0))),
        commit("A", "A", 2, offsets("t", part(0)), v=10),
        commit("A", "A", 3, offsets("t", part(0, 44), part(2, 44))),
        commit("B", "B", 2, offsets("t", part(2))),
        commit("B", "B", 3, offsets("t", part(2))),
        fetch("A"),
    ],
    "a commit of partitions that are given back": [
        enter("A", "t"),
        enter("B", "t"),
        beat("A", 2, {"t": [0, 1, 2]}),
        commit("A", "A", 2, offsets("t", part(0), part(2))),
        commit("A", "A", 1, offsets("t", part(2))),
        beat("A", 2, {"t": [0, 1]}),
        commit("A", "A", 2, offsets("t", part(2, 43))),
        commit("A", "A", 3, offsets("t", part(2, 44))),
        beat("B", 3, {}),
        commit("A", "A", 2, offsets("t", part(2, 45))),
        commit("B", "B", 3, offsets("t", part(2, 46))),
        fetch("A"),
    ],
    "a commit of partitions that were gained in turn": [
        *two_members(),
        exit_group("B"),
        beat("A", 3, {"t": [0, 1]}),
        commit("A", "A", 2, offsets("t", part(0))),
        commit("A", "A", 3, offsets("t", part(0))),
        commit("A", "A", 3, offsets("t", part(2))),
        commit("A", "A", 4, offsets("t", part(2))),
        fetch("A"),
    ],
    "transactional commits of members": [
        *two_members(),
        init("P"),
        add("P"),
        txn("P", "A", 3),
        txn("P", "A", 4),
        txn("P", "A", 2),
        txn("P", "A", 1),
        txn("P", "A", -1),
        txn("P", "nobody", 3),
        txn("P", "", 3),
        txn("P"),
        txn("P", "A", 3, group_instance_id="a"),
        txn("P", "A", 2, offsets("t", part(2))),
        txn("P", "B", 2, offsets("t", part(2))),
        txn("P", "B", 3, offsets("t", part(2))),
        fetch("A"),
        fetch("A", require_stable=True),
        end("P", True),
        wait(MARKERS_MS),
        fetch("A", require_stable=True),
    ],
    "transactional commits of a group without members": [
        enter("A", "t"),
        exit_group("A"),
        init("P"),
        add("P"),
        txn("P", "A", 2),
        txn("P", "", 2),
        txn("P"),
        delete("P"),
        end("P", True),
        wait(MARKERS_MS),
        fetch("A"),
        delete("P"),
        fetch("A"),
    ],
    "offsets are deleted while members subscribe": [
        enter("A", "t"),
        commit("A", "A", 2, offsets("t", part(0), part(1)), offsets("u", part(0))),
        delete_offsets("C", {"t": [0, 1], "u": [0], "never-made": [0]}),
        fetch("C"),
        beat("A", 2, {"t": [0, 1, 2]}, subscribed_topic_names=["u"]),
        delete_offsets("C", {"t": [0, 2], "u": [0]}),
        fetch("C"),
        exit_group("A"),
        delete_offsets("C", {"t": [0, 1, 2], "u": [0]}),
        fetch("C"),
        describe_consumers("C"),
    ],
    "simple commits to a group whose members have left": [
        enter("A", "t"),
        commit("C"),
        exit_group("A"),
        commit("C"),
        commit("C", "A", 2),
        commit("C", "", 2),
        commit("C", "A", -1, offsets("t", part(2))),
        fetch("C"),
        enter("A", "t"),
        describe_consumers("C"),
    ],
}
