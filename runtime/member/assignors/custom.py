"""An assignor that is somebody's own function, and the check that nothing is lost or done twice by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from .base import Assignment, Assignor, Function, Own, Partition, Subscribed
from .cooperative import held_by, hold_back
from .order import by_member, in_order, wanted
from .user_data import write_weight

NAMED_MAX = 5  # partitions that an error names: enough to see what is wrong
TAKEN = ("range", "roundrobin", "sticky", "cooperative-sticky", "weighted")
OURS = "callboard-"  # names of ours begin so, and those that stand for one's own where names are shared out


class BadAssignment(ValueError):
    """What a function gave is no assignment. The text says which partition or member is wrong."""


class FunctionAssignor(Assignor):
    """An assignor that is a function of your own.

    The function says who is to have what in the end; with ``cooperative`` the two steps in which partitions change
    hands are made of it. Its results are checked: BadAssignment says what is wrong with one. Raises ValueError for a
    name or a function that cannot be used.
    """

    def __init__(self, name: str, function: Function, cooperative: bool = True) -> None:
        if not isinstance(name, str) or not name or name in TAKEN or name.startswith(OURS):
            raise ValueError(
                f"an assignor of one's own cannot be called {name!r}: members agree on the name, so it must be one "
                f"that stands for this function alone (not empty, not {', '.join(TAKEN)}, not {OURS}...)"
            )
        if not callable(function):
            raise ValueError(f"assignor {name!r}: {function!r} is no function of (partitions, members)")
        self.name = name
        self.is_cooperative = cooperative
        self._function = function

    def metadata(self, own: Own) -> bytes | None:
        """The weight, which the function finds in ``Subscribed.weight``."""
        return write_weight(own.weight)

    def assign(self, partitions: Mapping[str, int], members: Sequence[Subscribed]) -> Assignment:
        """Raises BadAssignment, and whatever the function raises."""
        ordered = in_order(members)
        shares = checked(self._function(dict(partitions), tuple(ordered)), partitions, ordered)
        return by_member(ordered, hold_back(shares, held_by(ordered)) if self.is_cooperative else shares)


def checked(result: object, partitions: Mapping[str, int], members: Sequence[Subscribed]) -> list[list[Partition]]:
    """Shares by the members' places. Raises BadAssignment unless every wanted partition is given once, to a subscriber.

    A member that is not in the result gets nothing.
    """
    if not isinstance(result, Mapping):
        raise BadAssignment(f"the function returned {_short(result)}; expected a dict of member id to partitions")
    known = {member.member_id for member in members}
    if strangers := [member_id for member_id in result if member_id not in known]:
        raise BadAssignment(f"no member is called {_some(strangers)}; the members are {_some(sorted(known))}")
    shares = [_share(result.get(member.member_id, ()), member, partitions) for member in members]
    _complete(shares, {(topic, n) for topic in wanted(partitions, members) for n in range(partitions[topic])})
    return shares


def _share(given: object, member: Subscribed, partitions: Mapping[str, int]) -> list[Partition]:
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping):
        raise BadAssignment(f"{member.member_id} was given {_short(given)}; expected a list of (topic, partition)")
    share: list[Partition] = []
    for item in given:
        match item:
            case (str() as topic, int() as number) if 0 <= number < partitions.get(topic, 0):
                share.append((topic, number))
            case _:
                raise BadAssignment(
                    f"{member.member_id} was given {_short(item)}; expected (topic, partition) of a partition there is"
                )
    if foreign := {topic for topic, _ in share} - member.topics:
        raise BadAssignment(f"{member.member_id} was given {_some(sorted(foreign))}, to which it does not subscribe")
    return share


def _complete(shares: Iterable[list[Partition]], all_partitions: set[Partition]) -> None:
    times = Counter(partition for share in shares for partition in share)
    if twice := sorted(partition for partition, count in times.items() if count > 1):
        raise BadAssignment(f"given more than once: {_some(twice)}")
    if missing := sorted(all_partitions - times.keys()):
        raise BadAssignment(f"given to nobody: {_some(missing)}")


def _some(items: Sequence[object]) -> str:
    more = f" and {len(items) - NAMED_MAX} more" if len(items) > NAMED_MAX else ""
    return ", ".join(_short(item) for item in islice(items, NAMED_MAX)) + more


def _short(item: object) -> str:
    text = repr(item)
    return text if len(text) <= 100 else text[:97] + "..."
