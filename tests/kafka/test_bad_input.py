"""Invalid requests: each closes its own connection with one log line, and has no other effect.

A connection that sends garbage is closed, as in Kafka. The server, other connections and groups are not affected, no
memory is allocated for announced sizes, and no traceback is logged: a traceback means a bug of the server.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from harness import (
    Client,
    Member,
    MemoryClient,
    NodeHarness,
    async_test,
    commit_values,
    frame,
    framed,
    heartbeat_values,
    join_and_sync,
    join_values,
    random_entity,
    running_node,
    sync_values,
    versions,
)
from peers.wire import Hangup, encode, message_type
from request_helpers import array_requests, encode_body, encode_request

from callboard.runtime.kafka.api import APIS, Api, describe_groups
from callboard.runtime.kafka.codec.schemas import schema
from callboard.runtime.kafka.codec.validation import STRING_BYTES_MAX

LOG_CHARS_MAX = 600
CUTS_MAX = 40
"""At so many random bytes a long body is cut; a short one at each."""

MEMORY_KIB_MAX = 64 * 1024  # allowed growth of the peak memory of the process

HEARTBEAT_V0 = b"\0\x0c\0\0\0\0\0\x07\0\x04wire"
each_api = pytest.mark.parametrize("api", APIS, ids=[api.name for api in APIS])


class Watch:
    """A group with an active member, and a snapshot of everything that could change in it."""

    def __init__(self, harness: NodeHarness, client: Client, member: Member, caplog: pytest.LogCaptureFixture) -> None:
        self._harness = harness
        self._client = client
        self._caplog = caplog
        self.member = member
        self._seen: Any = None

    @classmethod
    async def over(cls, harness: NodeHarness, caplog: pytest.LogCaptureFixture) -> Watch:
        client = await harness.connect()
        watch = cls(harness, client, await join_and_sync(client, "watched"), caplog)
        await client.ask("offset_commit", 9, **commit_values("watched", watch.member))
        watch._seen = await watch._look()
        return watch

    async def _look(self) -> Any:
        described = await self._client.ask("describe_groups", groups=["watched"], include_authorized_operations=False)
        group = {"group_id": "watched", "member_id": None, "member_epoch": -1, "topics": None}
        return described, await self._client.ask("offset_fetch", 9, groups=[group], require_stable=True)

    async def assert_nothing_happened(self, lines: int | None = None) -> None:
        """Check that the server answers, the group is unchanged, and the log has ``lines`` lines without errors."""
        assert (await self._client.ask("heartbeat", **heartbeat_values("watched", self.member)))["error_code"] == "NONE"
        assert await self._look() == self._seen
        self.assert_log(lines)

    def assert_log(self, lines: int | None = None) -> None:
        # The clock logs a warning if the event loop was blocked.
        records = [record for record in self._caplog.records if "stood still" not in record.getMessage()]
        assert [record for record in records if record.exc_info or record.levelno > logging.WARNING] == []
        for record in records:
            message = record.getMessage()
            assert "\n" not in message
            assert len(message) < LOG_CHARS_MAX, message
        assert lines is None or len(records) == lines, self._caplog.text


@pytest.fixture
def bounded_memory() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY_KIB_MAX


# Single frames --------------------------------------------------------------------------------------------------------

REQUEST_BYTES_MAX = 104_857_600
NO_FRAMES = {
    "no size at all": bytes(4),
    "too large": b"\x7f\xff\xff\xff" + HEARTBEAT_V0,
    "just too large": (104_857_601).to_bytes(4, "big"),
    "negative": b"\xff\xff\xff\xff" + HEARTBEAT_V0,
    "most negative": b"\x80\0\0\0" + HEARTBEAT_V0,
    "unknown API": framed(b"\0\x63\0\0\0\0\0\x07\0\x04wire"),
    "negative API": framed(b"\xff\xff\0\0\0\0\0\x07\0\x04wire"),
    "version above": framed(b"\0\x0c\0\x05\0\0\0\x07\0\x04wire\0\x02g\0\0\0\x01\x02m\0\0"),
    "version below": framed(b"\0\x0c\xff\xff\0\0\0\x07\0\x04wire\0\x02g\0\0\0\x01\x02m\0\0"),
    "version too old": framed(b"\0\x08\0\x01\0\0\0\x07\0\x04wire" + bytes(30)),
    "client id cut off": framed(b"\0\x0c\0\0\0\0\0\x07\x7f\xffwire"),
    "client id not UTF-8": framed(b"\0\x0c\0\0\0\0\0\x07\0\x04\xff\xfe\xfd\xfc\0\x01g\0\0\0\x01\0\x01m"),
    "header only": framed(HEARTBEAT_V0),
    "string null": framed(HEARTBEAT_V0 + b"\xff\xff\0\0\0\x01\0\x01m"),
    "string of negative length": framed(HEARTBEAT_V0 + b"\xff\xfe\0\0\0\x01\0\x01m"),
    "string not UTF-8": framed(HEARTBEAT_V0 + b"\0\x01\xff\0\0\0\x01\0\x01m"),
    "string cut off": framed(HEARTBEAT_V0 + b"\0\x01g\0\0\0\x01\x00\x02m"),
    "varint too long": framed(b"\0\x0c\0\x04\0\0\0\x07\0\x04wire\0" + b"\x82\x80\x80\x80\x80\x80\0g"),
    "header tags cut off": framed(b"\0\x0c\0\x04\0\0\0\x07\0\x04wire\x05"),
    "too many header tags": framed(b"\0\x0c\0\x04\0\0\0\x07\0\x04wire\xff\xff\xff\xff\x0f\x01\x01a"),
    "tag of 2 GB": framed(b"\0\x0c\0\x04\0\0\0\x07\0\x04wire\0\x02g\0\0\0\x01\x02m\0\x01\x09\xff\xff\xff\xff\x07"),
}


@async_test
async def test_invalid_request_closes_connection(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Over TCP, alone and with a valid request directly after it, which is not handled."""
    too_short = {f"a frame of {size} bytes": framed(bytes(size)) for size in range(1, 10)}
    async with running_node(tmp_path) as harness:
        watch, lines, is_named = await Watch.over(harness, caplog), 0, False
        not_served = ("unknown API", "negative API", "version above", "version below", "version too old")
        leaving = {"member_id": watch.member.member_id, "group_instance_id": None}
        leave = frame("leave_group", 4, group_id="watched", members=[leaving])
        for kind, data in {**NO_FRAMES, **too_short}.items():
            for next_request in (b"", leave):
                client = await harness.connect()
                client.write(data + next_request)
                assert await client.responses_until_disconnect() == [], kind
                is_too_large = int.from_bytes(data[:4], "big", signed=True) > REQUEST_BYTES_MAX
                is_named_before = kind in not_served and next_request
                lines += not ((is_too_large and is_named) or is_named_before)
                is_named |= is_too_large  # a client over a limit is named once
            await watch.assert_nothing_happened(lines)


