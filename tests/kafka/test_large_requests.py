"""Large requests: they are decoded in slices, and refused if they have more items than their limit."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest
from harness import (
    NEWEST,
    Member,
    MemoryClient,
    NodeHarness,
    async_test,
    commit_values,
    committed_partition,
    frame,
    framed,
    join_values,
    running_node,
    sync_values,
)
from peers.wire import decode
from request_helpers import API_VERSIONS

from callboard.actors.errors import ErrorCode
from callboard.runtime.kafka import batch_gate
from callboard.runtime.kafka.api import APIS
from callboard.runtime.kafka.call import Call
from callboard.runtime.kafka.codec.codes import kafka_error
from callboard.runtime.kafka.codec.schemas import schema
from callboard.runtime.kafka.connections.framing import OverLimit
from callboard.runtime.kafka.connections.handling_job import LARGE_REQUEST_BYTES
from callboard.runtime.kafka.error_response import encode_whole_error
from callboard.runtime.settings.table import BY_NAME, Settings

ITEMS_MAX = BY_NAME["max_request_items"].minimum
MEMBERS = [{"member_id": f"m{number}", "group_instance_id": None, "reason": None} for number in range(10_001)]
API_VERSIONS_FRAME = frame("api_versions", 0)


def commit(size: int) -> bytes:
    """An OffsetCommit of ``size`` partitions, most of which do not exist. Topic and partitions are items."""
    topics = [{"name": "t", "partitions": [committed_partition(index) for index in range(size)]}]
    return frame("offset_commit", 9, **{**commit_values("g"), "topics": topics})


def leave(size: int) -> bytes:
    return frame("leave_group", 5, group_id="g", members=MEMBERS[:size])


@async_test
async def test_large_commit_is_decoded_in_slices_and_answered(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = MemoryClient(harness.node)
        client.feed(commit(9_000) + API_VERSIONS_FRAME)
        assert client.answers() == []
        assert len(harness.node.services.slices) == 1
        answer, versions = await client.answered(2)
        [topic] = decode("offset_commit", 9, answer)["topics"]
        errors = [partition["error_code"] for partition in topic["partitions"]]
        assert sorted(errors) == ["NONE"] * 3 + ["UNKNOWN_TOPIC_OR_PARTITION"] * 8_997
        assert decode("api_versions", 0, versions)["error_code"] == "NONE"


@async_test
async def test_request_at_the_limit_is_served_and_above_it_is_answered_invalid_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_node(tmp_path, max_request_items=ITEMS_MAX) as harness:
        client = MemoryClient(harness.node)
        client.feed(leave(10_000))
        client.feed(leave(10_001) + leave(10_001))
        served, refused, _ = await client.answered(3)
        assert decode("leave_group", 5, served)["error_code"] == "NONE"
        assert decode("leave_group", 5, refused) == {
            "throttle_time": 0,
            "error_code": "INVALID_REQUEST",
            "members": [],
        }
        assert harness.node.services.over_limit.counts["max_request_items"] == 2
    [record] = [record for record in caplog.records if "is over" in record.getMessage()]
    assert "limit='max_request_items' reason='10001 items up to members" in record.getMessage()


@async_test
async def test_request_above_the_limit_without_whole_error_closes_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_node(tmp_path, max_request_items=ITEMS_MAX) as harness:
        client = MemoryClient(harness.node)
        client.feed(commit(10_000))  # and a topic
        while not client.is_closed:
            await asyncio.sleep(0)
        assert client.answers() == []
        assert harness.node.services.over_limit.counts["max_request_items"] == 1
        assert harness.node.groups.counters.commits == 0
    assert "request='offset_commit version 9' limit='max_request_items'" in caplog.text
    assert "reason='10001 items up to partitions, expected at most 10000; the connection is closed'" in caplog.text


@async_test
async def test_join_with_too_many_protocols_is_answered_invalid_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    protocols = [{"name": f"p{number}", "metadata": b""} for number in range(4)]
    async with running_node(tmp_path, group_max_member_protocols=3) as harness:
        client = await harness.connect()
        refused = await client.ask("join_group", 5, **join_values("g", protocols=protocols))
        admitted = await client.ask("join_group", 5, **join_values("g", protocols=protocols[:3]))
        assert (refused["error_code"], admitted["error_code"]) == ("INVALID_REQUEST", "MEMBER_ID_REQUIRED")
        assert harness.node.services.over_limit.counts["group_max_member_protocols"] == 1
    assert "limit='group_max_member_protocols' reason='4 protocols, expected at most 3'" in caplog.text


@async_test
async def test_refused_request_leaves_nothing_to_the_garbage_collector(tmp_path: Path) -> None:
    """Its bytes are freed at once: a client can send 100 MB per connection."""
    async with running_node(tmp_path, max_request_items=ITEMS_MAX) as harness:
        gc.collect()
        gc.disable()
        try:
            client = MemoryClient(harness.node)
            client.feed(frame("describe_groups", 5, groups=["g"] * 10_001, include_authorized_operations=False))
            while not client.is_closed:
                await asyncio.sleep(0)
            del client
            await asyncio.sleep(0.01)
            assert not [kept for kept in gc.get_objects() if isinstance(kept, OverLimit)]
        finally:
            gc.enable()


@async_test
async def test_large_request_that_is_cut_off_closes_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_node(tmp_path) as harness:
        client = MemoryClient(harness.node)
        client.feed(framed(commit(9_000)[4:-20]))
        while not client.is_closed:
            await asyncio.sleep(0)
        assert "offset_commit version 9 cannot be read: it is cut off" in caplog.text


@async_test
async def test_interceptor_gets_large_request_decoded(tmp_path: Path) -> None:
    seen: list[int] = []

    class Recorder:
        call = Call

        def handle(self, call: Call, handle: Any) -> None:
            seen.append(len(call.request.members))
            handle(call)

    async with running_node(tmp_path) as harness:
        harness.node.services.interceptor = Recorder()  # type: ignore[assignment]
        client = MemoryClient(harness.node)
        client.feed(leave(9_000))
        await client.answered(1)
        assert seen == [9_000]


@async_test
async def test_error_of_interceptor_closes_connection_of_large_request(tmp_path: Path) -> None:
    class Broken:
        call = Call

        def handle(self, call: Call, handle: Any) -> None:
            raise RuntimeError("broken")

        def refused(self, connection: object, reason: str) -> None:
            refused.append(reason)

    refused: list[str] = []
    async with running_node(tmp_path) as harness:
        harness.node.services.interceptor = Broken()  # type: ignore[assignment]
        client = MemoryClient(harness.node)
        client.feed(leave(9_000))
        while not client.is_closed:
            await asyncio.sleep(0)
        client.close()
        assert client.connection not in harness.node.connections
    assert refused == ["leave_group version 5 could not be handled"]


def test_every_api_has_a_limit_that_small_requests_cannot_reach() -> None:
    for api in APIS:
        minimum = BY_NAME[api.limit].minimum
        assert minimum is not None
        assert minimum > LARGE_REQUEST_BYTES, "each item has at least one byte"
        assert getattr(Settings(), api.limit) >= 10_000


@pytest.mark.parametrize(("api", "version"), API_VERSIONS, ids=[f"{api.name}-v{v}" for api, v in API_VERSIONS])
def test_whole_error_is_a_response_of_the_api(api: Any, version: int) -> None:
    body = encode_whole_error(schema(api.name, version), kafka_error(ErrorCode.INVALID_REQUEST))
    if body is None:
        assert not hasattr(schema(api.name, version).response_type, "error_code")
        return
    flexible = schema(api.name, version).flexible_header
    answer = decode(api.name, version, b"\0\0\0\x07" + (b"\0" if flexible else b"") + body)
    assert answer["error_code"] == "INVALID_REQUEST"


def test_whole_error_of_current_clients_reaches_them() -> None:
    """The newest versions that can carry an error of the whole request."""
    carrying = {
        api.name
        for api in APIS
        if encode_whole_error(schema(api.name, NEWEST[api.name]), kafka_error(ErrorCode.INVALID_REQUEST)) is not None
    }
    assert {"leave_group", "sync_group", "join_group", "fetch", "metadata"} <= carrying
    assert {"offset_commit", "offset_fetch", "describe_configs"}.isdisjoint(carrying)


@async_test
async def test_large_sync_that_waits_for_the_leader_does_not_keep_its_assignments(tmp_path: Path) -> None:
    """Each follower may wait with such a request for as long as a rebalance may take."""
    async with running_node(tmp_path, group_initial_rebalance_delay_ms=100) as harness:
        client, member = MemoryClient(harness.node), await _follower(harness)
        assignments = [{"member_id": f"m{number}", "assignment": b"x"} for number in range(3_000)]
        client.feed(frame("sync_group", 5, **sync_values("g", member, assignments)))
        while not client.connection.requests.calls or len(harness.node.services.slices):
            await asyncio.sleep(0)
        [call] = client.connection.requests.calls
        assert call.payload is None
        assert (call.request.assignments, call._message.assignments) == ((), ())


async def _follower(harness: NodeHarness) -> Member:
    """One of two members of a group; the other one is its leader and does not sync."""
    clients = [await harness.connect() for _ in range(2)]
    for client in clients:
        client.write(frame("join_group", 3, **join_values("g")))
    joined = [await client.receive("join_group", 3) for client in clients]
    [member_id] = [each["member_id"] for each in joined if each["member_id"] != each["leader"]]
    return Member(member_id, joined[0]["generation_id"])


@async_test
async def test_large_requests_that_wait_for_their_groups_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They are decoded much faster than groups are looked up."""
    monkeypatch.setattr(batch_gate, "ITEMS_WAITING_MAX", 7_000)
    names = [f"group-{number}" for number in range(3_000)]
    async with running_node(tmp_path) as harness:
        clients = [MemoryClient(harness.node) for _ in range(4)]
        for client in clients:
            client.feed(frame("delete_groups", 2, groups_names=names))
        while not all(client.is_closed or client.transport.written for client in clients):
            await asyncio.sleep(0)
        served = [client for client in clients if not client.is_closed]
        assert len(served) == 2
        for client in served:
            [answer] = await client.answered(1)
            assert len(decode("delete_groups", 2, answer)["results"]) == 3_000
        assert harness.node.services.slices.batches.items_waiting == 0
        served[0].feed(frame("delete_groups", 2, groups_names=names))
        assert len(await served[0].answered(2)) == 2
    assert sum("is refused: its 3000 items" in record.getMessage() for record in caplog.records) == 1
