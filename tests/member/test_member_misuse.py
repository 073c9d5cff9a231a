"""Misuse of members and rare interleavings: each raises an error with advice, and none hangs."""

from __future__ import annotations

import asyncio
import gc
import inspect
import weakref
from concurrent.futures import Future
from functools import partial
from random import Random
from typing import Any

import pytest
from harness import async_test
from member_helpers import (
    GROUP,
    ScriptedConnector,
    in_virtual_time,
    member_on_loop_time,
    next_assignment_of,
    unanswered,
    wait_until,
)

import callboard
from callboard.actors.errors import ErrorCode
from callboard.actors.messages import Heartbeat, OffsetCommit
from callboard.runtime.engine import waiting
from callboard.runtime.member import resources
from callboard.runtime.member.blocking import BlockingMember
from callboard.runtime.member.connect import RemoteCoordinator, RemoteThreadCoordinator
from callboard.runtime.member.errors import CommitRefused, MemberError
from callboard.runtime.member.member import Member
from callboard.runtime.member.shards import Shard
from callboard.runtime.member.tcp import TcpConnector


def make_member(connector: ScriptedConnector, **options: Any) -> Member:
    return member_on_loop_time(connector, random=Random(1), **{"resources": {"jobs": 2}, **options})


# Several commits of one shard ----------------------------------------------------------------------------------------


@in_virtual_time
async def test_retried_commit_does_not_overwrite_a_later_one() -> None:
    """Otherwise 6 would be acknowledged, and the next owner would begin at 5."""
    connector = ScriptedConnector()
    async with make_member(connector) as member:
        shard = (await next_assignment_of(member, 2)).shards[0]
        connector.answer_next(OffsetCommit, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE)
        earlier = asyncio.create_task(shard.commit(5))
        await asyncio.sleep(0)
        assert (await shard.commit(6, "six")).durability == "synced"
        assert (await earlier).durability == "synced"
        assert [request.commits[0].offset for request in connector.requests if isinstance(request, OffsetCommit)] == [
            5,
            6,
        ]
        assert (shard.next_offset, shard.note) == (6, "six")


@in_virtual_time
async def test_retried_commit_sends_the_latest_offset() -> None:
    """The later commit is pending and may arrive before or after the retry."""
    connector = ScriptedConnector()
    async with make_member(connector) as member:
        shard = (await next_assignment_of(member, 2)).shards[0]
        connector.answer_next(OffsetCommit, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, slow := unanswered())
        earlier, later = asyncio.create_task(shard.commit(5)), asyncio.create_task(shard.commit(6))
        await earlier
        assert connector.last_request(OffsetCommit).commits[0].offset == 6
        slow.set_result(ErrorCode.NONE)
        await later
        assert shard.next_offset == 6


@in_virtual_time
async def test_refused_later_commit_does_not_fail_an_earlier_one() -> None:
    connector = ScriptedConnector()
    async with make_member(connector) as member:
        shard = (await next_assignment_of(member, 2)).shards[0]
        too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
        connector.answer_next(
            OffsetCommit, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, too_large, too_large, ErrorCode.NONE
        )
        earlier = asyncio.create_task(shard.commit(5))
        await asyncio.sleep(0)
        with pytest.raises(CommitRefused, match="too long"):
            await shard.commit(6, "a long story")
        await earlier
        assert connector.last_request(OffsetCommit).commits[0].offset == shard.next_offset == 5


# Leaving -------------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_leave_in_the_cleanup_of_a_handler_returns_at_once() -> None:
    connector = ScriptedConnector()
    member = make_member(connector)
    left = []

    async def handler(shard: Shard) -> None:
        try:
            await asyncio.sleep(1e6)
        finally:
            await member.leave()
            left.append(shard.name)

    async with member:
        running = asyncio.create_task(member.run(handler))
        await wait_until(lambda: len(member.shards) == 2)
        await asyncio.sleep(0)
        start_s = asyncio.get_running_loop().time()
        await member.leave()
        await running
    assert sorted(left) == [0, 1]
    assert asyncio.get_running_loop().time() - start_s < 1  # virtual time


