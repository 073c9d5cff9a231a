"""UsedMemberIds: which member of a group a connection was, for commits without a generation, see ``CommitGuard``."""

from __future__ import annotations

from weakref import WeakKeyDictionary

GROUPS_MAX = 8
"""Groups of a connection that are remembered. A consumer is a member of one."""

CHARACTERS_MAX = 255
"""Longer names are not remembered: they are in memory as long as the connection is open."""


class UsedMemberIds:
    """The last member id of each open connection, by group."""

    def __init__(self) -> None:
        self._by_connection: WeakKeyDictionary[object, dict[str, str]] = WeakKeyDictionary()

    def note(self, connection: object, group_id: str, member_id: str) -> None:
        """The connection has joined a group as this member, or was answered that it is no member."""
        if max(len(group_id), len(member_id)) > CHARACTERS_MAX:
            return
        member_ids = self._by_connection.setdefault(connection, {})
        member_ids.pop(group_id, None)
        member_ids[group_id] = member_id
        if len(member_ids) > GROUPS_MAX:
            del member_ids[next(iter(member_ids))]

    def last(self, connection: object, group_id: str) -> str:
        """The member id that the connection used last in a group; "" if it used none."""
        return self._by_connection.get(connection, {}).get(group_id, "")
