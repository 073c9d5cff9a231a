"""Subscriptions by regular expressions (KIP-848): what they match, how they change, and which are invalid.

Kafka resolves the expressions of a group some time after a heartbeat, and the next heartbeat has the result. So a
script waits after each heartbeat that may start this.
"""

from __future__ import annotations

from typing import Any

from ..consumer_steps import beat, create_topic, delete_topic, describe_consumers, enter, exit_group, grow_topic
from ..script import Script, Step
from ..steps import commit, delete_offsets, wait

RESOLVED_MS = 2000
INTERVAL_MS = 11_000  # expressions are resolved again after 10 s at the earliest
X, Y, OTHER = "$group.x", "$group.y", "$group.other"
ALL = r"$group\.."
T012 = {"t": [0, 1, 2]}


def match(line: str, regex: str, *names: str, **changes: Any) -> list[Step]:
    """A member joins by a regular expression, and by ``names``; then it gets its partitions."""
    return [enter(line, *names, subscribed_topic_regex=regex, **changes), wait(RESOLVED_MS)]


def later(step: Step) -> list[Step]:
    """A heartbeat with which the expressions may be resolved, some time after they were last."""
    return [wait(INTERVAL_MS), step, wait(RESOLVED_MS)]


def made(*topics: str) -> list[Step]:
    return [*(create_topic(topic, 1) for topic in topics), wait(RESOLVED_MS)]


VALID = {
    "a name": ("t", ["t"]),
    "alternatives": ("t|u", ["t", "u"]),
    "a class of characters": ("[s-u]", ["t", "u"]),
    "any character": (".", ["t", "u"]),
    "a flag": ("(?i)T", ["t"]),
    "a flag of a group": ("(?i:T|U)", ["t", "u"]),
    "a quotation": (r"\Qt\E", ["t"]),
    "a class by its name": ("[[:lower:]]", ["t", "u"]),
    "a class of Unicode": (r"\p{Ll}", ["t", "u"]),
    "a named group": ("(?P<name>t)", ["t"]),
    "a group named as in Java": ("(?<name>t)", ["t"]),
    "a group named by a number": ("(?P<1>t)", ["t"]),
    "anchors": ("^t$", ["t"]),
    "a part of a name": ("$group", []),
    "nothing": (r"t\B", []),
    "a repetition": ("t{1,3}", ["t"]),
    "a lazy repetition": ("t+?", ["t"]),
    "a line": (r"\At\z", ["t"]),
}

INVALID = (
    *("t(", "t)", "[t", "*t", "t**", "t\\", "t{2,1}", "t{1001}", "[z-a]", "[[:nothing:]]", r"\p{Nothing}", r"\1"),
    *("(?=t)", "(?!t)", "(?<=t)", "(?P<n>t)(?P<n>u)", "(?z)t", r"\y", "(?>t)", "t++"),
)

