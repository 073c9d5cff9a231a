"""Streams: a page that is sent again whenever it has changed, as server-sent events.

``EventSource`` of a browser asks the address of the page itself, with ``Accept: text/event-stream``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ..backend import Unavailable

MEDIA_TYPE: Final = "text/event-stream"
STREAMS_MAX: Final = 16
"""Streams at a time. Of the connections that the server accepts, the rest is for requests."""

INTERVAL_S: Final = 1.0
SILENCE_MAX: Final = 15
"""After so many intervals without a change a comment is sent, which fails if the browser has gone."""

STREAM_S: Final = 30.0
"""So long a stream is open. Then the browser connects again: a service that stops need not wait for it longer."""

RETRY_MS: Final = 500
"""When a browser connects again."""

Fragment = Callable[[], Awaitable[str]]
"""Makes the content of a page. It raises what the page raises."""

Explain = Callable[[Exception], str]
"""What is wrong, in a sentence."""


class Streams:
    """Counts those that are open."""

    def __init__(self) -> None:
        self._open = 0

    def open(self, fragment: Fragment, explain: Explain) -> Response:
        """``explain``: its text is sent instead of a page that raises. Raises Unavailable if there are too many."""
        if self._open >= STREAMS_MAX:
            raise Unavailable(f"{STREAMS_MAX} pages are updated at a time, and no more")
        return StreamingResponse(self._events(fragment, explain), media_type=MEDIA_TYPE)

    async def _events(self, fragment: Fragment, explain: Explain) -> AsyncIterator[str]:
        self._open += 1
        try:
            yield f"retry: {RETRY_MS}\n\n"
            sent, silence = "", 0
            until_s = time.monotonic() + STREAM_S
            while time.monotonic() < until_s:
                event = await _event(fragment, explain)
                silence += 1
                if event != sent or silence >= SILENCE_MAX:
                    yield event if event != sent else ":\n\n"
                    sent, silence = event, 0
                await asyncio.sleep(INTERVAL_S)
        finally:
            self._open -= 1


async def _event(fragment: Fragment, explain: Explain) -> str:
    try:
        return _format("page", await fragment())
    except Exception as error:
        return _format("problem", explain(error))


def wants_stream(request: Request) -> bool:
    return MEDIA_TYPE in request.headers.get("accept", "")


def _format(name: str, text: str) -> str:
    lines = "".join(f"data: {line}\n" for line in text.splitlines())
    return f"event: {name}\n{lines}\n"
