"""How clients above a quota are throttled (KIP-219, KIP-599, KIP-612)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from sys import getrefcount
from types import SimpleNamespace
from typing import Any

import pytest
from authorizers import DenyingAuthorizer, Rule
from client_quota_helpers import CLIENT_ID, IP, USER, alter, alteration
from harness import (
    Client,
    NodeHarness,
    async_test,
    commit_values,
    committed_partition,
    frame,
    random_entity,
    running_node,
)
from peers.wire import Plain, decode, message_type
from sasl_helpers import log_in, running_sasl_node

from callboard.actors.errors import ErrorCode
from callboard.runtime.kafka.api import APIS, Api
from callboard.runtime.kafka.call import with_header
from callboard.runtime.kafka.codec.codes import kafka_error
from callboard.runtime.kafka.codec.schemas import schema
from callboard.runtime.kafka.connections import connection_pool
from callboard.runtime.kafka.connections.holds import Hold
from callboard.runtime.kafka.error_response import encode_error_response
from callboard.runtime.kafka.quotas.client_quotas import Counters
from callboard.runtime.kafka.quotas.throttling import CHECK_MS, with_throttle_time
from callboard.runtime.node.services import NodeServices
from callboard.runtime.security.quota_windows import SlidingRate
from callboard.runtime.security.resources import Operation, ResourceType


class Timers:
    """Keeps the timers of a node instead of waiting for them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waiting: list[tuple[int, Any]] = []
        monkeypatch.setattr(NodeServices, "later", lambda _services, delay_ms, call: self._add(delay_ms, call))

    def _add(self, delay_ms: int, call: Any) -> Any:
        self.waiting.append((delay_ms, call))
        return SimpleNamespace(cancel=lambda: None)

    def fire(self, delay_ms: int) -> None:
        """Those that wait for so long."""
        due = [call for waits_ms, call in self.waiting if waits_ms == delay_ms]
        self.waiting = [timer for timer in self.waiting if timer[0] != delay_ms]
        assert due
        for call in due:
            call()


async def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def is_muted(harness: NodeHarness) -> bool:
    return any(Hold.THROTTLED in connection.holds.reasons for connection in harness.node.connections)


@async_test
async def test_client_above_its_share_of_time_gets_its_answer_and_is_muted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_node(tmp_path) as harness:
        timers, client = Timers(monkeypatch), await harness.connect()
        assert await alter(client, alteration({CLIENT_ID: "wire"}, request_percentage=100)) == [("NONE", None)]
        quotas = harness.node.services.quotas
        client.write(frame("offset_commit", 8, **commit_values("g")))
        assert (await client.receive("offset_commit", 8))["throttle_time"] == 0
        quotas.add_time("ANONYMOUS", "wire", 10_500_000_000)
        client.write(frame("list_groups", 3) + frame("list_groups", 3))
        throttle_ms = (await client.receive("list_groups", 3))["throttle_time"]
        assert 0 < throttle_ms <= 500
        assert is_muted(harness)
        assert quotas.throttled["request_percentage"] == 1
        second = asyncio.ensure_future(client.receive("list_groups", 3))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not second.done()
        timers.fire(throttle_ms)
        await second
        other = await harness.connect()
        assert await alter(other, alteration({CLIENT_ID: "wire"}, request_percentage=None)) == [("NONE", None)]
        assert harness.node.connections.meter is None
        assert all(connection.meter is None for connection in harness.node.connections)


@async_test
async def test_time_is_measured_for_the_client_that_has_sent_the_request(tmp_path: Path) -> None:
    """Also for heartbeats that are answered at once, and for large requests, which are handled in slices."""
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        quotas, spent = harness.node.services.quotas, dict[str, int]()

        def add(client_id: str, spent_ns: int) -> None:
            spent[client_id] = spent.get(client_id, 0) + spent_ns

        await alter(client, alteration({CLIENT_ID: "other"}, request_percentage=1))
        quotas.add_time = lambda user, client_id, spent_ns: add(client_id, spent_ns)  # type: ignore[method-assign]
        idle = await harness.connect()
        await client.ask("heartbeat", group_id="g", generation_id=1, member_id="m", group_instance_id=None)
        assert list(spent) == ["wire"]
        before = spent["wire"]
        await client.ask("delete_groups", groups_names=[f"group-{number}" for number in range(5000)])
        assert spent["wire"] > before + 1_000_000
        await idle.close()


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_throttle_time_is_in_the_responses_of_all_apis(api: Api) -> None:
    """But in those of ApiVersions, where it has no fixed place."""
    if api.name == "api_versions":
        return
    for version in range(api.min_version, api.max_version + 1):
        route = schema(api.name, version)
        request = random_entity(message_type(api.name, version, "request"), Random(5))
        body = encode_error_response(route, request, kafka_error(ErrorCode.UNKNOWN_SERVER_ERROR))
        if body is None or not hasattr(message_type(api.name, version, "response"), "throttle_time"):
            continue
        frame_bytes = bytes(with_header(route, 7, body))
        throttled = bytes(with_throttle_time(route, frame_bytes, 1234))
        expected = {**decode(api.name, version, frame_bytes[4:]), "throttle_time": 1234}
        assert decode(api.name, version, throttled[4:]) == expected, version