@in_virtual_time
async def test_assignments_and_run_end_when_the_member_leaves() -> None:
    """They end without an error, since the caller asked for it."""
    async with make_member(ScriptedConnector()) as member:
        counting = asyncio.create_task(count_assignments(member))
        await wait_until(lambda: len(member.shards) == 2)
        await member.leave()
        assert await counting == 1
        await member.run(_handle)
        with pytest.raises(MemberError, match="has left"):
            await member.next_assignment()


@in_virtual_time
async def test_run_begins_with_the_assignment_that_was_returned_before() -> None:
    """A program may wait for the first one, for example to say that it is ready. No other one follows by itself."""
    async with make_member(ScriptedConnector()) as member:
        await next_assignment_of(member, 2)
        started: set[Shard] = set()

        async def handler(shard: Shard) -> None:
            started.add(shard)

        running = asyncio.create_task(member.run(handler))
        await wait_until(lambda: len(started) == 2)
        assert started == set(member.shards)
        with pytest.raises(RuntimeError, match="a second handler for each shard"):
            await member.run(handler)
        await member.leave()
        await running


def test_blocking_run_begins_with_the_assignment_that_was_returned_before() -> None:
    with callboard.Coordinator.in_thread() as coordinator, coordinator.member("g", resources={"jobs": 2}) as member:
        shards = set(member.next_assignment().shards)
        started: set[callboard.BlockingShard] = set()

        def handler(shard: callboard.BlockingShard) -> None:
            started.add(shard)
            if started == shards:
                member.leave()

        member.run(handler)


async def count_assignments(member: Member) -> int:
    return len([assignment async for assignment in member.assignments()])


async def _handle(shard: Shard) -> None: ...


@in_virtual_time
async def test_member_that_leaves_while_resources_are_evaluated_does_not_join() -> None:
    evaluating = asyncio.Event()

    async def job_count() -> int:
        evaluating.set()
        await asyncio.sleep(1)
        return 2

    connector = ScriptedConnector()
    member = make_member(connector, resources={"jobs": job_count})
    entering = asyncio.create_task(member.__aenter__())
    await evaluating.wait()
    with pytest.raises(RuntimeError, match="entered before"):  # while the first call is pending
        await member.__aenter__()
    await member.leave()
    with pytest.raises(MemberError, match="left before"):
        await entering
    assert not connector.requests


@async_test
async def test_coordinator_keeps_no_reference_to_members_that_left() -> None:
    async with (
        callboard.Coordinator(listen="127.0.0.1:0") as coordinator,
        callboard.connect(coordinator.bootstrap) as remote,
    ):
        references = []
        for source in (coordinator, remote):
            async with source.member("g", resources={"jobs": 1}) as member:
                await member.next_assignment()
            references.append(weakref.ref(member))
        del member
        await asyncio.sleep(0)
        gc.collect()
        assert [reference() for reference in references] == [None, None]


@async_test
async def test_members_leave_concurrently_at_the_end_of_connect() -> None:
    async with callboard.Coordinator(listen="127.0.0.1:0") as coordinator:
        async with callboard.connect(coordinator.bootstrap) as remote:
            members = [remote.member("g", resources={"jobs": 2}) for _ in range(2)]
            for member in members:
                await member.__aenter__()
                await member.next_assignment()
        assert (await coordinator.describe("g")).state == "Empty"
        assert [member.shards for member in members] == [(), ()]


def test_blocking_leave_inside_with_assignment_raises() -> None:
    """It would wait for its own end until the rebalance timeout."""
    with callboard.Coordinator.in_thread() as coordinator, coordinator.member("g", resources={"jobs": 1}) as member:
        for assignment in member.assignments():
            with assignment, pytest.raises(RuntimeError, match="call it after that"):
                member.leave()
            member.leave()  # ends the loop


# Invalid arguments ---------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_next_assignment_before_enter_raises() -> None:
    member = make_member(ScriptedConnector())
    with pytest.raises(RuntimeError, match="async with"):
        await member.next_assignment()