CONSUMER_REGEXES: dict[str, Script] = {
    **{
        f"a match: {name}": [
            *match("A", regex, server_assignor="range"),
            beat("A", 1),
            beat("A", 2, {topic: [0, 1, 2] if topic == "t" else [0] for topic in topics}),
            describe_consumers("A"),
        ]
        for name, (regex, topics) in VALID.items()
    },
    "invalid expressions": [
        *(enter("A", subscribed_topic_regex=regex) for regex in INVALID),
        describe_consumers("A"),
        enter("A", "t"),
        *(beat("A", 2, subscribed_topic_regex=regex) for regex in INVALID[:4]),
        describe_consumers("A"),
    ],
    "an expression without names": [
        enter("A", subscribed_topic_regex="t", subscribed_topic_names=None),
        wait(RESOLVED_MS),
        beat("A", 1),
        beat("A", 2, T012),
        describe_consumers("A"),
    ],
    "neither an expression nor names": [
        enter("A", subscribed_topic_regex="", subscribed_topic_names=None),
        describe_consumers("A"),
        enter("B", subscribed_topic_regex=""),
        describe_consumers("B"),
    ],
    "an expression in version 0": [
        enter("A", v=0, subscribed_topic_regex="t", subscribed_topic_names=None),
        enter("A", "u", v=0, subscribed_topic_regex="t"),
        wait(RESOLVED_MS),
        beat("A", 2, v=0),
        describe_consumers("A"),
    ],
    "an expression and names": [
        *match("A", "u", "t", server_assignor="range"),
        beat("A", 2, T012),
        beat("A", 3, {**T012, "u": [0]}),
        describe_consumers("A"),
        beat("A", 3, subscribed_topic_names=[]),
        beat("A", 3, {"u": [0]}),
        beat("A", 4, {"u": [0]}),
        describe_consumers("A"),
    ],
    "an expression that matches a name": [
        *match("A", "t", "t"),
        beat("A", 2, T012),
        describe_consumers("A"),
        beat("A", 2, T012, subscribed_topic_names=[]),
        describe_consumers("A"),
    ],
    "members with the same expression": [
        *match("A", "t"),
        beat("A", 1),
        enter("B", subscribed_topic_regex="t"),
        beat("A", 2, T012),
        beat("A", 2, {"t": [0, 1]}),
        beat("B", 3, {}),
        describe_consumers("C"),
        exit_group("A"),
        beat("B", 3, {"t": [2]}),
        describe_consumers("C"),
    ],
    "members with different expressions": [
        *match("A", "t", server_assignor="range"),
        beat("A", 1),
        *match("B", "u", server_assignor="range"),
        beat("B", 2, {}),
        beat("A", 2, T012),
        describe_consumers("C"),
        *later(beat("B", 2, {})),
        beat("B", 2, {}),
        beat("A", 2, T012),
        beat("B", 3, {"u": [0]}),
        describe_consumers("C"),
    ],
    "a member with an expression and one with names": [
        enter("A", "t"),
        *match("B", "t"),
        beat("B", 2, {}),
        beat("A", 2, T012),
        beat("A", 2, {"t": [0, 1]}),
        beat("B", 3, {}),
        describe_consumers("C"),
    ],
    "a topic that is created later": [
        *made(X),
        *match("A", ALL, server_assignor="range"),
        beat("A", 1),
        *made(Y),
        beat("A", 2, {X: [0]}),
        wait(RESOLVED_MS),
        beat("A", 2),
        *later(beat("A", 2)),
        beat("A", 2),
        beat("A", 3, {X: [0], Y: [0]}),
        describe_consumers("A"),
    ],
    "the first topic that matches is created later": [
        *match("A", ALL),
        beat("A", 1),
        *made(X),
        *later(beat("A", 1)),
        beat("A", 1),
        beat("A", 2, {X: [0]}),
        describe_consumers("A"),
    ],
    "a topic that does not match is created later": [
        *made(X),
        *match("A", rf"{X}"),
        beat("A", 1),
        *made(Y),
        *later(beat("A", 2, {X: [0]})),
        beat("A", 2),
        describe_consumers("A"),
    ],
    "a topic that matches gets more partitions": [
        *made(X),
        *match("A", ALL),
        beat("A", 1),
        grow_topic(X, 3),
        wait(RESOLVED_MS),
        beat("A", 2, {X: [0]}),
        beat("A", 3, {X: [0, 1, 2]}),
        describe_consumers("A"),
    ],
    "a topic that matches is deleted": [
        *made(X, Y),
        *match("A", ALL, server_assignor="range"),
        beat("A", 1),
        delete_topic(X),
        wait(RESOLVED_MS),
        beat("A", 2, {X: [0], Y: [0]}),
        beat("A", 2, {Y: [0]}),
        *made(OTHER),  # expressions are resolved again only if there are new topics
        *later(beat("A", 3)),
        beat("A", 3),
        describe_consumers("A"),
    ],
    "a topic that matches is created again": [
        *made(X),
        *match("A", ALL),
        beat("A", 1),
        delete_topic(X),
        *made(X),
        beat("A", 2, {X: [0]}),
        beat("A", 2, {}),
        *later(beat("A", 3)),
        beat("A", 3),
        describe_consumers("A"),
    ],
    "another expression of the only member": [
        *match("A", "t"),
        beat("A", 1),
        beat("A", 2, T012, subscribed_topic_regex="u"),
        wait(RESOLVED_MS),
        beat("A", 2, {}),
        wait(RESOLVED_MS),
        beat("A", 2, {}),
        *later(beat("A", 2, {})),
        beat("A", 2, {}),
        describe_consumers("A"),
    ],
    "another expression of one of two members": [
        *match("A", "t"),
        beat("A", 1),
        enter("B", subscribed_topic_regex="t"),
        beat("A", 2, {"t": [0, 1]}),
        beat("B", 3, {"t": [2]}, subscribed_topic_regex="u"),
        *later(beat("B", 3, {})),
        beat("B", 3, {}),
        beat("A", 3, {"t": [0, 1]}),
        describe_consumers("C"),
    ],
    "names instead of an expression": [
        *match("A", "t"),
        beat("A", 1),
        beat("A", 2, T012, subscribed_topic_names=["u"], subscribed_topic_regex=""),
        beat("A", 2, {}),
        beat("A", 3, {"u": [0]}),
        describe_consumers("A"),
    ],
    "the same topics by names instead of an expression": [
        *match("A", "t"),
        beat("A", 1),
        beat("A", 2, T012, subscribed_topic_names=["t"], subscribed_topic_regex=""),
        beat("A", 3, T012),
        describe_consumers("A"),
    ],
    "an expression instead of names": [
        enter("A", "t"),
        beat("A", 2, T012, subscribed_topic_names=[], subscribed_topic_regex="u"),
        wait(RESOLVED_MS),
        beat("A", 2, {}),
        wait(RESOLVED_MS),
        beat("A", 3, {}),
        beat("A", 4, {"u": [0]}),
        describe_consumers("A"),
    ],
    "nothing instead of an expression": [
        *match("A", "t"),
        beat("A", 1),
        beat("A", 2, T012, subscribed_topic_regex=""),
        beat("A", 2, {}),
        beat("A", 3),
        describe_consumers("A"),
        beat("A", 3, subscribed_topic_regex="t"),
        wait(RESOLVED_MS),
        beat("A", 3),
        beat("A", 4),
        describe_consumers("A"),
    ],
    "a member joins again with another expression": [
        *match("A", "t"),
        beat("A", 1),
        *match("A", "u"),
        beat("A", 2),
        *later(beat("A", 2)),
        beat("A", 2),
        describe_consumers("A"),
    ],
    "the last member with an expression leaves": [
        *match("A", "t"),
        beat("A", 1),
        enter("B", "u"),
        exit_group("A"),
        beat("B", 3),
        describe_consumers("B"),
        *match("A", "t"),
        beat("A", 4),
        describe_consumers("B"),
    ],
    "a static member with an expression": [
        *match("A", "t", instance_id="a"),
        beat("A", 1, instance_id="a"),
        beat("A", -2, instance_id="a"),
        describe_consumers("C"),
        enter("A2", member_id="A2", instance_id="a", subscribed_topic_regex="t"),
        beat("A2", 2, T012, member_id="A2", instance_id="a"),
        describe_consumers("C"),
        beat("A2", -2, member_id="A2", instance_id="a"),
        enter("A3", "u", member_id="A3", instance_id="a", subscribed_topic_regex=""),
        beat("A3", 3, {"u": [0]}, member_id="A3", instance_id="a"),
        describe_consumers("C"),
    ],
    "offsets of topics that match": [
        *match("A", "t"),
        beat("A", 1),
        commit("A", "A", 2),
        delete_offsets("C", {"t": [0], "u": [0]}),
        exit_group("A"),
        delete_offsets("C", {"t": [0], "u": [0]}),
    ],
}
