"""Frames that are fed to connections in memory, while groups that no frame may touch are watched."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

from harness import Client, Member, MemoryClient, NodeHarness, commit_values, heartbeat_values, join_and_sync

CONNECTIONS_MAX = 50  # with pending requests; then the oldest disconnects
WATCHED = ("watched-1", "watched-2", "watched-3")


async def reference_groups(client: Client) -> list[Member]:
    """Create three Stable groups with one member and one offset."""
    members = []
    for group_id in WATCHED:
        member = await join_and_sync(client, group_id, session_timeout=1_800_000)
        await client.ask("offset_commit", 9, **commit_values(group_id, member))
        members.append(member)
    return members


async def describe_reference_groups(client: Client) -> Any:
    described = await client.ask("describe_groups", groups=list(WATCHED), include_authorized_operations=False)
    groups = [{"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": None} for group_id in WATCHED]
    return described, await client.ask("offset_fetch", 9, groups=groups, require_stable=True)


class Fuzzer:
    """Feeds frames to fake connections that can handle a request at once."""

    def __init__(self, harness: NodeHarness) -> None:
        self.closed: Counter[str] = Counter()
        self.fed: Counter[str] = Counter()
        self.answers = 0
        self._harness = harness
        self._waiting: deque[MemoryClient] = deque()
        self._idle: list[MemoryClient] = []

    def feed(self, way: str, data: bytes) -> None:
        client = self._idle.pop() if self._idle else MemoryClient(self._harness.node)
        client.feed(data)
        self.fed[way] += 1
        self.closed[way] += client.is_closed
        self._waiting.append(client)

    def sort(self) -> None:
        """After an iteration of the loop: answered connections are idle; those with an incomplete frame are dropped."""
        for _ in range(len(self._waiting)):
            client = self._waiting.popleft()
            if client.transport.written and not (client.is_closed or client.connection.requests.calls):
                self.answers += 1
                client.transport.written.clear()
                self._idle.append(client)
            elif client.is_closed or client.connection.splitter.is_in_frame:
                client.close()
            else:
                self._waiting.append(client)
        while len(self._waiting) > CONNECTIONS_MAX:
            self._waiting.popleft().close()


async def beat(client: Client, group_id: str, member: Member) -> None:
    """Check that requests of other clients are answered."""
    assert (await client.ask("heartbeat", **heartbeat_values(group_id, member)))["error_code"] == "NONE"
