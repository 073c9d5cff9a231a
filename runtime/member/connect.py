"""``callboard.connect("host:port")``: members that reach their coordinator over TCP."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self, Unpack
from weakref import WeakSet

from ..client.security import Security
from ..common.context_forms import AsyncForm, BlockingForm
from ..common.one_process import OfOneProcess
from ..common.thread_pool import ThreadPool
from ..engine.completion import run_to_completion
from ..engine.own_listeners import refuse_own_server
from ..engine.waiting import require_asyncio_loop, require_os_threads, serve_threads
from .blocking import BlockingMember
from .blocking_members import BlockingMembers
from .member import Member
from .options import MemberArguments
from .tcp import TcpConnector

log = logging.getLogger("callboard.member")


class RemoteCoordinator(OfOneProcess, AsyncForm):
    """Returned by ``connect``: use ``async with``, then create any number of members."""

    def __init__(self, bootstrap: str, security: Security | None = None) -> None:
        self._connector = TcpConnector(bootstrap, security)
        self._members: WeakSet[Member] = WeakSet()

    async def __aenter__(self) -> Self:
        """Raises ChannelLost if no server can be reached, so that a wrong address fails here.

        Raises RuntimeError if no asyncio loop runs.
        """
        require_asyncio_loop()
        await self._connector.check_reachable()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """All remaining members leave, concurrently."""
        leaving = asyncio.create_task(self._leave())
        if any(member.is_run_by(asyncio.current_task()) for member in self._members):
            await asyncio.shield(leaving)  # it waits for this task
        else:
            await run_to_completion(leaving)

    async def _leave(self) -> None:
        results = await asyncio.gather(*(member.leave() for member in self._members), return_exceptions=True)
        for error in filter(None, results):
            log.warning("a member could not leave: %r", error)

    def member(self, group: str, **options: Unpack[MemberArguments]) -> Member:
        """A member of a group. See ``Member`` for its options."""
        member = Member(self._connector, group, **options)
        self._members.add(member)
        return member


class RemoteThreadCoordinator(OfOneProcess, BlockingForm):
    """Returned by ``connect_in_thread``: the same for programs without an event loop. Its own loop runs in a thread."""

    def __init__(self, bootstrap: str, security: Security | None = None) -> None:
        self._connector = TcpConnector(bootstrap, security)
        self._members = BlockingMembers()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Raises ChannelLost if no server can be reached now.

        Raises RuntimeError if this thread's loop is the server, or if gevent or eventlet has patched threads.
        """
        if self._thread is not None:
            raise RuntimeError("this connection was entered before: make another one")
        require_os_threads()
        self._check_caller()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="callboard-members", daemon=True)
        self._thread.start()
        ready.wait()
        assert self._loop is not None, "set by the thread"
        try:
            asyncio.run_coroutine_threadsafe(self._connector.check_reachable(), self._loop).result()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """All remaining members leave, concurrently, then the event loop ends.

        Waits for work on their shards, at most for the rebalance timeout. Raises RuntimeError if the caller is such
        work, or is on the event loop of the server.
        """
        if self._loop is not None and self._thread is not None and self._thread.is_alive():
            self._check_caller()
            self._members.check_caller(self._loop, "close")
            with suppress(RuntimeError):  # another thread has closed it
                self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()

    def member(self, group: str, **options: Unpack[MemberArguments]) -> BlockingMember:
        """A member of a group, for use in the calling thread. Options as ``Member``'s."""
        if self._loop is None:
            raise RuntimeError("not connected yet: use it inside `with callboard.connect_in_thread(...)`")
        return self._members.add(
            BlockingMember(self._connector, group, loop=self._loop, check_caller=self._check_caller, **options)
        )

    def _check_caller(self) -> None:
        refuse_own_server(self._connector.given)

    def _run(self, ready: threading.Event) -> None:
        with suppress(RuntimeError):  # in `atexit` newer Pythons start no thread, which the end of a loop needs
            asyncio.run(self._serve_until_closed(ready))

    async def _serve_until_closed(self, ready: threading.Event) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_default_executor(ThreadPool(None, "callboard-blocking"))
        serve_threads(self._loop)
        ready.set()
        await self._stopping.wait()
        await self._members.leave()


def connect(bootstrap: str, security: Security | None = None) -> RemoteCoordinator:
    """``async with callboard.connect("host:port") as coordinator: coordinator.member(...)``. Raises StartError.

    ``security``: the path of a file with Kafka's security settings of a client, or these settings, as in
    ``{"security.protocol": "SSL", "ssl.truststore.location": "ca.pem"}``. They override environment variables.
    """
    return RemoteCoordinator(bootstrap, security)


def connect_in_thread(bootstrap: str, security: Security | None = None) -> RemoteThreadCoordinator:
    """``with callboard.connect_in_thread("host:port") as coordinator: coordinator.member(...)``. Raises StartError.

    ``security``: as in ``connect``.
    """
    return RemoteThreadCoordinator(bootstrap, security)