@async_test
async def test_incomplete_request_is_dropped_at_disconnect(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Truncated at every byte, then the client disconnects: nothing is logged."""
    async with running_node(tmp_path) as harness:
        watch = await Watch.over(harness, caplog)
        request = frame("sync_group", 5, **sync_values("watched", watch.member))
        for end in range(len(request)):
            client = MemoryClient(harness.node)
            client.feed(request[:end])
            client.close()
        tcp = await harness.connect()
        tcp.write(request[:-1])
        await tcp.close()
        await watch.assert_nothing_happened(lines=0)


@async_test
async def test_trailing_bytes_of_frame_are_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As in Kafka, bytes after the request in its frame are skipped."""
    async with running_node(tmp_path) as harness:
        watch = await Watch.over(harness, caplog)
        client = await harness.connect()
        for version in range(5):
            payload = encode("heartbeat", version, heartbeat_values("watched", watch.member))
            client.write(framed(payload + b"\xff" * 50))
            assert (await client.receive("heartbeat", version))["error_code"] == "NONE"
        await watch.assert_nothing_happened(lines=0)


# Every API and version ------------------------------------------------------------------------------------------------


@each_api
@async_test
async def test_truncated_request_in_complete_frame_closes_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, api: Api
) -> None:
    """The decoder must not read bytes of the next frame."""
    async with running_node(tmp_path) as harness:
        watch, closed, random = await Watch.over(harness, caplog), 0, Random(api.name)
        next_frame = frame("heartbeat", 4, **heartbeat_values("watched", watch.member))
        for version in range(api.min_version, api.max_version + 1):
            types = message_type(api.name, version, "request")
            body = max((encode_body(random_entity(types, random)) for _ in range(5)), key=len)
            for size in sorted(random.sample(range(len(body)), min(len(body), CUTS_MAX))):
                truncated = encode_request(api.key, version, body[:size], types.__flexible__)
                for data in (truncated, truncated + next_frame):
                    assert await is_refused(harness, data), (version, size)
                    closed += 1
            await watch.assert_nothing_happened(lines=closed)


async def is_refused(harness: NodeHarness, data: bytes) -> bool:
    """Return whether a new connection is closed after it sent the data."""
    client = MemoryClient(harness.node)
    client.feed(data)
    await asyncio.sleep(0)  # JoinGroup and SyncGroup are handled in the next iteration of the loop
    refused = client.is_closed
    client.close()
    return refused


