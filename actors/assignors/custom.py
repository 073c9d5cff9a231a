"""FunctionAssignor: your own function as an assignor. Its results are checked for missing and duplicate partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from ..callboard_error import CallboardError
from .base import AssignFunction, Assignor, GroupAssignment, MemberState, MemberSubscription, TopicPartition
from .cooperative import current_owners, withhold_owned
from .order import by_member_id, sort_members, subscribers_by_topic
from .user_data import write_weight

LISTED_MAX = 5
"""Items that an error message lists."""

RESERVED_NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky", "weighted")

RESERVED_PREFIX = "callboard-"
"""Of Callboard's own assignors, and of protocol names in groups with named resources."""


class InvalidAssignment(CallboardError, ValueError):
    """The result of a function is no valid assignment. The message names the partition or member that is wrong."""


class FunctionAssignor(Assignor):
    """An assignor that is a function of your own.

    The function returns the final assignment. With ``cooperative`` a partition that moves is first revoked, then
    assigned. ``assign`` raises InvalidAssignment if a result is not valid. Raises ValueError for a name or a function
    that cannot be used.
    """

    def __init__(self, name: str, function: AssignFunction, cooperative: bool = True) -> None:
        if not isinstance(name, str) or not name or name in RESERVED_NAMES or name.startswith(RESERVED_PREFIX):
            raise ValueError(
                f"a FunctionAssignor cannot have the name {name!r}: the members agree on a "
                f"name, so it must be unique (not empty, not {', '.join(RESERVED_NAMES)}, not {RESERVED_PREFIX}...)"
            )
        if not callable(function):
            raise ValueError(f"assignor {name!r}: {function!r} is not callable; expected f(partitions, members)")
        self.name = name
        self.is_cooperative = cooperative
        self._function = function

    def metadata(self, own: MemberState) -> bytes | None:
        """The weight; the function gets it as ``MemberSubscription.weight``."""
        return write_weight(own.weight)

    def assign(self, partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> GroupAssignment:
        """Raises InvalidAssignment, and whatever the function raises."""
        ordered = sort_members(members)
        shares = check_result(self._function(dict(partitions), tuple(ordered)), partitions, ordered)
        return by_member_id(ordered, withhold_owned(shares, current_owners(ordered)) if self.is_cooperative else shares)


def check_result(
    result: object, partitions: Mapping[str, int], members: Sequence[MemberSubscription]
) -> list[list[TopicPartition]]:
    """The partitions of each member, by its index. A member that is not in the result gets none.

    Raises InvalidAssignment unless each partition with subscribers is assigned once, to a subscriber.
    """
    if not isinstance(result, Mapping):
        raise InvalidAssignment(
            f"the function returned {_short_repr(result)}; expected a dict of member id to partitions"
        )
    member_ids = {member.member_id for member in members}
    if unknown := [member_id for member_id in result if member_id not in member_ids]:
        raise InvalidAssignment(f"there is no member {_list(unknown)}; the members are {_list(sorted(member_ids))}")
    shares = [_check_share(result.get(member.member_id, ()), member, partitions) for member in members]
    topics = subscribers_by_topic(partitions, members)
    _check_complete(shares, {(topic, number) for topic in topics for number in range(partitions[topic])})
    return shares


def _check_share(
    share: object, member: MemberSubscription, partition_counts: Mapping[str, int]
) -> list[TopicPartition]:
    if not isinstance(share, Iterable) or isinstance(share, str | bytes | Mapping):
        raise InvalidAssignment(
            f"{member.member_id} was given {_short_repr(share)}; expected a list of (topic, partition)"
        )
    partitions: list[TopicPartition] = []
    for item in share:
        match item:
            case (str() as topic, int() as number) if 0 <= number < partition_counts.get(topic, 0):
                partitions.append((topic, number))
            case _:
                raise InvalidAssignment(
                    f"{member.member_id} was given {_short_repr(item)}; expected (topic, partition) that exists"
                )
    if foreign := {topic for topic, _ in partitions} - member.topics:
        raise InvalidAssignment(
            f"{member.member_id} was given {_list(sorted(foreign))}, which it does not subscribe to"
        )
    return partitions


def _check_complete(shares: Iterable[list[TopicPartition]], all_partitions: set[TopicPartition]) -> None:
    counts = Counter(partition for share in shares for partition in share)
    if duplicates := sorted(partition for partition, count in counts.items() if count > 1):
        raise InvalidAssignment(f"assigned more than once: {_list(duplicates)}")
    if missing := sorted(all_partitions - counts.keys()):
        raise InvalidAssignment(f"not assigned: {_list(missing)}")


def _list(items: Sequence[object]) -> str:
    more = f" and {len(items) - LISTED_MAX} more" if len(items) > LISTED_MAX else ""
    return ", ".join(_short_repr(item) for item in islice(items, LISTED_MAX)) + more


def _short_repr(item: object) -> str:
    text = repr(item)
    return text if len(text) <= 100 else text[:97] + "..."
