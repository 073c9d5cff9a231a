"""Helpers for tests of ``callboard.testing``: a coordinator with a client connection, and its timeline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from harness import Client, Member, heartbeat_values

from callboard.testing import Coordinator

SESSION_S = 30  # of ``enrol``


@asynccontextmanager
async def running(**settings: Any) -> AsyncIterator[tuple[Coordinator, Client]]:
    """A coordinator on this loop, and a connection to it."""
    async with Coordinator(**{"topics": {"t": 3}, **settings}) as coordinator:
        client = await connect(coordinator)
        try:
            yield coordinator, client
        finally:
            await client.close()


async def connect(coordinator: Coordinator) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", int(coordinator.bootstrap.rpartition(":")[2])))


async def heartbeat(client: Client, group: str, member: Member) -> str:
    return str((await client.ask("heartbeat", **heartbeat_values(group, member)))["error_code"])


def moments(coordinator: Coordinator, kind: str) -> list[tuple[float, str]]:
    """Return the events of this kind with their times in seconds."""
    return [(event.at_ms / 1000, event.what) for event in coordinator.timeline.events if event.kind == kind]
