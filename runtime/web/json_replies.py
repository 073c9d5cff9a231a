"""Answers in JSON. Names may have halves of surrogate pairs, which UTF-8 has not: all but ASCII is escaped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from starlette.responses import JSONResponse, Response

from .group_rows import PIECE, Pacer

MEDIA_TYPE: Final = "application/json"


class JsonResponse(JSONResponse):
    def render(self, content: Any) -> bytes:
        return encode(content)


def encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


async def items_response(items: Iterable[Mapping[str, Any]], **others: Any) -> Response:
    """A list under ``items``, which is made and encoded in a thread, with pauses, and other fields after it."""
    body = await asyncio.to_thread(lambda: b"".join(_encode_list(iter(items), others, Pacer())))
    return Response(body, media_type=MEDIA_TYPE)


def _encode_list(items: Iterator[Mapping[str, Any]], others: Mapping[str, Any], pacer: Pacer) -> Iterator[bytes]:
    yield b'{"items":['
    is_first = True
    while piece := list(islice(items, PIECE)):
        yield encode(piece)[1:-1] if is_first else b"," + encode(piece)[1:-1]
        is_first = False
        pacer.pause()
    yield b"]" + "".join(f",{json.dumps(name)}:{json.dumps(value)}" for name, value in others.items()).encode() + b"}"
