"""Acceptor: a connection that is accepted while the listener is closed is closed too, at once."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop
from harness import running_node

from callboard.runtime.node import acceptor as acceptor_module
from callboard.runtime.node.acceptor import start_accepting
from callboard.runtime.node.listening import bind
from callboard.runtime.settings.address import Address
from callboard.runtime.settings.listeners import Listener

ANY_PORT = Listener(listen=Address("127.0.0.1", 0))
LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
YIELDS = pytest.mark.parametrize("yields", range(8))
"""From before the loop sees the connection until after its protocol is connected."""


NewLoop = Callable[[], asyncio.AbstractEventLoop]


def run_on(new_loop: NewLoop, test: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(test)


class Greeter(asyncio.Protocol):
    """Sends the value of TCP_NODELAY and closes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's is none
        accepted = transport.get_extra_info("socket")
        transport.write(b"%d" % accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        transport.close()


async def yield_to_loop(times: int) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


async def read_all(connected: socket.socket) -> bytes:
    """What the server sends until it closes; nothing if it resets the connection."""
    try:
        async with asyncio.timeout(10):
            return await asyncio.get_running_loop().sock_recv(connected, 100)
    except ConnectionResetError:
        return b""


def connect(address: tuple[str, int]) -> socket.socket:
    connected = socket.create_connection(address)
    connected.setblocking(False)
    return connected


@LOOPS
@YIELDS
def test_no_connection_is_left_open_by_close(new_loop: NewLoop, yields: int) -> None:
    """An accepted one is served, and one that waits in the backlog is reset by the system."""

    async def close_during_a_connect() -> None:
        acceptor = await start_accepting(listening := bind(ANY_PORT), Greeter)
        with connect(listening.getsockname()) as connected:
            await yield_to_loop(yields)
            acceptor.close()
            assert await read_all(connected) in (b"1", b"")

    run_on(new_loop, close_during_a_connect())


@LOOPS
@YIELDS
def test_node_leaves_no_connection_open(tmp_path: Path, new_loop: NewLoop, yields: int) -> None:
    """A killed node does not serve a connection that it accepted just before, and a stopping one closes it."""

    async def end_during_a_connect() -> None:
        async with running_node(tmp_path) as harness:
            for is_killed in (True, False):
                with connect(("127.0.0.1", harness.port)) as connected:
                    await yield_to_loop(yields)
                    if is_killed:
                        harness.node.halt()
                    else:
                        await harness.node.stop()
                    assert await read_all(connected) == b""
                await harness.start()

    run_on(new_loop, end_during_a_connect())


@YIELDS
def test_no_connection_is_left_open_by_the_end_of_the_loop(yields: int) -> None:
    async def end_during_a_connect() -> None:
        acceptor = await start_accepting(listening := bind(ANY_PORT), Greeter)
        with connect(listening.getsockname()):
            await yield_to_loop(yields)
            acceptor.close()

    run_on(asyncio.new_event_loop, end_during_a_connect())


def test_no_free_descriptor_is_a_pause(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The connection waits in the backlog, and the log says what to do."""
    monkeypatch.setattr(acceptor_module, "RETRY_DELAY_S", 0.01)

    async def connect_when_full() -> None:
        acceptor = await start_accepting(listening := FullOnce.of(bind(ANY_PORT)), Greeter)
        with connect(listening.getsockname()) as connected:
            assert await read_all(connected) == b"1"
        acceptor.close()

    run_on(asyncio.new_event_loop, connect_when_full())
    [record] = caplog.records
    assert "ulimit -n" in record.message


def test_close_during_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor_module, "RETRY_DELAY_S", 0.01)

    async def close_when_full() -> None:
        acceptor = await start_accepting(listening := FullOnce.of(bind(ANY_PORT)), Greeter)
        with connect(listening.getsockname()) as connected:
            while not listening.has_failed:
                await asyncio.sleep(0)
            acceptor.close()
            await asyncio.sleep(0.02)
            assert await read_all(connected) == b""

    run_on(asyncio.new_event_loop, close_when_full())


class FullOnce(socket.socket):
    """A listening socket whose first accept finds no free descriptor."""

    has_failed = False

    @classmethod
    def of(cls, listening: socket.socket) -> FullOnce:
        return cls(listening.family, listening.type, listening.proto, listening.detach())

    def accept(self) -> tuple[socket.socket, Any]:
        if not self.has_failed:
            self.has_failed = True
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()