def new_topics(*names: str, partitions: int) -> dict[str, Plain]:
    fields: dict[str, Plain] = {"replication_factor": 1, "assignments": [], "configs": []}
    topics: list[Plain] = [{"name": name, "num_partitions": partitions, **fields} for name in names]
    return {"topics": topics, "timeout": 1000, "validate_only": False}


async def create(client: Client, version: int, *names: str, partitions: int = 15) -> tuple[list[str], int]:
    answer: Any = await client.ask("create_topics", version, **new_topics(*names, partitions=partitions))
    return [topic["error_code"] for topic in answer["topics"]], answer["throttle_time"]


def milliseconds_since(begun_s: float) -> float:
    """At least 1, since a throttle time is in whole milliseconds."""
    return (time.monotonic() - begun_s) * 1000 + 1


@async_test
async def test_creation_of_partitions_above_the_quota_is_refused_for_new_clients_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_node(tmp_path) as harness:
        timers, client = Timers(monkeypatch), await harness.connect()
        await alter(client, alteration({USER: None}, controller_mutation_rate=1))
        begun_s = time.monotonic()
        codes, throttle_ms = await create(client, 7, "a", "b")
        assert codes == ["NONE", "THROTTLING_QUOTA_EXCEEDED"]
        assert 0 <= 4_000 - throttle_ms <= milliseconds_since(begun_s)
        assert is_muted(harness)
        timers.fire(throttle_ms)
        codes, throttle_ms = await create(client, 5, "c")
        assert codes == ["NONE"]
        assert 0 <= 19_000 - throttle_ms <= milliseconds_since(begun_s)
        timers.fire(throttle_ms)
        grown: Plain = [{"name": "a", "count": 16, "assignments": None}]
        answer: Any = await client.ask("create_partitions", topics=grown, timeout=1000, validate_only=False)
        assert answer["results"][0]["error_code"] == "THROTTLING_QUOTA_EXCEEDED"
        timers.fire(answer["throttle_time"])
        assert harness.node.services.quotas.throttled["controller_mutation_rate"] == 3
        answer = await client.ask("delete_topics", topics=[{"name": "a", "topic_id": None}], timeout=1000)
        assert answer["responses"][0]["error_code"] == "THROTTLING_QUOTA_EXCEEDED"


@async_test
async def test_address_with_too_many_new_connections_is_throttled_and_then_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_pool, "THROTTLED_CONNECTIONS_MAX", 1)
    async with running_node(tmp_path) as harness:
        timers, client = Timers(monkeypatch), await harness.connect()
        await alter(client, alteration({IP: "127.0.0.1"}, connection_creation_rate=1))
        for _ in range(10):
            await (await harness.connect()).ask("api_versions", 0)
        late = await harness.connect()
        late.write(frame("api_versions", 0))
        await wait_until(lambda: is_muted(harness))
        assert await (await harness.connect()).responses_until_disconnect() == []  # too many are throttled
        assert harness.node.services.quotas.throttled["connection_creation_rate"] == 2
        [delay_ms] = [delay_ms for delay_ms, _ in timers.waiting if delay_ms <= 1000][:1]
        timers.fire(delay_ms)
        assert await late.responses_until_disconnect() == []
        await client.ask("api_versions", 0)


@async_test
async def test_group_that_commits_too_often_is_throttled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_node(tmp_path, offset_commit_rate_per_group=0.2) as harness:
        timers, client = Timers(monkeypatch), await harness.connect()
        other = await harness.connect()
        times = []
        for _ in range(3):
            answer: Any = await client.ask("offset_commit", 8, **commit_values("g"))
            assert answer["topics"][0]["partitions"][0]["error_code"] == "NONE"
            times.append(answer["throttle_time"])
        assert times[:2] == [0, 0]
        assert 0 < times[2] <= 1000
        assert is_muted(harness)
        assert (await other.ask("offset_commit", 8, **commit_values("other")))["throttle_time"] == 0
        topics: Plain = [{"name": "t", "partitions": [committed_partition(number % 3) for number in range(200)]}]
        large: Any = await other.ask("offset_commit", 8, **{**commit_values("g"), "topics": topics})
        assert 0 < large["throttle_time"] <= 1000
        timers.fire(times[2])
        assert harness.node.services.quotas.throttled["offset_commit_rate_per_group"] == 2


