"""A member that was removed by another client may not commit as a simple consumer until it has joined again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness import (
    Client,
    Member,
    NodeHarness,
    async_test,
    commit_values,
    heartbeat_values,
    join_and_sync,
    offsets,
    running_node,
)

ADMIN_REASON = "member was removed by an admin: maintenance"
RESET, OLD = 7, 200


async def commit(client: Client, offset: int, member: Member | None = None) -> str:
    answer: Any = await client.ask("offset_commit", 8, **commit_values("g", member, offset))
    return str(answer["topics"][0]["partitions"][0]["error_code"])


async def remove(client: Client, member: Member, reason: str | None = ADMIN_REASON) -> None:
    leaving = {"member_id": member.member_id, "group_instance_id": None, "reason": reason}
    answer: Any = await client.ask("leave_group", 5, group_id="g", members=[leaving])
    assert answer["members"][0]["error_code"] == "NONE"


async def removed_member(harness: NodeHarness) -> tuple[Client, Member, Client]:
    """The connection of a member that an administrator has removed, and the administrator's. The offset is reset."""
    client, admin = await harness.connect(), await harness.connect()
    member = await join_and_sync(client, "g")
    assert await commit(client, OLD, member) == "NONE"
    await remove(admin, member)
    assert await commit(admin, RESET) == "NONE"
    return client, member, admin


@async_test
async def test_commit_without_generation_is_refused_until_the_client_has_joined_again(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client, _, admin = await removed_member(harness)
        assert await commit(client, OLD) == "UNKNOWN_MEMBER_ID"
        assert await offsets(admin, "g") == {("t", 0): RESET}
        assert await commit(admin, RESET + 1) == "NONE"
        member = await join_and_sync(client, "g")
        assert await commit(client, RESET + 2, member) == "NONE"
        await remove(client, member, None)
        assert await commit(client, RESET + 3) == "NONE"


@async_test
async def test_it_is_refused_on_a_connection_that_learns_of_the_removal_by_a_heartbeat(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        _, member, _ = await removed_member(harness)
        client = await harness.connect()
        answer: Any = await client.ask("heartbeat", 4, **heartbeat_values("g", member))
        assert answer["error_code"] == "UNKNOWN_MEMBER_ID"
        assert await commit(client, OLD) == "UNKNOWN_MEMBER_ID"


@pytest.mark.parametrize("reason", [None, "the consumer is being closed"])
@async_test
async def test_client_that_has_left_by_itself_may_commit(tmp_path: Path, reason: str | None) -> None:
    """As in Kafka."""
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        member = await join_and_sync(client, "g")
        await remove(client, member, reason)
        assert await commit(client, OLD) == "NONE"
