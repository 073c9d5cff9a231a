"""Which members count as connected while the clock is moved.

Clients live in real time: a client with a heartbeat every three seconds cannot send 900 of them in the milliseconds
that ``advance(2700)`` takes. Skipped time therefore does not count for connected members: not for their sessions, and
not for a rebalance that waits for their JoinGroup or SyncGroup. A member is connected while a connection on which it
has sent a request is open, or its channel if it is in this process, unless the test names it in ``silent``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from typing import Protocol

from ....actors.consumer_group.group import ConsumerGroup
from ....actors.group.classic import ClassicGroup
from ....actors.group.effects import Deadline
from ....actors.group.members import GroupMember
from .facts import RequestFacts

ActiveGroup = ClassicGroup | ConsumerGroup
"""A group in memory whose members have sessions."""


class MemberConnection(Protocol):
    """A connection on which a member has sent requests."""

    @property
    def is_open(self) -> bool: ...

    @property
    def client_id(self) -> str: ...


MEMBER_APIS = frozenset({"ConsumerGroupHeartbeat", "Heartbeat", "JoinGroup", "OffsetCommit", "SyncGroup"})
"""Requests that only the member itself sends. A LeaveGroup may be an admin's, a TxnOffsetCommit is a producer's."""


class Presence:
    """The connections of each member. ``names``: all client, member and instance ids seen so far."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._connections: dict[tuple[str, str], list[MemberConnection]] = {}

    def note_request(self, facts: RequestFacts, connection: MemberConnection) -> None:
        """Note the connection of a request."""
        self.names.update((facts.client_id, *facts.members, *facts.instances))
        if facts.api in MEMBER_APIS:
            for group_id in facts.groups:
                for member_id in facts.members:
                    self.note_connection(group_id, member_id, connection)

    def note_connection(self, group_id: str, member_id: str, connection: MemberConnection) -> None:
        self.names.add(member_id)
        connections = self._connections.setdefault((group_id, member_id), [])
        if connection not in connections:
            connections[:] = [*(connection for connection in connections if connection.is_open), connection]

    def client_of(self, group_id: str, member_id: str) -> str | None:
        """The client id of a connected member; None if it is not connected."""
        connections = self._connections.get((group_id, member_id), ())
        return next((connection.client_id for connection in connections if connection.is_open), None)

    def clear_connections(self) -> None:
        self._connections.clear()


class DeadlinePostponement:
    """Postpones deadlines during one move of the clock. Call ``postpone`` for each group before each step."""

    def __init__(self, presence: Presence, silent: Iterable[str] = ()) -> None:
        """``silent``: member ids, instance ids or client ids that do not count as connected."""
        self._presence = presence
        self._silent = frozenset(silent)
        self._postponed: dict[Deadline, int | None] = {}

    def postpone(self, group: ActiveGroup, left_ms: int) -> None:
        """Postpone the deadlines of connected members by the rest of the move; each once."""
        for deadline in self._deadlines(group):
            if deadline.due_ms is not None and self._postponed.get(deadline) != deadline.due_ms:
                deadline.due_ms += left_ms
                self._postponed[deadline] = deadline.due_ms

    def _deadlines(self, group: ActiveGroup) -> Iterator[Deadline]:
        if isinstance(group, ConsumerGroup):
            return self._consumer_deadlines(group)
        return self._classic_deadlines(group)

    def _consumer_deadlines(self, group: ConsumerGroup) -> Iterator[Deadline]:
        """A member that does not give back its partitions in time counts as connected, too."""
        for member in group.soft.members.values():
            names = {member.member_id, member.about.instance_id, member.about.client_id}
            if self._is_present(group.group_id, member.member_id, names):
                deadlines = group.timers.sessions.get(member.member_id), group.timers.rebalance(member.member_id)
                yield from filter(None, deadlines)

    def _classic_deadlines(self, group: ClassicGroup) -> Iterator[Deadline]:
        present_members = [member for member in group.members if self._is_member_present(group.group_id, member)]
        for member in present_members:
            yield member.session
        for member_id, deadline in group.members.pending.items():
            client_id = self._presence.client_of(group.group_id, member_id)
            if client_id is not None and not self._silent & {member_id, client_id}:
                yield deadline
        if any(member.joining is None for member in present_members):
            yield group.join_phase.deadline
        if any(member.member_id in group.sync_phase.pending for member in present_members):
            yield group.sync_phase.deadline

    def _is_member_present(self, group_id: str, member: GroupMember) -> bool:
        names = {member.member_id, member.group_instance_id, member.client_id}
        return self._is_present(group_id, member.member_id, names)

    def _is_present(self, group_id: str, member_id: str, names: Set[str | None]) -> bool:
        return not self._silent & names and self._presence.client_of(group_id, member_id) is not None
