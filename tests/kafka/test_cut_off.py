"""The log line for a truncated request contains the reason."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest
from harness import MemoryClient, async_test, commit_values, frame, random_entity, running_node
from peers.wire import FRAME_SIZE, message_type
from request_helpers import encode_body

from callboard.runtime.kafka.api import APIS, Api
from callboard.runtime.kafka.codec.schemas import schema
from callboard.runtime.kafka.codec.validation import describe_decode_error

CLEAR = re.compile(
    r"it is cut off"
    r"|the request ends \d+ bytes before the count of \w+"
    r"|\w+ has a count of \d+, but the request ends \d+ bytes later"
    r"|\w+ has a count of -?\d+, expected (0|-1) or more"
    r"|cut off inside (a varint at byte \d+|of tagged fields)"
    r"|a string of \d+ bytes, expected at most \d+"
)


def reason(api: Api, version: int, body: bytes) -> str | None:
    """Return why a body cannot be decoded; None if it can."""
    api_schema = schema(api.name, version)
    try:
        api_schema.read(body, 0)
    except (ValueError, IndexError, api_schema.decode_error) as error:
        return describe_decode_error(error)
    return None


@pytest.mark.parametrize("api", APIS, ids=[api.name for api in APIS])
def test_truncated_request_at_any_byte_gives_clear_error(api: Api) -> None:
    random = Random(api.name)
    for version in (api.min_version, api.max_version):
        body = encode_body(random_entity(message_type(api.name, version, "request"), random))
        reasons = [reason(api, version, body[:size]) for size in range(len(body))]
        assert [text for text in reasons if text is not None and not CLEAR.fullmatch(text)] == []


@pytest.mark.parametrize(
    ("cut", "expected"),
    [
        (1, "cannot be read: it is cut off"),
        (9, "cannot be read: the request ends 12 bytes before the count of topics"),
        (21, "cannot be read: topics has a count of 1, but the request ends 0 bytes later"),
    ],
)
@async_test
async def test_truncated_request_is_logged_with_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, cut: int, expected: str
) -> None:
    async with running_node(tmp_path) as harness:
        complete = frame("offset_commit", 2, **commit_values("g"))
        body = complete.index(b"\0\x01g")
        payload = complete[FRAME_SIZE.size : body + cut]
        client = MemoryClient(harness.node)
        client.feed(FRAME_SIZE.pack(len(payload)) + payload)
        assert client.is_closed
        [line] = [record.getMessage() for record in caplog.records]
        assert line.endswith(expected)


def test_negative_array_count_is_logged_with_field_name() -> None:
    commit = next(api for api in APIS if api.name == "offset_commit")
    body = b"\0\x01g\xff\xff\xff\xff\0\0" + b"\xff" * 8 + b"\xff\xff\xff\xfe"
    assert reason(commit, 2, body) == "topics has a count of -2, expected 0 or more"