@async_test
async def test_topics_above_the_quota_are_not_created_by_metadata_requests(tmp_path: Path) -> None:
    async with running_node(tmp_path, num_partitions=15) as harness:
        client = await harness.connect()
        await alter(client, alteration({USER: None}, controller_mutation_rate=1))
        topics: Plain = [{"name": name} for name in ("not a name", "a", "b")]
        for _ in range(2):
            answer: Any = await client.ask("metadata", 4, topics=topics, allow_auto_topic_creation=True)
            codes = {topic["name"]: topic["error_code"] for topic in answer["topics"]}
            invalid = {"not a name": "INVALID_TOPIC_EXCEPTION"}
            assert codes == {**invalid, "a": "NONE", "b": "UNKNOWN_TOPIC_OR_PARTITION"}


@async_test
async def test_client_that_is_gone_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its queued requests, and its connection, would be kept until its quota allows them."""
    async with running_node(tmp_path) as harness:
        administrator, client = await harness.connect(), await harness.connect()
        await alter(administrator, alteration({USER: None}, controller_mutation_rate=1))
        timers = Timers(monkeypatch)
        client.write(frame("create_topics", 5, **new_topics("a", partitions=111)) + frame("list_groups", 3))
        throttle_ms = (await client.receive("create_topics", 5))["throttle_time"]
        assert 99_000 <= throttle_ms <= 100_000
        [muted] = [each for each in harness.node.connections if Hold.THROTTLED in each.holds.reasons]
        muted.transport.abort()
        await wait_until(lambda: not muted.is_open)
        assert muted in harness.node.connections
        muted.mute(70_000)
        assert [delay_ms for delay_ms, _ in timers.waiting if delay_ms in (CHECK_MS, 70_000)] == [CHECK_MS]
        timers.fire(CHECK_MS)
        await wait_until(lambda: muted not in harness.node.connections)


@async_test
async def test_client_that_waits_for_long_waits_all_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        await alter(client, alteration({USER: None}, controller_mutation_rate=1))
        timers = Timers(monkeypatch)
        _, throttle_ms = await create(client, 5, "a", partitions=81)
        for _ in range(throttle_ms // CHECK_MS):
            timers.fire(CHECK_MS)
            assert is_muted(harness)
        timers.fire(throttle_ms % CHECK_MS)
        assert not is_muted(harness)


@async_test
async def test_connection_that_was_closed_for_another_limit_is_not_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resets: list[Any] = []
    monkeypatch.setattr(connection_pool, "reset", resets.append)
    async with running_node(tmp_path, max_connections_per_ip=11) as harness:
        timers, client = Timers(monkeypatch), await harness.connect()
        await alter(client, alteration({IP: "127.0.0.1"}, connection_creation_rate=1))
        for _ in range(10):
            await (await harness.connect()).ask("api_versions", 0)
        assert await (await harness.connect()).responses_until_disconnect() == []
        for delay_ms, callback in list(timers.waiting):
            if delay_ms <= 1000:
                callback()
        assert harness.node.connections._throttled == 0
        assert resets == []


@async_test
async def test_time_of_clients_that_are_not_authenticated_counts_for_nobody(tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path) as harness:
        client = await harness.connect()
        await log_in(client)
        await alter(client, alteration({USER: None}, request_percentage=100))
        counted: list[str] = []
        harness.node.services.quotas.add_time = (  # type: ignore[method-assign]
            lambda user, client_id, spent_ns: counted.append(user)
        )
        other = await harness.connect()
        await other.ask("api_versions", 3, client_software_name="a", client_software_version="1")
        assert counted == []
        await log_in(other)
        await other.ask("list_groups", 3)
        assert set(counted) == {"alice"}


def test_counters_do_not_keep_names() -> None:
    counters, name = Counters(SlidingRate), "x" * 10
    before = getrefcount(name)
    counter = counters.of((None, name))
    assert getrefcount(name) == before
    assert counters.of((None, name)) is counter
    assert counters.of((name, None)) is not counter


@async_test
async def test_commits_that_are_denied_do_not_count_for_their_group(tmp_path: Path) -> None:
    authorizer = DenyingAuthorizer(Rule(Operation.READ, ResourceType.GROUP, "g"))
    async with running_node(tmp_path, None, authorizer, offset_commit_rate_per_group=0.2) as harness:
        client = await harness.connect()
        for _ in range(3):
            answer: Any = await client.ask("offset_commit", 8, **commit_values("g"))
            assert answer["topics"][0]["partitions"][0]["error_code"] == "GROUP_AUTHORIZATION_FAILED"
            assert answer["throttle_time"] == 0
        authorizer.denied.clear()
        times = [(await client.ask("offset_commit", 8, **commit_values("g")))["throttle_time"] for _ in range(3)]
        assert times[:2] == [0, 0]
        assert times[2] > 0
