"""A coordinator with groups, and its web page on a port of this machine, for tests with a browser and for pictures."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, Final, TypeVar

import uvicorn

import callboard.web
from callboard import Coordinator

CHROMIUM: Final = Path("/usr/bin/chromium")
NO_CHROMIUM: Final = "chromium is not installed: apt-get install chromium"
TOPICS: Final = {"orders": 6, "payments": 3, "clicks": 500}
DEADLINE_S: Final = 60.0

T = TypeVar("T")


class Site:
    """The page at ``url``. ``call`` runs a coroutine on the loop of the coordinator."""

    def __init__(self, coordinator: Coordinator, url: str) -> None:
        self.coordinator = coordinator
        self.url = url
        self.stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def call(self, made: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(made, self._loop).result(DEADLINE_S)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self.stopping.set)

    async def join(self, stack: AsyncExitStack, group: str, client_id: str, topic: str) -> None:
        member = self.coordinator.member(group, client_id=client_id, resources={topic: TOPICS[topic]})
        await stack.enter_async_context(member)


Fill = Callable[[Site, AsyncExitStack], Coroutine[Any, Any, None]]
"""Makes groups. Members stay until the stack is left."""


@contextmanager
def serving_page(fill: Fill, **options: Any) -> Iterator[Site]:
    """``options``: further ones of the coordinator."""
    started: Future[Site] = Future()
    thread = Thread(target=_run, args=(fill, options, started), name="page-site")
    thread.start()
    site = started.result(DEADLINE_S)
    try:
        yield site
    finally:
        site.stop()
        thread.join(DEADLINE_S)


def _run(fill: Fill, options: dict[str, Any], started: Future[Site]) -> None:
    try:
        asyncio.run(_serve(fill, options, started))
    except BaseException as error:
        if started.done():
            raise
        started.set_exception(error)


async def _serve(fill: Fill, options: dict[str, Any], started: Future[Site]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with Coordinator(topics=TOPICS, **options) as coordinator, AsyncExitStack() as stack:
            site = Site(coordinator, f"http://127.0.0.1:{listening.getsockname()[1]}")
            await fill(site, stack)
            config = uvicorn.Config(callboard.web.app(coordinator), log_config=None, timeout_graceful_shutdown=1)
            server = uvicorn.Server(config)
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            started.set_result(site)
            await site.stopping.wait()
            server.should_exit = True
            await serving
