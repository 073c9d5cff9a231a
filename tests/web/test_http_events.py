"""Changes of groups as server-sent events: what is sent, how a stream goes on, and where it ends."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

import pytest
from http_api_helpers import Api, make_groups, run
from starlette.requests import Request
from starlette.responses import StreamingResponse

from callboard import Coordinator
from callboard.runtime.embed.port import port_of
from callboard.runtime.web import events as events_module
from callboard.runtime.web.backend import Backend, Unavailable
from callboard.runtime.web.change_log import ChangeLog
from callboard.runtime.web.events import GroupEvents
from callboard.runtime.web.group_list import BadParameter
from callboard.runtime.web.snapshots import Snapshots


def request(last_id: str | None = None, query: bytes = b"") -> Request:
    headers = [] if last_id is None else [(b"last-event-id", last_id.encode())]
    return Request({"type": "http", "method": "GET", "path": "/events", "query_string": query, "headers": headers})


async def pieces(events: GroupEvents, last_id: str | None = None) -> AsyncGenerator[str, None]:
    response = await events.open(request(last_id))
    assert isinstance(response, StreamingResponse)
    body = cast(AsyncGenerator[bytes, None], response.body_iterator)
    async with aclosing(body):
        async for piece in body:
            yield piece.decode()


def parsed(text: str) -> list[tuple[str, Any]]:
    """The name and the data of each event."""
    found = []
    for event in text.split("\n\n"):
        fields = dict(line.partition(": ")[::2] for line in event.splitlines())
        if "event" in fields:
            found.append((fields["event"], json.loads(fields["data"])))
    return found


def id_of(text: str) -> str:
    return text.rpartition("id: ")[2].partition("\n")[0]


async def opened(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> tuple[Snapshots, GroupEvents]:
    monkeypatch.setattr(events_module, "INTERVAL_S", 0.0)
    snapshots = Snapshots(Backend(port_of(coordinator)))
    await snapshots.get()
    return snapshots, GroupEvents(snapshots)


def test_changes_are_sent_and_a_stream_goes_on_after_the_last_id(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(coordinator: Coordinator, _: Api) -> None:
        snapshots, events = await opened(coordinator, monkeypatch)
        stream = pieces(events)
        assert await anext(stream) == "retry: 3000\n\n"
        await make_groups(coordinator)
        await snapshots.reread("mails")
        piece = await anext(stream)
        [(name, row)] = parsed(piece)
        assert (name, row["group"], row["topics"]) == ("group", "mails", ["mails"])
        await stream.aclose()
        await coordinator.delete("mails")
        await snapshots.reread("mails")
        resumed = pieces(events, id_of(piece))
        assert await anext(resumed) == "retry: 3000\n\n"
        assert parsed(await anext(resumed)) == [("deleted", {"group": "mails"})]
        await resumed.aclose()
        await snapshots.close()

    run(check)


@pytest.mark.parametrize("last_id", ["other-0", "", "x" * 100])
def test_id_of_another_process_means_that_changes_were_missed(last_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(coordinator: Coordinator, _: Api) -> None:
        snapshots, events = await opened(coordinator, monkeypatch)
        stream = pieces(events, last_id)
        await anext(stream)
        piece = await anext(stream)
        assert [name for name, _ in parsed(piece)] == ["missed"]
        assert snapshots.log.parse_id(id_of(piece)) == snapshots.log.number
        await stream.aclose()
        await snapshots.close()

    run(check)


def test_stream_of_a_client_that_falls_behind_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(coordinator: Coordinator, _: Api) -> None:
        snapshots, events = await opened(coordinator, monkeypatch)
        snapshots.log = ChangeLog(kept=2)
        stream = pieces(events)
        await anext(stream)
        assert await anext(stream) == ":\n\n"
        snapshots.log.add(["a", "b", "c"])
        assert [name for name, _ in parsed("".join([piece async for piece in stream]))] == ["behind"]
        await snapshots.close()

    run(check)


def test_silent_stream_has_comments_and_streams_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(coordinator: Coordinator, _: Api) -> None:
        monkeypatch.setattr(events_module, "STREAMS_MAX", 1)
        snapshots, events = await opened(coordinator, monkeypatch)
        stream = pieces(events)
        await anext(stream)
        assert await anext(stream) == ":\n\n"
        with pytest.raises(Unavailable):
            await events.open(request())
        await stream.aclose()
        again = pieces(events)
        assert await anext(again)
        await again.aclose()
        with pytest.raises(BadParameter):
            await events.open(request(query=b"group=a"))
        await snapshots.close()

    run(check)


def test_numbers_of_changes() -> None:
    log = ChangeLog(kept=3)
    log.add("ab")
    assert log.since(0) == ["a", "b"]
    log.add("cd")
    assert (log.since(1), log.since(4), log.since(0), log.since(5), log.since(-1)) == (
        ["b", "c", "d"],
        [],
        None,
        None,
        None,
    )
    log.add("efghij")
    assert (log.number, log.since(7), log.since(6)) == (10, ["h", "i", "j"], None)
    assert log.parse_id(log.format_id(3)) == 3
    assert log.parse_id("3") is None
