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
from ....actors.group.members import GroupMember
from ....actors.group.states import State
from .facts import Facts


class Speaker(Protocol):
    """A way on which a member has spoken."""

    @property
    def is_open(self) -> bool: ...

    @property
    def client_id(self) -> str: ...


MEMBERS_OWN = frozenset({"Heartbeat", "JoinGroup", "OffsetCommit", "SyncGroup"})
"""Requests that only the member itself makes. A LeaveGroup may be an admin's, a TxnOffsetCommit is a producer's."""


class Presence:
    """Which members have spoken, and on which connections. ``names``: client, member and instance ids, of all ever."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._speakers: dict[tuple[str, str], list[Speaker]] = {}

    def heard(self, facts: Facts, speaker: Speaker) -> None:
        """A request."""
        self.names.update((facts.client_id, *facts.members, *facts.instances))
        if facts.api in MEMBERS_OWN:
            for group_id in facts.groups:
                for member_id in facts.members:
                    self.spoke(group_id, member_id, speaker)

    def spoke(self, group_id: str, member_id: str, speaker: Speaker) -> None:
        self.names.add(member_id)
        speakers = self._speakers.setdefault((group_id, member_id), [])
        if speaker not in speakers:
            speakers[:] = [*(one for one in speakers if one.is_open), speaker]

    def client_of(self, group_id: str, member_id: str) -> str | None:
        """The client id of a member that is there; None if it is not."""
        speakers = self._speakers.get((group_id, member_id), ())
        return next((one.client_id for one in speakers if one.is_open), None)

    def forget(self) -> None:
        self._speakers.clear()


class Sparing:
    """One move of the clock. Call ``spare`` for each group before each step."""

    def __init__(self, presence: Presence, silent: Iterable[str] = ()) -> None:
        """``silent``: member ids, instance ids or client ids."""
        self._presence = presence
        self._silent = frozenset(silent)
        self._spared: dict[Deadline, int | None] = {}

    def spare(self, group: ClassicGroup, left_ms: int) -> None:
        """Put off what waits for somebody who is there, by what the clock is still to be moved; once."""
        for deadline in self._deadlines(group):
            if deadline.due_ms is not None and self._spared.get(deadline) != deadline.due_ms:
                deadline.due_ms += left_ms
                self._spared[deadline] = deadline.due_ms

    def _deadlines(self, group: ClassicGroup) -> Iterator[Deadline]:
        there = [member for member in group.members if self._is_there(group.group_id, member)]
        for member in there:
            yield member.session
        for member_id, deadline in group.members.pending.items():
            client_id = self._presence.client_of(group.group_id, member_id)
            if client_id is not None and not self._silent & {member_id, client_id}:
                yield deadline
        if group.state is State.PREPARING_REBALANCE and any(member.joining is None for member in there):
            yield group.join_deadline
        if any(member.member_id in group.pending_sync for member in there):
            yield group.sync_deadline

    def _is_there(self, group_id: str, member: GroupMember) -> bool:
        names = {member.member_id, member.group_instance_id, member.client_id}
        return not self._silent & names and self._presence.client_of(group_id, member.member_id) is not None