HUGE = {
    False: ["7fffffff", "80000000", "fffffffe", "7ffffff0", "01000000"],
    True: ["ffffffff0f", "8080808008", "ffffffff07", "ffffff7f", "ffffffffff01", "80808001", "ffffffff7f"],
}


@pytest.mark.usefixtures("bounded_memory")
@each_api
@async_test
async def test_invalid_array_count_closes_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, api: Api
) -> None:
    """A naive decoder would allocate gigabytes, or return null for an array."""
    async with running_node(tmp_path) as harness:
        watch, closed = await Watch.over(harness, caplog), 0
        for version in range(api.min_version, api.max_version + 1):
            flexible = message_type(api.name, version, "request").__flexible__
            for name, is_nullable, body, position in array_requests(api, version):
                counts = [bytes.fromhex(text) for text in HUGE[flexible]]
                if not is_nullable:
                    counts.append(b"\0" if flexible else b"\xff\xff\xff\xff")
                for count in counts:
                    rest = body[position + (1 if flexible else 4) :]
                    data = encode_request(api.key, version, body[:position] + count + rest, flexible)
                    assert await is_refused(harness, data), (version, name, count)
                    closed += 1
            await watch.assert_nothing_happened(lines=closed)


# Strings --------------------------------------------------------------------------------------------------------------


@async_test
async def test_string_longer_than_32767_bytes_closes_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Flexible versions can encode longer strings, but Kafka's limit stays: a record could not hold them."""
    async with running_node(tmp_path) as harness:
        watch = await Watch.over(harness, caplog)
        longest, too_long = "x" * STRING_BYTES_MAX, "é" * (STRING_BYTES_MAX // 2 + 1)
        client = await harness.connect()
        assert (await client.ask("join_group", 9, **join_values(longest)))["error_code"] == "MEMBER_ID_REQUIRED"
        topics = [{"name": longest, "partitions": []}]
        assert (await client.ask("offset_commit", 9, **commit_values("g", topics=topics)))["topics"] == topics
        requests: list[tuple[str, int, dict[str, Any]]] = [
            ("join_group", 9, join_values(too_long)),
            ("join_group", 9, join_values("g", protocol_type=too_long)),
            ("join_group", 6, join_values("g", group_instance_id=too_long)),
            ("join_group", 9, join_values("g", protocols=[{"name": too_long, "metadata": b""}])),
            ("offset_commit", 9, commit_values(too_long)),
            ("offset_commit", 9, commit_values("g", topics=[{"name": too_long, "partitions": []}])),
            ("delete_groups", 2, {"groups_names": ["g", too_long]}),
            ("find_coordinator", 6, {"key_type": 0, "coordinator_keys": [too_long]}),
        ]
        for name, version, values in requests:
            with pytest.raises(Hangup):
                await (await harness.connect()).ask(name, version, **values)
        await watch.assert_nothing_happened(lines=len(requests))


@async_test
async def test_response_that_cannot_be_encoded_becomes_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client gets an error and keeps its connection; the group works for other clients."""
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        await join_and_sync(client, "g")
        for version in versions("describe_groups"):
            caplog.clear()
            with monkeypatch.context() as patch:
                patch.setattr(describe_groups, "encode_rows", refuse_to_encode)
                described = await client.ask(
                    "describe_groups", version, groups=["g"], include_authorized_operations=False
                )
            assert [group["error_code"] for group in described["groups"]] == ["UNKNOWN_SERVER_ERROR"]
            assert [record.message for record in caplog.records] == [
                f"describe_groups version {version} cannot be answered"
            ]
        described = await client.ask("describe_groups", 5, groups=["g"], include_authorized_operations=False)
        assert len(described["groups"][0]["members"]) == 1


def refuse_to_encode(*_rows: Any, **_options: Any) -> Any:
    raise ValueError("these rows cannot be encoded")


# Reading --------------------------------------------------------------------------------------------------------------


@each_api
def test_validation_and_kio_agree_on_end_of_request(api: Api) -> None:
    """The validation works with bytes before and after the request, and does not change what kio decodes."""
    for version in range(api.min_version, api.max_version + 1):
        types = message_type(api.name, version, "request")
        for seed in range(20):
            entity = random_entity(types, Random(seed))
            body = encode_body(entity)
            assert schema(api.name, version).read(b"??" + body, 2) == (entity, len(body))
            assert schema(api.name, version).read(b"??" + body + b"\xff" * 9, 2) == (entity, len(body))
