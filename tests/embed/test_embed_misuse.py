"""Misuse of an embedded coordinator: invalid arguments, deadlocks, other event loops, and forks."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harness import async_test

import callboard
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.folder import DataFolder

DEADLINE_S = 120.0


@pytest.mark.parametrize(
    "options",
    [{"data": 5}, {"data": b"state"}, {"listen": 9092}, {"advertised": 9092}, {"topics": ["jobs"]}, {"topics": {3: 1}}],
    ids=repr,
)
def test_coordinator_argument_of_wrong_type_raises_error_with_its_name(options: dict[str, Any]) -> None:
    with pytest.raises(callboard.StartError, match=r"bad .*expected"):
        callboard.Coordinator(**options)


@async_test
async def test_with_in_place_of_async_with_is_refused_with_what_to_write() -> None:
    coordinator: Any = callboard.Coordinator()
    remote: Any = callboard.connect("127.0.0.1:1")
    for wrong in (coordinator, remote):
        with pytest.raises(TypeError, match=r"needs 'async with'; .*Coordinator\.in_thread\(\)"), wrong:
            pass


@async_test
async def test_async_with_in_place_of_with_is_refused_with_what_to_write() -> None:
    coordinator: Any = callboard.Coordinator.in_thread()
    remote: Any = callboard.connect_in_thread("127.0.0.1:1")
    for wrong in (coordinator, remote):
        with pytest.raises(TypeError, match=r"needs 'with', .*callboard\.Coordinator\(\)"):
            async with wrong:
                pass


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"assignors": {"range": max}}, "an assignor cannot have the name 'range'"),
        ({"assignors": {"mine": 5}}, "assignor 'mine': 5 is not callable"),
        ({"assignors": ["mine"]}, r"bad assignors \['mine'\]: expected functions by name"),
        ({"assignors": {"mine": max}, "cluster": "memory://c", "observer": True}, "an observer .* has no assignors"),
    ],
)
def test_assignors_that_cannot_be_used_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(callboard.StartError, match=problem):
        callboard.Coordinator(**options)


@async_test
async def test_setting_with_an_unknown_assignor_is_refused_at_the_start() -> None:
    options: Any = {"assignors": {"mine": max}, "group_consumer_assignors": "uniform,min"}
    coordinator = callboard.Coordinator(**options)
    with pytest.raises(callboard.StartError, match="no assignor 'min'; expected names of uniform, range, mine"):
        await coordinator.start()


@async_test
async def test_restart_with_an_unknown_end_raises_value_error() -> None:
    async with callboard.Coordinator() as coordinator:
        before = coordinator.node
        with pytest.raises(ValueError, match="'killed'"):
            await coordinator.restart("kiled")  # type: ignore[arg-type]
        assert coordinator.node is before


@async_test
async def test_stop_inside_a_handler_raises_runtime_error() -> None:
    """It would wait for its own end until the rebalance timeout."""
    async with callboard.Coordinator() as coordinator:

        async def handler(shard: callboard.Shard) -> None:
            await coordinator.stop()

        async with (
            coordinator.member("g", resources={"jobs": 1}) as member,
            await member.next_assignment() as assignment,
        ):
            with pytest.raises(RuntimeError, match="is called from"):
                await coordinator.stop()
            assert not assignment.is_over
        async with coordinator.member("g", resources={"jobs": 1}) as member:
            with pytest.raises(RuntimeError, match="is called from"):
                await member.run(handler)


@async_test
async def test_member_on_another_loop_than_its_coordinator_raises_runtime_error() -> None:
    async def use_member(member: callboard.Member) -> None:
        async with asyncio.timeout(DEADLINE_S), member:
            await member.next_assignment()

    async with callboard.Coordinator() as coordinator:
        member = coordinator.member("g", resources={"jobs": 1})
        with pytest.raises(RuntimeError, match="another event loop"):
            await asyncio.to_thread(lambda: asyncio.run(use_member(member)))
        async with coordinator.member("g", resources={"jobs": 1}) as here:
            assert len((await here.next_assignment()).shards) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@async_test
async def test_forked_child_keeps_no_file_of_the_coordinator(tmp_path: Path) -> None:
    """Otherwise a worker that outlives a killed parent blocks port and folder for the next coordinator."""
    async with (
        callboard.Coordinator(tmp_path, "127.0.0.1:0") as coordinator,
        callboard.connect(coordinator.bootstrap) as remote,
        remote.member("g", resources={"jobs": 1}) as member,
    ):
        await member.next_assignment()
        files = coordinator.node.exclusive_fds()
        assert len(files) >= 4  # listener, folder, its lock, connections
        assert await asyncio.to_thread(_open_files_in_child, files) == len(files) * "-"
        with pytest.raises(callboard.StartError, match=r"lock|in use|process"):  # the parent still has it
            DataFolder(tmp_path, disk=Disk())
        await member.shards[0].commit(1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_blocking_calls_in_a_forked_child_raise_runtime_error() -> None:
    """The thread with the event loop does not exist there, so they would wait for ever."""
    with (
        callboard.Coordinator.in_thread(listen="127.0.0.1:0") as coordinator,
        callboard.connect_in_thread(coordinator.bootstrap) as remote,
        coordinator.member("g", resources={"jobs": 1}) as member,
    ):
        shard = member.next_assignment().shards[0]
        calls: dict[str, Callable[[], object]] = {
            "admin method": lambda: coordinator.offsets("g"),
            "next_assignment": lambda: member.next_assignment(DEADLINE_S),
            "commit": lambda: shard.commit(1),
            "member": coordinator.member("g", resources={"jobs": 1}).__enter__,
            "remote member": remote.member("g", resources={"jobs": 1}).__enter__,
            "health": lambda: _raise(RuntimeError(coordinator.health().reason)),
        }
        message = "this process was forked without the thread that runs the event loop"
        for name, call in calls.items():
            assert message in _error_in_child(call), name
        for name, end in {"leave": member.leave, "stop": coordinator.stop, "close": remote.close}.items():
            assert _error_in_child(end) == "none", name
        assert shard.commit(1).durability == "synced"


def _raise(error: Exception) -> None:
    raise error


def _error_in_child(call: Callable[[], object]) -> str:
    """The text of the error that the call raises in a forked child, "none" if it raises none, "" if it hangs."""
    read_fd, write_fd = os.pipe()
    child = _fork()
    if not child:
        signal.alarm(round(DEADLINE_S))
        text = "none"
        try:
            call()
        except RuntimeError as error:
            text = str(error)
        os.write(write_fd, text.encode())
        os._exit(0)
    os.close(write_fd)
    with open(read_fd) as pipe:
        os.waitpid(child, 0)
        return pipe.read()


def _fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork with threads; the child uses none of their locks
        return os.fork()


def _open_files_in_child(files: list[int]) -> str:
    """For each descriptor "-" if it is /dev/null in a forked child, else "+"."""
    read_fd, write_fd = os.pipe()
    child = _fork()
    if not child:
        null_device = os.stat(os.devnull).st_rdev
        os.write(write_fd, "".join("-" if os.fstat(fd).st_rdev == null_device else "+" for fd in files).encode())
        os._exit(0)
    os.close(write_fd)
    with open(read_fd) as pipe:
        os.waitpid(child, 0)
        return pipe.read()


@async_test
async def test_blocking_connection_to_a_coordinator_on_the_same_loop_is_refused_at_once() -> None:
    """The coordinator could not answer while the connection waits for it."""
    async with callboard.Coordinator(listen="127.0.0.1:0") as coordinator:
        for host in ("127.0.0.1", "localhost"):
            address = f"{host}:{coordinator.bootstrap.rpartition(':')[2]}"
            with pytest.raises(RuntimeError, match=f"{address} is served by the event loop of this thread"):
                callboard.connect_in_thread(address).__enter__()

        remote = await asyncio.to_thread(callboard.connect_in_thread(coordinator.bootstrap).__enter__)
        member = remote.member("g", resources={"jobs": 1})
        with pytest.raises(RuntimeError, match="is served by the event loop of this thread"):
            member.__enter__()
        await asyncio.to_thread(member.__enter__)
        shard = (await asyncio.to_thread(member.next_assignment)).shards[0]
        for call in (partial(shard.commit, 1), member.leave, remote.close):
            with pytest.raises(RuntimeError, match="use the Coordinator's own member"):
                call()
            await asyncio.to_thread(call)
    with pytest.raises(callboard.ChannelLost, match="is a server running"):
        callboard.connect_in_thread(address).__enter__()


def test_pickled_coordinator_raises_an_error_that_says_what_to_pass_instead() -> None:
    """As by an argument of a process that multiprocessing starts: it named a lock."""
    with callboard.Coordinator.in_thread(listen="127.0.0.1:0") as coordinator:
        remote = callboard.connect_in_thread(coordinator.bootstrap)
        member = coordinator.member("g", resources={"jobs": 1})
        connection = callboard.connect(coordinator.bootstrap)
        others = (callboard.Coordinator(), connection, connection.member("g", resources={"jobs": 1}))
        for each in (coordinator, remote, member, *others):
            expected = f"a {type(each).__name__} cannot be pickled or copied: pass the address"
            with pytest.raises(TypeError, match=expected):
                pickle.dumps(each)


@async_test
async def test_blocking_connection_to_another_loop_is_not_refused() -> None:
    async with callboard.Coordinator(listen="0.0.0.0:0", advertised="127.0.0.1:9") as own:
        port = own._embedded.options.listeners[0].listen.port
        with pytest.raises(RuntimeError, match="is served by the event loop of this thread"):
            callboard.connect_in_thread(f"127.0.0.1:{port}").__enter__()
        with (
            callboard.Coordinator.in_thread(listen="127.0.0.1:0") as other,
            callboard.connect_in_thread(f"{other.bootstrap},127.0.0.2:9") as remote,
            remote.member("g", resources={"jobs": 1}) as member,
        ):
            assert member.next_assignment().shards[0].commit(1)


def test_blocking_calls_on_the_coordinators_own_thread_raise_runtime_error() -> None:
    """They waited for themselves, for ever."""
    with (
        callboard.Coordinator.in_thread(listen="127.0.0.1:0") as coordinator,
        callboard.connect_in_thread(coordinator.bootstrap) as remote,
    ):
        for source in (coordinator, remote):
            with source.member("g", resources={"jobs": 1}) as member:
                shard = member.next_assignment().shards[0]

                async def commit(shard: callboard.BlockingShard = shard) -> None:
                    shard.commit(1)

                with pytest.raises(RuntimeError, match="another thread"):
                    coordinator.run(commit())
                shard.commit(2)


def test_asynchronous_form_without_an_asyncio_loop_says_what_to_use_instead() -> None:
    """As in a program of trio: the error was "no running event loop"."""
    for opened in (callboard.Coordinator(), callboard.connect("127.0.0.1:1")):
        with pytest.raises(RuntimeError, match=r"no asyncio event loop .* callboard.Coordinator.in_thread\(\)"):
            opened.__aenter__().send(None)


@pytest.mark.parametrize(
    ("module", "fake"),
    [
        ("gevent.monkey", SimpleNamespace(is_module_patched=lambda name: name == "threading")),
        ("eventlet.patcher", SimpleNamespace(is_monkey_patched=lambda name: name == "thread")),
    ],
)
def test_blocking_form_with_patched_threads_is_refused(
    module: str, fake: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first call of a member said that it was on the coordinator's own thread."""
    library = module.partition(".")[0]
    for opened in (callboard.Coordinator.in_thread(), callboard.connect_in_thread("127.0.0.1:1")):
        monkeypatch.setitem(sys.modules, module, fake)
        with pytest.raises(RuntimeError, match=rf"{library} has replaced the threads .* patch with .*thread=False"):
            opened.__enter__()
        monkeypatch.delitem(sys.modules, module)
