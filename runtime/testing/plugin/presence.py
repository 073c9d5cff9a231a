"""Who counts as alive while the clock is moved.

Clients live in real time: one that beats every three seconds cannot beat 900 times in the milliseconds that
``advance(2700)`` takes. So for whoever is there, the time that is skipped does not pass: not for its session, and not
for a rebalance that waits for it to join or to ask for its assignment. A member is there while a connection on which it
has spoken is open, or its channel if it is in this process; unless the test calls it silent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from ....actors.group.classic import ClassicGroup
from ....actors.group.effects import Deadline
from ....actors.group.members import Member
from ....actors.group.states import State
from .facts import RequestFacts


class MemberConnection(Protocol):
    """A way on which a member has spoken."""

    @property
    def is_open(self) -> bool: ...

    @property
    def client_id(self) -> str: ...


MEMBER_APIS = frozenset({"Heartbeat", "JoinGroup", "OffsetCommit", "SyncGroup"})
"""Requests that only the member itself makes. A LeaveGroup may be an admin's, a TxnOffsetCommit is a producer's."""


class Presence:
    """Which members have spoken, and on which connections. ``names``: client, member and instance ids, of all ever."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._connections: dict[tuple[str, str], list[MemberConnection]] = {}

    def note_request(self, facts: RequestFacts, connection: MemberConnection) -> None:
        """A request."""
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
        """The client id of a member that is there; None if it is not."""
        connections = self._connections.get((group_id, member_id), ())
        return next((connection.client_id for connection in connections if connection.is_open), None)

    def clear_connections(self) -> None:
        self._connections.clear()


class DeadlinePostponement:
    """One move of the clock. Call ``postpone`` for each group before each step."""

    def __init__(self, presence: Presence, silent: Iterable[str] = ()) -> None:
        """``silent``: member ids, instance ids or client ids."""
        self._presence = presence
        self._silent = frozenset(silent)
        self._postponed: dict[Deadline, int | None] = {}

    def postpone(self, group: ClassicGroup, left_ms: int) -> None:
        """Put off what waits for somebody who is there, by what the clock is still to be moved; once."""
        for deadline in self._deadlines(group):
            if deadline.due_ms is not None and self._postponed.get(deadline) != deadline.due_ms:
                deadline.due_ms += left_ms
                self._postponed[deadline] = deadline.due_ms

    def _deadlines(self, group: ClassicGroup) -> Iterator[Deadline]:
        present = [member for member in group.members if self._is_present(group.group_id, member)]
        for member in present:
            yield member.session
        for member_id, deadline in group.members.pending.items():
            client_id = self._presence.client_of(group.group_id, member_id)
            if client_id is not None and not self._silent & {member_id, client_id}:
                yield deadline
        if group.state is State.PREPARING_REBALANCE and any(member.joining is None for member in present):
            yield group.join_deadline
        if any(member.member_id in group.pending_sync for member in present):
            yield group.sync_deadline

    def _is_present(self, group_id: str, member: Member) -> bool:
        names = {member.member_id, member.group_instance_id, member.client_id}
        return not self._silent & names and self._presence.client_of(group_id, member.member_id) is not None
