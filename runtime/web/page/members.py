"""The members of a group as rows: their partitions, their clients, and whether the group waits for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ....actors.recorder.clients import MemberClient, MemberClients
from ....actors.recorder.now import GroupNow
from ...embed.results import GroupExplanation, GroupMember
from .texts import ranges

Clients = Mapping[str, MemberClient]
"""By member id, of the members of a group whose client is known."""


class MemberRow(NamedTuple):
    """``assigned``: as in "jobs 0-3, 7; mails 0"; None if the format is not known. ``is_missing``: it is waited for.

    ``client``: None if it is not known.
    """

    member: GroupMember
    assigned: str | None
    partitions: int | None
    is_missing: bool
    client: MemberClient | None


def find_clients(explained: GroupExplanation, members: Sequence[GroupMember], noted: MemberClients) -> Clients:
    """``noted``: by the node that is asked. The explanation of a group of another node has its first 100 members."""
    told = explained.now.members if explained.now is not None else ()
    found = {name.member_id: MemberClient(name.principal, name.software) for name in told if name.principal}
    for member in members:
        client = noted.find(explained.group_id, member.member_id)
        if client is not None:
            found[member.member_id] = client
    return found


def member_rows(members: Sequence[GroupMember], now: GroupNow | None, clients: Clients) -> list[MemberRow]:
    """Sorted by client, so that members of one program stand together."""
    missing = {name.member_id for name in now.missing} if now is not None else set()
    rows = [_member_row(member, member.member_id in missing, clients.get(member.member_id)) for member in members]
    return sorted(rows, key=lambda row: (row.member.client_id, row.member.instance_id or "", row.member.member_id))


def _member_row(member: GroupMember, is_missing: bool, client: MemberClient | None) -> MemberRow:
    if member.assigned is None:
        return MemberRow(member, None, None, is_missing, client)
    topics: dict[str, list[int]] = {}
    for topic, partition in member.assigned:
        topics.setdefault(topic, []).append(partition)
    assigned = "; ".join(f"{topic} {ranges(numbers)}" for topic, numbers in sorted(topics.items()))
    return MemberRow(member, assigned, len(member.assigned), is_missing, client)
