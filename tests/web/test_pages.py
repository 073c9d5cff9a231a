"""The web page as HTML: what it shows, what it escapes, and how it is kept up to date."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from http_api_helpers import Api, make_groups, run
from page_helpers import rows
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Mount

import callboard.web
from callboard import Coordinator
from callboard.actors.steps import run_steps
from callboard.runtime.kafka.node_lists import last_rebalances
from callboard.runtime.kafka.node_subjects import LastRebalance
from callboard.runtime.web.backend import Unavailable
from callboard.runtime.web.group_rows import GroupRow, Pacer
from callboard.runtime.web.group_table import GroupTable
from callboard.runtime.web.page import streams as streams_module
from callboard.runtime.web.page.pieces import piece_of
from callboard.runtime.web.page.rendering import STATIC, static_file
from callboard.runtime.web.page.streams import STREAMS_MAX, Streams
from callboard.runtime.web.page.table import PAGES
from callboard.runtime.web.page.texts import age, ranges, shorten, shown, when
from callboard.runtime.web.page.topics import line_of
from callboard.runtime.web.page.trends import GROUPS_MAX, Trends
from callboard.runtime.web.snapshots import Snapshot, Snapshots

NAME = 'a\u202eb\n<script>"&'


def test_list_shows_groups_and_leads_to_them() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        await make_groups(coordinator)
        html = await api.page("")
        assert rows(html)[1:] == [
            "images ○ Empty classic - 0 1 0 ? - - 6 days",
            "mails ○ Empty classic - 0 1 0 ? - - 6 days",
            "odd / name ○ Empty classic - 0 1 0 ? - - 6 days",
        ]
        assert 'href="/groups/odd%20%2F%20name"' in html
        assert "<h1>odd / name</h1>" in await api.page("groups/odd%20%2F%20name")

    run(check, offsets_retention_minutes=7 * 24 * 60)


def test_address_of_the_list_has_filters_order_and_place() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        await make_groups(coordinator)
        first = await api.page("?prefix=&state=empty&sort=-group&limit=2")
        assert [row.partition(" ○")[0] for row in rows(first)[1:]] == ["odd / name", "mails"]
        assert 'aria-sort="descending"><a href="?state=empty&amp;sort=group&amp;limit=2"' in first
        [following] = re.findall(r'rel="next" href="([^"]*)"', first)
        second = await api.page(following.replace("&amp;", "&"))
        assert [row.partition(" ○")[0] for row in rows(second)[1:]] == ["images"]
        assert 'href="?state=empty&amp;sort=-group&amp;limit=2">First page' in second
        assert "No group matches" in await api.page("?prefix=none")

    run(check)


def test_page_of_a_group_explains_and_lists() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        await coordinator.reset("images", {("jobs", 0): 0})
        async with coordinator.member("images", resources={"jobs": 3}):
            await api.eventually("groups?state=stable", lambda items: [row["members"] for row in items] == [1])
            html = await api.page("groups/images")
            assert (await coordinator.explain("images")).sentence in html
            assert rows(html)[1] == "jobs 3 3 0"
            [member] = (await coordinator.describe("images")).members
            [_, found] = rows(await api.page("groups/images?tab=members"))
            assert found == f"callboard 127.0.0.1 - ? ? 3 jobs 0-2 {member.member_id}"
            first, *others = rows(await api.page("groups/images?tab=partitions"))[1:]
            assert first.startswith("jobs 0 0 0 0 0 callboard 127.0.0.1 ")
            assert others == [f"jobs {number} - 0 ? - callboard 127.0.0.1 - -" for number in (1, 2)]
            [_, rebalance] = rows(await api.page("groups/images?tab=rebalances"))
            assert "callboard (127.0.0.1) joined Cause new_member" in rebalance

    run(check)


def test_topics_lead_to_their_groups() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        await make_groups(coordinator)
        assert rows(await api.page("topics"))[1:] == ["jobs 3 0 1 0", "mails 1 0 2 0"]
        assert rows(await api.page("topics?prefix=j"))[1:] == ["jobs 3 0 1 0"]
        jobs = rows(await api.page("topics/jobs"))
        assert jobs[1] == "images ○ Empty 0 0"
        assert jobs[3:] == ["0 0 0 0", "1 0 0 0", "2 0 0 0"]
        assert "no group has offsets of it" in await api.page("topics/nowhere", 404)
        assert "expected some of prefix, page" in await api.page("topics?sort=x", 400)

    run(check)


def test_figures_of_a_topic_that_the_server_does_not_have_are_unknown() -> None:
    row = GroupRow("images", "Empty", "classic", "", 0, {"jobs": None}, None)
    snapshot = Snapshot(GroupTable([row], Pacer()), {}, 0.0, 0, 0)
    assert line_of(snapshot, "jobs") == ("jobs", None, None, 1, None)


def test_deleted_group_still_has_its_rebalances() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        async with coordinator.member("images", resources={"jobs": 3}):
            await api.eventually("groups?state=stable", lambda items: [row["members"] for row in items] == [1])
        await coordinator.delete("images")
        html = await api.page("groups/images?tab=rebalances")
        assert "There is no such group" in html or "Became empty" in html
        assert len(rows(html)) > 1
        assert "The group has no members." in await api.page("groups/images?tab=members")

    run(check)


def test_text_of_clients_is_escaped_on_each_page() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        await coordinator.reset(NAME, {("jobs", 0): 0})
        path = "groups/a%E2%80%AEb%0A%3Cscript%3E%22%26"
        for html in (await api.page(""), await api.page(path), await api.page(f"{path}?tab=partitions")):
            assert r"a\u202eb\n&lt;script&gt;&#34;&amp;" in html
            assert NAME not in html
            assert "\u202e" not in html
        assert f'href="/{path}"' in await api.page("")

    run(check)


def test_errors_are_pages_for_people_and_problems_for_programs() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        assert "there is no such group" in await api.page("groups/none", 404)
        assert "min_lag=&#39;x&#39;: expected a whole number" in await api.page("?min_lag=x", 400)
        assert "tab=&#39;x&#39;: expected one of members" in await api.page("groups/none?tab=x", 400)
        assert "nothing is at" in await api.page("nowhere", 404)
        response = await api.request("GET", "http://callboard/api/nowhere")
        assert (response.status_code, response.headers["content-type"]) == (404, "application/problem+json")

    run(check)


def test_page_of_another_name_is_refused_as_a_page() -> None:
    async def check(coordinator: Coordinator, _: Api) -> None:
        api = Api(callboard.web.app(coordinator, hosts=("localhost",)))
        assert "expected one of localhost" in await api.page("", 421)

    run(check)


@pytest.mark.parametrize(
    ("path", "quoted"),
    [("/tools/groups", "/tools/groups"), ("/a b", "/a%20b"), ("/größe 100%", "/gr%C3%B6%C3%9Fe%20100%25")],
)
def test_links_of_a_mounted_page_begin_with_its_path(path: str, quoted: str) -> None:
    async def check(coordinator: Coordinator, _: Api) -> None:
        await make_groups(coordinator)
        api = Api(Starlette(routes=[Mount(path, callboard.web.app(coordinator))]))
        html = await api.page(f"{quoted[1:]}/")
        links = re.findall(r'(?:href|src|action)="(/[^"]*)"', html)
        assert links
        assert [link for link in links if not link.startswith(f"{quoted}/")] == []
        assert "<h1>mails</h1>" in await api.page(f"{quoted[1:]}/groups/mails")
        assert "<h1>odd / name</h1>" in await api.page(f"{quoted[1:]}/groups/odd%20%2F%20name")
        listed = await api.request("GET", f"http://callboard{quoted}/api/v1/groups")
        assert listed.status_code == 200

    run(check)


def test_files_are_kept_by_browsers_and_pages_are_not() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        html = await api.page("")
        for name, media_type in STATIC.items():
            [address] = re.findall(rf'"(/static/{name}\?\w+)"', html)
            response = await api.request("GET", f"http://callboard{address}")
            assert response.content == static_file(name)
            assert response.headers["content-type"].partition(";")[0] == media_type
            assert "immutable" in response.headers["cache-control"]
        page = await api.request("GET", "http://callboard/")
        assert page.headers["cache-control"] == "no-store"
        assert page.headers["content-security-policy"].startswith("default-src 'self';")
        assert (await api.request("GET", "http://callboard/static/other")).status_code == 404

    run(check)


def test_no_template_has_scripts_or_styles_that_the_policy_forbids() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        await make_groups(coordinator)
        for page in PAGES:
            names = {"group": "mails", "topic": "mails", "change": "none"}
            path = page.path.removeprefix("/").format(**names)
            html = await api.page(path, 404 if "change" in page.path else 200)
            assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:|<script>", html)

    run(check)


def test_list_names_the_nodes_that_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        await make_groups(coordinator)
        assert "Groups are missing" not in await api.page("")
        get = Snapshots.get

        async def get_incomplete(self: Snapshots) -> Snapshot:
            return (await get(self))._replace(incomplete=(2, 5))

        monkeypatch.setattr(Snapshots, "get", get_incomplete)
        assert "Groups are missing: nodes 2, 5 of the cluster do not answer." in await api.page("")

    run(check)


def test_lag_of_groups_that_are_shown_has_a_trend() -> None:
    trends = Trends()
    trends.note({"images": 100, "mails": None}, 0)
    assert trends.per_minute("images", 100, 29_000) is None
    assert trends.per_minute("images", 40, 30_000) == -120
    assert trends.per_minute("images", None, 30_000) is None
    assert trends.per_minute("mails", None, 30_000) is None
    for second in range(0, 3600, 10):
        trends.note({"images": 100 + second}, second * 1000)
    assert trends.per_minute("images", 3700, 3_600_000) == 60
    trends.note({str(number): 7 for number in range(GROUPS_MAX)}, 3_600_000)
    assert trends.per_minute("images", 100, 3_600_000) is None  # it is not shown any more


def test_counter_that_begins_again_has_no_trend_at_first() -> None:
    trends = Trends(is_counter=True)
    trends.note({"images": 100}, 0)
    trends.note({"images": 160}, 60_000)
    assert trends.per_minute("images", 160, 60_000) == 60
    trends.note({"images": 2}, 61_000)
    assert trends.per_minute("images", 2, 61_000) is None
    trends.note({"images": 12}, 91_000)
    assert trends.per_minute("images", 12, 91_000) == 20


def test_rebalances_of_the_last_hour_are_counted() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        async with coordinator.member("images", resources={"jobs": 3}):
            await api.eventually("groups?state=stable", lambda items: [row["members"] for row in items] == [1])
            await coordinator.rebalances("images")  # the record is complete
            assert rows(await api.page(""))[1].endswith("just now new member 1 -")
            recorder, [record] = coordinator.node.groups.event_log.recorder, await coordinator.rebalances("images")
            later_ms = record.ended_ms + 3_600_000
            last = LastRebalance("images", record.ended_ms, "new_member", 0)
            assert run_steps(last_rebalances(recorder, ["images", "none"], later_ms)).rebalances == (last,)
            [read] = run_steps(last_rebalances(recorder, ["images"], later_ms - 1)).rebalances
            assert read.in_an_hour == 1
            [listed, *_] = await api.items("groups")
            assert listed["last_rebalance"] == {"ended_ms": record.ended_ms, "cause": "new_member", "in_an_hour": 1}

    run(check)


def test_long_tables_have_pages() -> None:
    rows = range(1001)
    first, last = piece_of(rows, 1, tab="members"), piece_of(rows, 9, tab="members")
    assert (first.rows, first.first, first.previous) == (range(500), 0, None)
    assert first.next == "?tab=members&page=2"
    assert (last.rows, last.first, last.next) == (range(1000, 1001), 1000, None)
    assert last.previous == "?tab=members&page=2"
    assert piece_of((), 1) == ((), 0, 0, None, None)


# Texts ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("numbers", "text"), [((), ""), ((3,), "3"), ((2, 0, 1), "0-2"), ((0, 1, 3, 5, 6), "0-1, 3, 5-6")]
)
def test_ranges(numbers: tuple[int, ...], text: str) -> None:
    assert ranges(numbers) == text


def test_long_texts_are_shortened() -> None:
    assert shorten("jobs 0, 8", 9) == "jobs 0, 8"
    assert shorten("jobs 0, 8, 16, 24", 14) == "jobs 0, 8, …"
    assert shorten("x" * 20, 10) == "xxxxxxxx …"


def test_times() -> None:
    noon = 1_795_780_800_000
    assert when(noon, noon + 60_000) == "12:00:00"
    assert when(noon, noon + 86_400_000) == "2026-11-27 12:00:00"
    assert [age(noon, noon + seconds * 1000) for seconds in (-5, 59, 60, 150, 7200)] == [
        *("just now", "just now", "1 min ago", "2 min ago", "2 h ago")
    ]


def test_only_texts_are_escaped() -> None:
    values: list[Any] = [None, 1, "a\tb"]
    assert [shown(value) for value in values] == [None, 1, "a\\tb"]


# Streams -------------------------------------------------------------------------------------------------------------


class Fragments:
    """Makes the contents of a page one after the other, and at the end raises."""

    def __init__(self, *contents: str) -> None:
        self._contents = list(contents)

    async def make(self) -> str:
        if not self._contents:
            raise ValueError("it is gone")
        return self._contents.pop(0)


async def events_of(streams: Streams, fragments: Fragments) -> list[str]:
    response = streams.open(fragments.make, str)
    assert isinstance(response, StreamingResponse)
    return [str(event) async for event in response.body_iterator]


def test_stream_sends_a_page_when_it_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams_module, "INTERVAL_S", 0)
    monkeypatch.setattr(streams_module, "STREAM_S", 0.1)
    first, *events = asyncio.run(events_of(Streams(), Fragments("a\nb", "a\nb", "c")))
    assert first == "retry: 500\n\n"
    assert events[:3] == [
        "event: page\ndata: a\ndata: b\n\n",
        "event: page\ndata: c\n\n",
        "event: problem\ndata: it is gone\n\n",
    ]
    assert set(events[3:]) <= {":\n\n"}  # nothing changes any more


def test_streams_are_limited_and_counted() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        await make_groups(coordinator)
        streams = Streams()
        opened = [streams.open(Fragments("a").make, str) for _ in range(STREAMS_MAX)]
        iterators = [aiter(response.body_iterator) for response in opened if isinstance(response, StreamingResponse)]
        for iterator in iterators:
            await anext(iterator)
        with pytest.raises(Unavailable, match="16 pages are updated at a time"):
            streams.open(Fragments("a").make, str)
        await iterators[0].aclose()  # type: ignore[attr-defined]
        streams.open(Fragments("a").make, str)
        for iterator in iterators[1:]:
            await iterator.aclose()  # type: ignore[attr-defined]

    run(check)


def test_page_is_streamed_at_its_own_address() -> None:
    async def check(coordinator: Coordinator, _: Api) -> None:
        await make_groups(coordinator)
        page = next(page for page in PAGES if page.path == "/groups/{group}")
        assert page.is_live
        app = callboard.web.app(coordinator)
        sent: list[bytes] = []
        gone = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message.get("body", b""))
            if b"event: page" in b"".join(sent):
                gone.set()

        headers = [(b"host", b"callboard"), (b"accept", b"text/event-stream")]
        scope = {"type": "http", "method": "GET", "path": "/groups/mails", "query_string": b"", "headers": headers}
        await app({**scope, "raw_path": b"/groups/mails"}, receive, send)
        content = b"".join(sent).decode()
        assert "data: <h1>mails</h1>" in content
        assert "<html" not in content

    run(check)
