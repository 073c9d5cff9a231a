"""MemberClients: who the members of groups are besides their names, by what their connections say. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

from .record import NAME_CHARACTERS_MAX, MemberName

MEMBERS_MAX = 20_000
"""The member that was noted first is forgotten for the next."""


class MemberClient(NamedTuple):
    """``principal``: as in "User:ann". ``software``: name and version, as in "librdkafka 2.16.0"; "" if not told."""

    principal: str
    software: str


class MemberClients:
    """Of all groups, noted when a member joins. Nothing is noted of members in the coordinator's own process.

    Reading is safe from another thread.
    """

    def __init__(self) -> None:
        self._clients: OrderedDict[tuple[str, str], MemberClient] = OrderedDict()

    def note(self, group_id: str, member_id: str, client: MemberClient) -> None:
        if max(len(group_id), len(member_id)) > NAME_CHARACTERS_MAX:
            return
        self._clients[group_id, member_id] = client
        self._clients.move_to_end((group_id, member_id))
        if len(self._clients) > MEMBERS_MAX:
            self._clients.popitem(last=False)

    def find(self, group_id: str, member_id: str) -> MemberClient | None:
        """None if nothing was noted of the member."""
        return self._clients.get((group_id, member_id))

    def complete(self, group_id: str, value: Any) -> Any:
        """A record, or a part of one, with what is known of each member that it names."""
        return self._complete(group_id, value) if self._clients else value

    def _complete(self, group_id: str, value: Any) -> Any:
        if isinstance(value, MemberName):
            client = self._clients.get((group_id, value.member_id))
            return value if client is None else value._replace(principal=client.principal, software=client.software)
        if not isinstance(value, tuple):
            return value
        items = (self._complete(group_id, item) for item in value)
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
