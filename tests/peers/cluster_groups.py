"""Groups of real clients on a cluster: each library's group commits what it has received."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import count
from typing import Protocol

from .group_clients import PARTITIONS
from .java import JavaConsumer
from .peer import ConsumerPeer
from .waiting import wait_until
from .wire import Wire

ANSWER_TIMEOUT_S = 5.0
NEVER = -1

Address = tuple[str, int]
Offsets = dict[int, int]


class Group(Protocol):
    """Members of one library. ``acknowledged``: by partition, the highest offset whose commit was acknowledged."""

    name: str

    @property
    def members(self) -> Sequence[ConsumerPeer | JavaConsumer]: ...

    def commit(self) -> None:
        """Try to commit what was received."""

    def acknowledged(self) -> Offsets: ...

    def progress(self) -> str:
        """What its members have received and committed, for the text of a failure."""


class PeerGroup:
    """Members that commit when the test says so."""

    def __init__(self, name: str, *members: ConsumerPeer) -> None:
        self.name = name
        self.members = members
        self._acknowledged: Offsets = {}
        self._errors: dict[str, str] = {}  # of the last commits, by member

    def commit(self) -> None:
        for member in self.members:
            positions, assignment = member.positions, member.assignment
            offsets = {partition: offset for partition, offset in positions.items() if partition in assignment}
            if not offsets:
                continue
            answer = member.try_ask("commit", offsets=sorted(offsets.items()))
            self._errors[member.name] = answer.get("error", "")
            if "error" not in answer:
                self._acknowledged |= offsets

    def acknowledged(self) -> Offsets:
        return dict(self._acknowledged)

    def progress(self) -> str:
        lines = [
            f"{member.name}: assigned {sorted(member.assignment)}, received up to {member.positions}, "
            f"error of the last commit: {self._errors.get(member.name) or 'none'}"
            for member in self.members
        ]
        return "; ".join(lines)


class JavaGroup:
    """Members that commit by themselves what they have received."""

    def __init__(self, name: str, *members: JavaConsumer) -> None:
        self.name = name
        self.members = members

    def commit(self) -> None:
        """They do."""

    def acknowledged(self) -> Offsets:
        return merged(member.committed() for member in self.members)

    def progress(self) -> str:
        return f"acknowledged {self.acknowledged()}"


class CommittedOffsets:
    """What a group has committed, by its coordinator: never less than before, and than what was acknowledged."""

    def __init__(self, group: Group, nodes: Sequence[Address]) -> None:
        self.group = group
        self._nodes = nodes
        self._last: Offsets = {}

    def read(self) -> Offsets:
        """Waits until there is a coordinator. Raises AssertionError if an offset is lower than it has to be."""
        least = merged([self._last, self.group.acknowledged()])
        found = wait_until(
            lambda: fetch_committed(self._nodes, self.group.name),
            lambda offsets: offsets is not None,
            f"the coordinator of {self.group.name}",
        )
        assert found is not None
        held = {partition: found.get(partition, NEVER) for partition in least}
        assert merged([held, least]) == held, f"{self.group.name}: committed {found}, before it was {least}"
        self._last = found
        return found


def merged(offsets: Iterable[Offsets]) -> Offsets:
    """The highest offset of each partition."""
    highest: Offsets = {}
    for each in offsets:
        highest |= {part: offset for part, offset in each.items() if offset > highest.get(part, NEVER)}
    return highest


def has_advanced(before: Offsets, now: Offsets) -> bool:
    return all(now.get(partition, NEVER) > before.get(partition, NEVER) for partition in PARTITIONS)


def find_coordinator(nodes: Sequence[Address], key: str) -> Address | None:
    """The coordinator of a group, by the first node that knows it; None if none does."""
    for host, port in nodes:
        with suppress(OSError), Wire(host, port, ANSWER_TIMEOUT_S) as wire:
            found = wire.ask("find_coordinator", 2, key=key, key_type=0)
            if found["error_code"] == "NONE":
                return found["host"], found["port"]
    return None


def fetch_committed(nodes: Sequence[Address], group: str) -> Offsets | None:
    """The committed offsets of a group, by partition of its only topic. None if its coordinator does not answer."""
    coordinator = find_coordinator(nodes, group)
    if coordinator is None:
        return None
    with suppress(OSError), Wire(*coordinator, ANSWER_TIMEOUT_S) as wire:
        answer = wire.ask("offset_fetch", 5, group_id=group, topics=None)
        if answer["error_code"] == "NONE":
            rows = [row for topic in answer["topics"] for row in topic["partitions"]]
            return {row["partition_index"]: row["committed_offset"] for row in rows}
    return None


def name_on(node: Address, prefix: str) -> str:
    """A name of a group that this node coordinates; also of a topic that it leads, by the same function."""
    return next(name for name in (f"{prefix}-{number}" for number in count()) if find_coordinator([node], name) == node)
