"""Random groups for the assignors of the coordinator, as JSON, from a seed.

A case has ``topics`` (name to id and number of partitions), ``members``, and the name of the ``assignor``. Half of the
members' partitions are what an earlier assignment of the same group would leave: members have come, gone and changed
their subscriptions, topics have grown, vanished, or have been created again. The others are random.
"""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

from callboard.actors.assignors.server.base import GroupMember, GroupToAssign, TargetAssignment, Topic
from callboard.actors.assignors.server.table import SERVER_ASSIGNORS

Case = dict[str, Any]


def make_case(seed: int) -> Case:
    random = Random(seed)
    case = _new_case(random)
    if random.random() < 0.5:
        _own_at_random(random, case)
    else:
        for _ in range(random.randint(1, 4)):
            _own_target(random, case)
            _change(random, case)
    return case


def assign(case: Case) -> TargetAssignment:
    """What Callboard's assignor does with a case."""
    topics = {name: Topic(UUID(topic_id).bytes, count) for name, (topic_id, count) in case["topics"].items()}
    members = [
        GroupMember(
            member["id"],
            member["topics"],
            {UUID(topic_id).bytes: numbers for topic_id, numbers in member["owned"].items()},
            member["instance"],
            member["rack"],
        )
        for member in case["members"]
    ]
    return SERVER_ASSIGNORS[case["assignor"]].assign(GroupToAssign.of_names(topics, members))


def as_json(target: TargetAssignment) -> dict[str, dict[str, list[int]]]:
    """Without members that have no partitions."""
    return {
        member_id: {_text(topic_id): numbers for topic_id, numbers in sorted(partitions.items())}
        for member_id, partitions in sorted(target.items())
        if partitions
    }


def _new_case(random: Random) -> Case:
    size = random.choice((1, 3, 8, 30))
    names = [f"topic-{number}" for number in range(random.randint(1, random.choice((1, 3, 14))))]
    topics = {name: [_uuid(random), random.randint(1, random.choice((1, 6, 24, 70)))] for name in names}
    case: Case = {"assignor": random.choice(("uniform", "uniform", "range")), "topics": topics, "members": []}
    case["equal"] = random.random() < 0.5
    for _ in range(random.randint(1, size)):
        _add_member(random, case)
    return case


def _uuid(random: Random) -> str:
    return str(UUID(int=random.getrandbits(128)))


def _text(topic_id: bytes) -> str:
    return str(UUID(bytes=topic_id))


def _add_member(random: Random, case: Case) -> None:
    number = random.randrange(10**6)
    case["members"].append(
        {
            "id": random.choice((f"m{number}", _uuid(random), f"\U0001f600{number}", f"\ufb01{number}")),
            "instance": f"instance-{number}" if random.random() < 0.3 else None,
            "rack": random.choice((None, "a", "b")),
            "topics": _subscription(random, case),
            "owned": {},
        }
    )


def _subscription(random: Random, case: Case) -> list[str]:
    """Some names do not exist."""
    if case["equal"] and case["members"]:
        return list(case["members"][0]["topics"])
    names = [*case["topics"], "absent", "absent-too"]
    return random.sample(names, random.randint(random.random() < 0.9, len(names)))


def _own_at_random(random: Random, case: Case) -> None:
    """Each partition has at most one owner; some have none. Some are of topics that are no longer there."""
    topics = [*case["topics"].values(), [_uuid(random), 5]]
    for topic_id, count in topics:
        for number in random.sample(range(count), random.randint(0, count)):
            owned = random.choice(case["members"])["owned"]
            owned.setdefault(topic_id, []).append(number)


def _own_target(random: Random, case: Case) -> None:
    target = assign(case)
    for member in case["members"]:
        partitions = [(_text(topic_id), list(numbers)) for topic_id, numbers in target[member["id"]].items()]
        random.shuffle(partitions)
        member["owned"] = dict(partitions)


def _change(random: Random, case: Case) -> None:
    for change in random.choices((_join, _leave, _subscribe, _grow, _replace_topic), k=random.randint(1, 3)):
        change(random, case)


def _join(random: Random, case: Case) -> None:
    for _ in range(random.randint(1, 4)):
        _add_member(random, case)


def _leave(random: Random, case: Case) -> None:
    if len(case["members"]) > 1:
        case["members"].pop(random.randrange(len(case["members"])))


def _subscribe(random: Random, case: Case) -> None:
    if not case["equal"]:
        random.choice(case["members"])["topics"] = _subscription(random, case)


def _grow(random: Random, case: Case) -> None:
    if case["topics"]:
        random.choice(list(case["topics"].values()))[1] += random.randint(1, 9)


def _replace_topic(random: Random, case: Case) -> None:
    """Half of the time the topic is only deleted."""
    if case["topics"]:
        name = random.choice(list(case["topics"]))
        count = case["topics"].pop(name)[1]
        if random.random() < 0.5:
            case["topics"][name] = [_uuid(random), count]
