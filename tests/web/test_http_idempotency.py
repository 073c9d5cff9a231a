"""Idempotency-Key: requests at the same time, outcomes that are not known, and the bound of what is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pykka
import pytest
from harness import async_test
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from callboard.runtime.web import idempotency
from callboard.runtime.web.backend import Unavailable
from callboard.runtime.web.idempotency import IdempotentAnswers
from callboard.runtime.web.problems import KeyInUse


def request(key: str = "k", body: bytes = b"{}") -> Request:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    headers = [(b"idempotency-key", key.encode())]
    return Request({"type": "http", "method": "POST", "path": "/evict", "headers": headers}, receive)


def counting(calls: list[bytes], body: bytes = b"done") -> Callable[[Request], Awaitable[Response]]:
    async def handle(asked: Request) -> Response:
        calls.append(await asked.body())
        return Response(body)

    return handle


@async_test
async def test_request_whose_first_one_is_being_answered_is_refused() -> None:
    going_on = asyncio.Event()

    async def handle(asked: Request) -> Response:
        await going_on.wait()
        return Response(b"done")

    once = IdempotentAnswers().once(handle)
    first = asyncio.ensure_future(once(request()))
    await asyncio.sleep(0)
    with pytest.raises(KeyInUse, match="still being answered"):
        await once(request())
    going_on.set()
    assert (await first).body == (await once(request())).body == b"done"


@async_test
async def test_answer_that_is_being_made_is_not_dropped_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its request would be handled again, and its own answer would be an error although the change was made."""
    monkeypatch.setattr(idempotency, "ANSWERS_MAX", 2)
    going_on = asyncio.Event()

    async def wait(asked: Request) -> Response:
        await going_on.wait()
        return Response(b"waited")

    answers, calls = IdempotentAnswers(), list[bytes]()
    slow, fast = answers.once(wait), answers.once(counting(calls))
    first = asyncio.ensure_future(slow(request("slow")))
    await asyncio.sleep(0)
    for key in ("a", "b", "c", "c"):
        await fast(request(key))
    assert len(calls) == 3
    with pytest.raises(KeyInUse, match="still being answered"):
        await slow(request("slow"))
    going_on.set()
    assert (await first).body == (await slow(request("slow"))).body == b"waited"


@pytest.mark.parametrize(
    "error", [Unavailable("not answered for 2 s"), pykka.ActorDeadError(), asyncio.CancelledError()]
)
@async_test
async def test_outcome_that_is_not_known_is_not_tried_again(error: BaseException) -> None:
    async def handle(asked: Request) -> Response:
        raise error

    once = IdempotentAnswers().once(handle)
    with pytest.raises(type(error)):
        await once(request())
    with pytest.raises(KeyInUse, match="not known"):
        await once(request())


@async_test
async def test_answers_are_bounded_in_number_time_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "ANSWERS_MAX", 2)
    now_s = 0.0
    calls: list[bytes] = []
    answers = IdempotentAnswers(lambda: now_s)
    once = answers.once(counting(calls))
    for key in ("a", "b", "c", "c"):
        await once(request(key))
    assert len(calls) == 3
    await once(request("a"))  # it was dropped for c
    assert len(calls) == 4
    now_s += idempotency.KEPT_S
    await once(request("c"))
    assert len(calls) == 5
    long = answers.once(counting(calls, b"x" * (idempotency.ANSWER_BYTES_MAX + 1)))
    await long(request("long"))
    with pytest.raises(KeyInUse, match="too long"):
        await long(request("long"))
