"""Notes for the flight recorder who the client of a member is, when it joins."""

from __future__ import annotations

from ...actors.recorder.clients import MemberClient
from .call import Call


def note_client(call: Call, group_id: str, member_id: str) -> None:
    client = MemberClient(str(call.principal), call.connection.software)
    call.services.groups.event_log.recorder.clients.note(group_id, member_id, client)