@async_test
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_calls_on_another_loop_are_refused_before_they_do_something(protocol: Any) -> None:
    """As with asyncio.run in a thread: the commit was stored, with an error or without, and `leave` hung."""
    async with (
        callboard.Coordinator() as coordinator,
        coordinator.member(GROUP, resources={"jobs": 1}, protocol=protocol) as member,
    ):
        [shard] = (await member.next_assignment()).shards
        for call in (partial(shard.commit, 5), member.next_assignment, member.leave):
            with pytest.raises(RuntimeError, match="this member joined on another event loop: await it there"):
                await asyncio.to_thread(lambda call: asyncio.run(call()), call)
        assert await coordinator.offsets(GROUP) == {}
        await shard.commit(6)


@in_virtual_time
@pytest.mark.parametrize("handler", [lambda shard: None, 5], ids=["function", "number"])
async def test_run_with_a_handler_that_is_no_coroutine_function_raises_type_error(handler: Any) -> None:
    async with make_member(ScriptedConnector()) as member:
        with pytest.raises(TypeError, match="async def handle"):
            await member.run(handler)


@async_test
async def test_run_with_a_coroutine_instead_of_its_function_raises_type_error() -> None:
    """The task of the first shard ran it, and that of the second one could not."""
    handler: Any = asyncio.sleep(0)
    async with callboard.Coordinator() as coordinator, coordinator.member(GROUP, resources={"jobs": 2}) as member:
        with pytest.raises(TypeError, match=r"handler <coroutine object sleep .*: expected a coroutine function"):
            await member.run(handler)
    handler.close()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"assignor": []}, "at least one"),
        ({"assignor": [3]}, "at least one"),
        ({"protocol": "consume"}, "did you mean 'consumer'"),
        ({"protocol": None}, "expected one of classic, consumer"),
        ({"protocol": "consumer", "assignor": ["range"]}, "the name of an assignor of the coordinator"),
        ({"protocol": "consumer", "weight": 2}, "its members have no weights"),
        ({"protocol": "consumer", "session_timeout_ms": 10_000}, "group_consumer_session_timeout_ms"),
        ({"instance_id": 5}, "1 to 249 characters"),
        ({"client_id": 5}, "client_id 5: expected a string"),
        ({"client_id": "\ud800"}, "surrogate"),
        ({"weight": "heavy"}, "weight 'heavy'"),
        ({"heartbeat_interval_ms": "1"}, "a number of milliseconds"),
        ({"lease_margin_ms": [1]}, "a number of milliseconds"),
        ({"rebalance_timeout_ms": 2**31}, "1 to 2147483647"),
        ({"resources": {"tenants": ["\ud800"]}}, "surrogate"),
        ({"resources": {"tenants": lambda: ["\ud800"]}, "group": "\ud800"}, "surrogate"),
        ({"group": "g" * 40_000}, "at most 32767"),
    ],
)
def test_invalid_member_option_raises_error_with_its_name(options: dict[str, Any], expected: str) -> None:
    arguments = {"group": GROUP, "resources": {"jobs": 1}, **options}
    with pytest.raises(ValueError, match=expected):
        Member(ScriptedConnector(), **arguments)


@pytest.mark.parametrize(("name", "function"), [(3, dict), ("mine", "no function")])
def test_function_assignor_without_name_or_function_raises_value_error(name: Any, function: Any) -> None:
    with pytest.raises(ValueError, match=repr(name)):
        callboard.FunctionAssignor(name, function)


@pytest.mark.parametrize("bootstrap", [9092, ["127.0.0.1:9092"], None])
def test_connect_to_a_non_text_address_raises_start_error(bootstrap: Any) -> None:
    for connect in (callboard.connect, callboard.connect_in_thread):
        with pytest.raises(callboard.StartError, match="bad bootstrap"):
            connect(bootstrap)


@async_test
async def test_connect_to_an_impossible_host_name_raises_channel_lost() -> None:
    with pytest.raises(callboard.ChannelLost, match=r"'a\.\.b' is not a host name"):
        async with callboard.connect("a..b:9092"):
            pass


