"""What a member logs: its shards, and the outages of its coordinator."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest
from member_helpers import (
    GROUP,
    ScriptedConnector,
    in_virtual_time,
    local_coordinator,
    member_on_loop_time,
    next_assignment_of,
    wait_until,
)

from callboard.actors.errors import ErrorCode
from callboard.actors.messages import Heartbeat, OffsetCommit
from callboard.actors.text import LogLine
from callboard.runtime.member.channel import ChannelLost
from callboard.runtime.member.member_log import SHARDS_NAMED_MAX
from callboard.runtime.member.shards import Shard

LOGGER = "callboard.member"
JOBS = {"jobs": 4}


def events(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, object]]]:
    """The lines with fields, since the last call."""
    lines = [record.msg for record in caplog.records if record.name == LOGGER and record.levelno >= logging.INFO]
    caplog.clear()
    return [(line.event, dict(line.fields)) for line in lines if isinstance(line, LogLine)]


@in_virtual_time
async def test_member_logs_each_assignment_and_what_it_gave_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    async with local_coordinator() as connector, member_on_loop_time(connector, resources=JOBS) as ann:
        await next_assignment_of(ann, 4)
        whole = {"group": GROUP, "member_id": ann.member_id, "generation": 1, "count": 4, "owned": 4}
        assert events(caplog) == [("shards assigned", {**whole, "shards": "jobs/0 jobs/1 jobs/2 jobs/3"})]
        async with member_on_loop_time(connector, resources=JOBS) as bob:
            await next_assignment_of(bob, 2)
            lines = events(caplog)
            kept = [
                (event, fields["count"], fields["owned"])
                for event, fields in lines
                if fields["member_id"] != bob.member_id
            ]
            assert kept == [("shards given back", 2, 2)]
            [got] = [(event, fields["count"]) for event, fields in lines if fields["member_id"] == bob.member_id]
            assert got == ("shards assigned", 2)
        bobs = [(event, fields["count"], fields["owned"]) for event, fields in events(caplog)]
        assert bobs[0] == ("shards given back", 2, 0)


@in_virtual_time
async def test_line_names_a_few_of_many_shards(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    async with local_coordinator() as connector, member_on_loop_time(connector, resources={"jobs": 1000}) as ann:
        await next_assignment_of(ann, 1000)
    fields = events(caplog)[0][1]
    assert (fields["count"], str(fields["shards"]).count("jobs/")) == (1000, SHARDS_NAMED_MAX)
    assert str(fields["shards"]).endswith(" ...")


def messages(caplog: pytest.LogCaptureFixture, is_wanted: Callable[[str], bool]) -> list[str]:
    texts = [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]
    return [text for text in texts if is_wanted(text)]


@in_virtual_time
async def test_outage_is_one_line_when_it_begins_and_one_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    connector = ScriptedConnector()
    async with member_on_loop_time(connector, resources={"jobs": 1}) as member:
        await next_assignment_of(member)
        connector.answer_next(Heartbeat, *[ChannelLost("the network is down")] * 5)
        seen = connector.count(Heartbeat)
        await wait_until(lambda: connector.count(Heartbeat) > seen + 6)
        await asyncio.sleep(1)
    assert len(messages(caplog, lambda text: text.startswith("no answer to a heartbeat"))) == 1
    assert len(messages(caplog, lambda text: text.endswith("again"))) == 1


@in_virtual_time
async def test_commit_that_is_refused_for_long_is_a_warning_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise a member whose coordinator has a failed disk waits without a sign, while heartbeats are answered."""
    connector = ScriptedConnector()
    async with member_on_loop_time(connector, resources={"jobs": 2}) as member:
        first, second = (await next_assignment_of(member, 2)).shards
        connector.answer_next(OffsetCommit, *[ErrorCode.NOT_COORDINATOR] * 4)
        await asyncio.gather(first.commit(1), second.commit(1))
        assert events(caplog) == []
        connector.answer_next(OffsetCommit, *[ErrorCode.NOT_COORDINATOR] * 200)
        begin_s = asyncio.get_running_loop().time()
        await asyncio.gather(first.commit(1), second.commit(1))
        minutes = (asyncio.get_running_loop().time() - begin_s - 5) / 60
    lines = events(caplog)
    assert 1 < len(lines) <= minutes + 1
    assert {(event, fields["error"]) for event, fields in lines} == {
        ("commits are refused and retried", "NOT_COORDINATOR")
    }


@in_virtual_time
async def test_shards_lost_after_a_silent_coordinator_are_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    connector = ScriptedConnector()
    async with member_on_loop_time(connector, resources={"jobs": 1}) as member:
        await next_assignment_of(member)
        connector.answer_next(Heartbeat, *[ChannelLost("the network is down")] * 500)
        await wait_until(lambda: not member.shards)
    [(event, fields)] = events(caplog)
    assert (event, fields["shards"]) == ("shards lost", "jobs/0")
    assert "its lease is over" in str(fields["reason"])


@in_virtual_time
async def test_handler_that_other_code_has_cancelled_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """As that of a handler which awaits a task of another one. Nothing else tells that the shard has no worker."""
    shared = asyncio.get_running_loop().create_future()
    started: list[Shard] = []

    async def handler(shard: Shard) -> None:
        started.append(shard)
        await (shared if shard.name == 0 else asyncio.sleep(1e6))

    async with member_on_loop_time(ScriptedConnector(), resources={"jobs": 2}) as member:
        running = asyncio.create_task(member.run(handler))
        await wait_until(lambda: len(started) == 2)
        shared.cancel()
        await asyncio.sleep(0.1)
        await member.leave()
        await running
    [warning] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.startswith("the handler of Shard('jobs', 0, ") and "was cancelled, but not by the member" in warning
