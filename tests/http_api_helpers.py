"""A coordinator with an HTTP API, and requests to it, for tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

import httpx
from starlette.types import ASGIApp

import callboard.web
from callboard import Coordinator

DEADLINE_S = 60.0
TOPICS = {"jobs": 3, "mails": 1}
REASON = {"reason": "the jobs of last night are done again"}
JSON = {"content-type": "application/json"}
DESCRIPTION: dict[str, Any] = json.loads(files("callboard.runtime.web").joinpath("openapi.json").read_bytes())
OPERATIONS = {
    (method.upper(), path): operation
    for path, of_path in DESCRIPTION["paths"].items()
    for method, operation in of_path.items()
}


class Api:
    """Requests to an app. ``responses`` has all that came."""

    def __init__(self, app: ASGIApp, base: str = "http://callboard/api/v1/") -> None:
        self.responses: list[httpx.Response] = []
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=base)

    async def request(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        sent = headers if headers is not None else JSON if content else {}
        response = await self._client.request(method, path, content=content, headers=sent)
        self.responses.append(response)
        return response

    async def page(self, path: str, status: int = 200) -> str:
        """The HTML of a page, by its path from the root of the app."""
        response = await self._client.get(f"http://callboard/{path}")
        assert (response.status_code, response.headers["content-type"]) == (status, "text/html; charset=utf-8")
        return response.text

    async def json(self, path: str) -> Any:
        response = await self.request("GET", path)
        assert response.status_code == 200, response.text
        return response.json()

    async def items(self, path: str) -> list[Any]:
        found: list[Any] = (await self.json(path))["items"]
        return found

    async def change(self, method: str, path: str, **body: Any) -> Any:
        response = await self.request(method, path, REASON | body)
        assert response.status_code == 200, response.text
        return response.json()

    async def eventually(self, path: str, expected: Callable[[list[Any]], bool]) -> list[Any]:
        """The items of a list as soon as they are as expected: groups are read in the background."""
        while not expected(items := await self.items(path)):
            await asyncio.sleep(0.05)
        return items


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[tuple[Coordinator, Api]]:
    async with asyncio.timeout(DEADLINE_S), Coordinator(topics=TOPICS, **options) as coordinator:
        yield coordinator, Api(callboard.web.app(coordinator))


def run(check: Callable[[Coordinator, Api], Awaitable[None]], **options: Any) -> None:
    async def serve() -> None:
        async with serving(**options) as (coordinator, api):
            await check(coordinator, api)

    asyncio.run(serve())


async def make_groups(coordinator: Coordinator) -> None:
    """Three groups without members, one of which has an offset of a topic that the coordinator does not have."""
    await coordinator.reset("images", {("jobs", 0): 0, ("jobs", 1): 0})
    await coordinator.reset("mails", {("mails", 0): 0})
    await coordinator.reset("odd / name", {("mails", 0): 0})
