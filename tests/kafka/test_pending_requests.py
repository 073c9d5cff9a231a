"""The order of the requests of one connection: which may be handled, and when there are too many."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import pytest

from callboard.runtime.kafka.api import Route
from callboard.runtime.kafka.codec.schemas import Schema, schema
from callboard.runtime.kafka.connections.pending_requests import (
    MAX_BYTES_OPEN,
    MAX_BYTES_WAITING,
    MAX_CALLS_OPEN,
    MAX_FRAMES_WAITING,
    PendingRequests,
    QueuedRequest,
)

SCHEMA = schema("api_versions", 0)


class Answer(NamedTuple):
    """A call with its response; None if it is unanswered."""

    payload: bytes | None
    schema: Schema = SCHEMA


def route(*, overlaps: bool) -> Route:
    return Route(SCHEMA, lambda _call: None, overlaps)


def queued(correlation_id: int, *, overlaps: bool, size: int = 20) -> QueuedRequest:
    return QueuedRequest(route(overlaps=overlaps), correlation_id, bytes(size), 14)


def pending(*answers: bytes | None) -> PendingRequests:
    requests = PendingRequests()
    requests.calls.extend(cast("Any", Answer(answer)) for answer in answers)
    return requests


def taken(requests: PendingRequests) -> list[int]:
    """The correlation ids of the queued requests that may be handled now."""
    ids = []
    while (request := requests.take_queued()) is not None:
        ids.append(request.correlation_id)
        requests.calls.append(cast("Any", Answer(None)))
        requests.has_exclusive_call = not request.route.overlaps
    return ids


def test_responses_are_taken_up_to_first_unanswered_request() -> None:
    requests = pending(b"1", b"", None, b"4")
    assert requests.take_answered() == [b"1", b""]
    assert len(requests.calls) == 2
    assert requests.take_answered() == []


def test_exclusive_call_ends_with_its_response() -> None:
    requests = pending(None)
    requests.has_exclusive_call = True
    assert requests.take_answered() == []
    assert requests.has_exclusive_call
    requests.calls[0] = cast("Any", Answer(b"1"))
    assert requests.take_answered() == [b"1"]
    assert not requests.has_exclusive_call


def test_queued_request_waits_for_exclusive_call() -> None:
    requests = pending(None)
    requests.has_exclusive_call = True
    requests.add_queued(queued(1, overlaps=True))
    assert requests.take_queued() is None
    requests.remove_call(requests.calls[-1])
    assert taken(requests) == [1]


@pytest.mark.parametrize(
    ("overlaps", "expected"),
    [([True, True, True], [0, 1, 2]), ([True, False, True], [0]), ([False, True], [0]), ([False, False], [0])],
)
def test_queued_requests_are_taken_while_they_overlap(overlaps: list[bool], expected: list[int]) -> None:
    requests = PendingRequests()
    for number, each in enumerate(overlaps):
        requests.add_queued(queued(number, overlaps=each))
    assert taken(requests) == expected


@pytest.mark.parametrize(("limit", "size"), [(MAX_FRAMES_WAITING, 20), (4, MAX_BYTES_WAITING // 4)])
def test_queue_is_full_at_limit_and_has_room_below_half(limit: int, size: int) -> None:
    requests = PendingRequests()
    for number in range(limit):
        assert not requests.is_full
        requests.add_queued(queued(number, overlaps=True, size=size))
    assert requests.is_full
    while not requests.has_room:
        assert requests.take_queued() is not None
    assert len(requests.queue) == limit // 2 - 1
    requests.add_queued(queued(limit, overlaps=True, size=size))
    assert not requests.has_room
    requests.drop_queued()
    assert requests.has_room


def test_calls_are_full_at_limit_and_have_room_below_half() -> None:
    assert not pending(*[None] * (MAX_CALLS_OPEN - 1)).is_full
    assert pending(*[None] * MAX_CALLS_OPEN).is_full
    assert not pending(*[None] * (MAX_CALLS_OPEN // 2)).has_room
    assert pending(*[None] * (MAX_CALLS_OPEN // 2 - 1)).has_room


class LargeCall:
    """A call above ``SMALL_REQUEST_BYTES``."""

    payload: bytes | None = None
    schema = SCHEMA


def test_bytes_of_large_calls_are_full_at_limit_and_have_room_below_half() -> None:
    requests, calls = PendingRequests(), [LargeCall() for _ in range(4)]
    requests.calls.extend(cast("Any", calls))
    size = MAX_BYTES_OPEN // 4
    assert [requests.count_open(cast("Any", call), size) for call in calls] == [False, False, False, True]
    assert requests.is_full
    for call in calls[:3]:
        call.payload = b""
    requests.calls.appendleft(cast("Any", Answer(b"small")))
    assert not requests.has_room
    requests.take_answered()
    assert requests.has_room and requests.open_bytes == size
    requests.remove_call(cast("Any", calls[3]))
    assert requests.open_bytes == 0
