"""The pages about the server: actors, log, audit trail and settings, and the form of a setting."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from http_api_helpers import Api, run
from page_helpers import Browser, rows

from callboard import Coordinator
from callboard.runtime.web import server_reading
from callboard.runtime.web.page.audit import row_of
from callboard.runtime.web.page.texts import microseconds, setting, size

SETTING = "group_max_session_timeout_ms"


def test_actors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_reading, "RATE_INTERVAL_MIN_S", 0.0)

    async def check(coordinator: Coordinator, api: Api) -> None:
        first = {row.split()[0]: row.split()[1:] for row in rows(await api.page("actors"))[1:]}
        assert first["OffsetWriterActor"][:4] == ["1", "0", "0", "?"]
        await coordinator.reset("images", {("jobs", 0): 0})
        await api.page("actors")
        later = {row.split()[0]: row.split()[1:] for row in rows(await api.page("actors"))[1:]}
        assert later["OffsetWriterActor"][3] != "?"
        assert int(later["OffsetWriterActor"][4]) > int(first["OffsetWriterActor"][4])
        await api.page("actors?sort=x", 400)

    run(check)


def test_log(tmp_path: Path) -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        assert "No partition has records yet." in await api.page("log")
        await coordinator.reset("images", {("jobs", 0): 0})
        await coordinator.restart()
        html = await api.page("log")
        [row] = rows(html)[1:]
        assert re.fullmatch(r"__consumer_offsets-\d+ 1 1 \d+ B 100 % never 0", row)
        assert "<dt>Damages</dt><dd>0</dd>" in html

    run(check, data=tmp_path)


def test_audit_trail_in_pages(tmp_path: Path) -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        for number in range(3):
            await coordinator.reset(f"<b>{number}", {("jobs", 0): 0})
        await coordinator.node.data.files.wait_until_idle()
        html = await api.page("audit?limit=2")
        found = rows(html)[1:]
        assert [row.split(" ")[1] for row in found] == ["changed", "changed"]
        assert "Group:&lt;b&gt;2" in html
        [older] = re.findall(r'rel="next" href="([^"]*)"', html)
        assert "Group:&lt;b&gt;0" in await api.page("audit" + older.replace("&amp;", "&"))

    run(check, data=tmp_path, audit="file")


def test_audit_trail_that_is_off_says_how_to_get_one() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        assert "<code>--set audit=file</code>" in await api.page("audit")

    run(check)


def test_setting_is_changed_with_a_reason_and_back(tmp_path: Path) -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        browser = Browser(coordinator)
        assert f'<a href="/settings/{SETTING}">' in await browser.get("/settings")
        form = await browser.get(f"/settings/{SETTING}")
        assert 'name="back"' not in form
        where = await browser.send(form, {"value": "1700000", "reason": "long sessions"})
        assert where == f"/settings#{SETTING}"
        assert coordinator.settings.group_max_session_timeout_ms == 1_700_000
        [row] = [row for row in rows(await browser.get("/settings")) if row.startswith(SETTING)]
        assert row.startswith(f"{SETTING} 1700000 1800000 dynamic ")
        form = await browser.get(f"/settings/{SETTING}")
        assert 'name="back"' in form
        await browser.send(form, {"value": "1700000", "reason": "as before", "back": "1"})
        assert coordinator.settings.group_max_session_timeout_ms == 1_800_000
        await coordinator.node.data.files.wait_until_idle()
        assert "long sessions" in await browser.get("/audit")

    run(check, data=tmp_path, audit="file")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"value": "soon", "reason": "r"}, "soon"),
        ({"value": "", "reason": "r"}, "expected a value"),
        ({"value": "1700000", "reason": ""}, "expected a text of 1 to"),
    ],
)
def test_form_of_a_setting_shows_why_it_was_refused(fields: dict[str, str], text: str) -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        browser = Browser(coordinator)
        shown = await browser.send(await browser.get(f"/settings/{SETTING}"), fields, 400)
        [problem] = re.findall(r'role="alert">(.*?)</p>', shown, re.DOTALL)
        assert text in problem
        assert coordinator.settings.group_max_session_timeout_ms == 1_800_000

    run(check)


def test_form_of_a_setting_needs_its_token_and_a_dynamic_setting() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        browser = Browser(coordinator)
        form = await browser.get(f"/settings/{SETTING}")
        forged = re.sub(r'name="token" value="\w+"', 'name="token" value="00"', form)
        await browser.send(forged, {"value": "1700000", "reason": "r"}, 403)
        await browser.get("/settings/audit", 404)
        assert coordinator.settings.group_max_session_timeout_ms == 1_800_000

    run(check)


def test_line_of_the_audit_trail_without_a_change() -> None:
    line = {"time": "2026-11-27T02:10:00.123Z", "id": "1", "kind": "authenticated", "principal": "User:a"}
    row = row_of(line | {"mechanism": "SSL", "certificate_serial": "0a"})
    assert (row.time_ms, row.what, row.details) == (1_795_745_400_123, "SSL", {"certificate_serial": "0a"})


def test_texts() -> None:
    assert [microseconds(each) for each in (None, 12.0, 1500.0)] == ["?", "12 µs", "1.5 ms"]
    assert [size(each) for each in (None, 12, 2048, 3 << 20, 5 << 30)] == ["?", "12 B", "2.0 KiB", "3.0 MiB", "5.0 GiB"]
    assert [setting(each) for each in (True, 0.5, "file")] == ["true", "0.5", "file"]