@in_virtual_time
async def test_note_with_half_a_surrogate_pair_raises_value_error() -> None:
    async with make_member(ScriptedConnector()) as member:
        shard = (await next_assignment_of(member, 2)).shards[0]
        with pytest.raises(ValueError, match="surrogate"):
            await shard.commit(1, "\ud800")
        await shard.commit(1, "ümlaut 🦊")


def test_member_methods_accept_all_member_options() -> None:
    for coordinator_class in (
        callboard.Coordinator,
        callboard.ThreadCoordinator,
        RemoteCoordinator,
        RemoteThreadCoordinator,
    ):
        assert (
            inspect.signature(coordinator_class.member).parameters["options"].annotation == "Unpack[MemberArguments]"
        ), coordinator_class
    for member_class in (Member, BlockingMember):
        assert inspect.signature(member_class).parameters["options"].annotation == "Unpack[MemberArguments]", (
            member_class
        )


# Errors in background tasks, and costs --------------------------------------------------------------------------------


@in_virtual_time
async def test_next_assignment_raises_an_error_of_the_heartbeat_task() -> None:
    """Otherwise the member would lose its shards repeatedly without a visible cause."""
    connector = ScriptedConnector()
    async with make_member(connector) as member:
        await next_assignment_of(member, 2)
        connector.answer_next(Heartbeat, ZeroDivisionError("in a connector"))
        with pytest.raises(ZeroDivisionError):
            await member.next_assignment()


@in_virtual_time
async def test_changed_list_of_names_takes_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quadratic time would block the loop for seconds with a few hundred names."""
    calls = 0

    def counted(resource: str, name: str, topic_for_name: Any = resources.topic_for_name) -> Any:
        nonlocal calls
        calls += 1
        return topic_for_name(resource, name)

    monkeypatch.setattr(resources, "topic_for_name", counted)
    names = [f"tenant-{number}" for number in range(400)]
    connector = ScriptedConnector()
    async with make_member(connector, resources={"tenants": lambda: names}, refresh_interval_ms=100) as member:
        await next_assignment_of(member, 400)
        calls = 0
        names.append("one-more")
        await next_assignment_of(member, 401)
        assert calls < 50 * len(names)


def test_blocking_call_on_a_closed_loop_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop never runs a coroutine that it gets while it is closing."""
    monkeypatch.setattr(waiting, "CHECK_INTERVAL_S", 0.01)
    loop = asyncio.new_event_loop()
    never_done: Future[None] = Future()
    with pytest.raises(TimeoutError):
        waiting.wait_for(never_done, loop, 0.02)
    loop.close()
    with pytest.raises(waiting.LoopClosed):
        waiting.wait_for(never_done, loop)


def test_timeout_error_of_a_coroutine_is_raised_by_a_blocking_call() -> None:
    failed: Future[None] = Future()
    failed.set_exception(TimeoutError("its own"))
    loop = asyncio.new_event_loop()
    with pytest.raises(TimeoutError, match="its own"):
        waiting.wait_for(failed, loop)
    loop.close()


def test_connect_in_thread_in_asyncio_debug_mode_has_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """In debug mode calls of loop methods from another thread are errors."""
    monkeypatch.setenv("PYTHONASYNCIODEBUG", "1")
    with (
        callboard.Coordinator.in_thread(listen="127.0.0.1:0") as coordinator,
        callboard.connect_in_thread(coordinator.bootstrap) as remote,
        remote.member("g", resources={"jobs": 1}) as member,
    ):
        assert member.next_assignment(20).shards[0].commit(1).durability == ""


@async_test
async def test_request_cancelled_during_coordinator_lookup_logs_no_error() -> None:
    reported_errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported_errors.append(context))
    async with callboard.Coordinator(listen="127.0.0.1:0") as coordinator:
        channel = await TcpConnector(coordinator.bootstrap).open("one")
        request = asyncio.create_task(channel.ask(Heartbeat("g", "nobody", None, 1)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        request.cancel()
        channel.close()
        await asyncio.wait({request})
        del request, channel
        await asyncio.sleep(0)
        gc.collect()
    assert reported_errors == []
