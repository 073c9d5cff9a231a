"""Idempotency-Key: a POST that is sent again with its key gets the first answer again, and changes nothing."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import pykka
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from .backend import Unavailable
from .changing import read_bytes
from .guard import USER_KEY
from .json_replies import MEDIA_TYPE
from .problems import BadBody, KeyInUse, KeyReused

HEADER: Final = "idempotency-key"
KEY_CHARACTERS_MAX: Final = 255
ANSWERS_MAX: Final = 1000
ANSWER_BYTES_MAX: Final = 16_384
"""A longer answer is not kept: a repeated request is told that the change was made."""

KEPT_S: Final = 3600.0
UNKNOWN: Final = -1
TOO_LONG: Final = -2

Handler = Callable[[Request], Awaitable[Response]]


class FirstAnswer(NamedTuple):
    """An answer. ``asked``: the hash of the request.

    ``status``: of the answer; None while it is being made; UNKNOWN: whether a change was made; or TOO_LONG.
    """

    asked: bytes
    at_s: float
    status: int | None = None
    body: bytes = b""


class IdempotentAnswers:
    """The answers to the last requests with a key. ``clock_s``: monotonic."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._kept: dict[tuple[str, str], FirstAnswer] = {}  # by user and key, the oldest first

    def once(self, handler: Handler) -> Handler:
        """The handler, which is called once for each key. Raises KeyReused and KeyInUse."""

        async def handle(request: Request) -> Response:
            key = request.headers.get(HEADER)
            if key is None:
                return await handler(request)
            if not 1 <= len(key) <= KEY_CHARACTERS_MAX:
                raise BadBody(f"Idempotency-Key {key[:100]!r}: expected 1 to {KEY_CHARACTERS_MAX} characters")
            data = await read_bytes(request)
            asked = hashlib.sha256(f"{request.method} {request.scope['path']} ".encode() + data).digest()
            return await self._answer((request.scope.get(USER_KEY, ""), key), asked, handler, _again(request, data))

        return handle

    async def _answer(self, key: tuple[str, str], asked: bytes, handler: Handler, request: Request) -> Response:
        kept = self._kept.get(key)
        if kept is not None and self._clock_s() - kept.at_s < KEPT_S:
            return _repeated(kept, asked)
        self._kept.pop(key, None)
        self._make_room()
        self._kept[key] = FirstAnswer(asked, self._clock_s())
        try:
            response = await handler(request)
        except (Unavailable, pykka.ActorDeadError, asyncio.CancelledError):
            self._kept[key] = self._kept[key]._replace(status=UNKNOWN)
            raise
        except BaseException:
            del self._kept[key]  # nothing was changed
            raise
        body = bytes(response.body)
        is_kept = len(body) <= ANSWER_BYTES_MAX
        status = response.status_code if is_kept else TOO_LONG
        self._kept[key] = self._kept[key]._replace(status=status, body=body if is_kept else b"")
        return response

    def _make_room(self) -> None:
        """Drop the oldest answer. One that is being made stays: its request must not be handled a second time."""
        if len(self._kept) >= ANSWERS_MAX:
            oldest = next((key for key, answer in self._kept.items() if answer.status is not None), None)
            if oldest is not None:
                del self._kept[oldest]


def _repeated(kept: FirstAnswer, asked: bytes) -> Response:
    if kept.asked != asked:
        raise KeyReused("the Idempotency-Key was used for another request: expected a new key")
    if kept.status is None:
        raise KeyInUse("the first request with this Idempotency-Key is still being answered: ask again")
    if kept.status == UNKNOWN:
        raise KeyInUse(
            "it is not known whether the first request with this Idempotency-Key made its change: look, "
            "and use another key to repeat it"
        )
    if kept.status == TOO_LONG:
        raise KeyInUse("the first request with this Idempotency-Key made its change; its answer was too long to keep")
    return Response(kept.body, kept.status, media_type=MEDIA_TYPE)


def _again(request: Request, data: bytes) -> Request:
    """The request with its body, which was read."""

    async def receive() -> Message:
        return {"type": "http.request", "body": data, "more_body": False}

    return Request(request.scope, receive)
