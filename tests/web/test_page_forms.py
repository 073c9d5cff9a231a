"""The forms of the web page: the plan, what is asked for before a change is made, and who cannot make one."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from http_api_helpers import Api, make_groups, run
from page_helpers import ORIGIN, Browser

from callboard import Coordinator
from callboard.runtime.web.page import tokens

REASON = {"reason": "release 7 skipped jobs"}


@asynccontextmanager
async def member_of(coordinator: Coordinator, api: Api, group: str) -> AsyncIterator[str]:
    """A group with a member that has three partitions. The member id."""
    async with coordinator.member(group, client_id="worker-1", resources={"jobs": 3}):
        await api.eventually(
            f"groups?state=stable&prefix={group}", lambda items: [row["members"] for row in items] == [1]
        )
        yield (await coordinator.describe(group)).members[0].member_id


def table(page: str) -> list[str]:
    rows = re.findall(r"<tr id=.*?</tr>", page, re.DOTALL)
    return [" ".join(re.sub(r"<[^>]*>", " ", row).replace("\N{EN DASH}", "-").split()) for row in rows]


def test_reset_is_planned_confirmed_made_watched_and_undone(tmp_path: Path) -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        browser = Browser(coordinator)
        await coordinator.reset("images", {("jobs", 0): 7})
        async with member_of(coordinator, api, "images"):
            assert 'method="post"' not in await browser.get("/groups/images/reset")
            plan = await browser.get("/groups/images/reset?topic=jobs&to=latest")
            assert "1 of 1 member is removed" in plan
            assert table(plan) == ["jobs 0 7 0 7 again", "jobs 1 none 0 -", "jobs 2 none 0 -"]
            assert (await coordinator.offsets("images"))["jobs", 0].offset == 7

            assert "reason &#39;&#39;: expected" in await browser.send(plan, {"name": "images"}, 400)
            assert "expected that of the group" in await browser.send(plan, REASON | {"name": "image"}, 400)
            assert (await coordinator.offsets("images"))["jobs", 0].offset == 7

            where = await browser.send(plan, REASON | {"name": "images"})
            assert {key: offset.offset for key, offset in (await coordinator.offsets("images")).items()} == {
                ("jobs", 0): 0,
                ("jobs", 1): 0,
                ("jobs", 2): 0,
            }
            await api.eventually("groups/images/members", lambda items: len(items) == 1)
            done = await browser.get(where)
            assert "is back" in done
            assert "release 7 skipped jobs" in done
            assert table(done)[1:] == ["jobs 0 7 0 7 again", "jobs 1 none 0 -", "jobs 2 none 0 -"]

            change = where.rpartition("/")[2]
            await coordinator.reset("mails", {("mails", 0): 0})
            await browser.get(f"/groups/mails/reset?undo={change}", 404)  # a change of another group
            undo = await browser.get(f"/groups/images/reset?undo={change}")
            await browser.send(undo, REASON | {"name": "images"})
            assert {key: offset.offset for key, offset in (await coordinator.offsets("images")).items()} == {
                ("jobs", 0): 7
            }

    run(check, data=tmp_path, audit="file")
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [line["reason"] for line in lines if line.get("reason")] == [REASON["reason"]] * 2


@pytest.mark.parametrize("path", ["/groups of jobs", "/100%"])
def test_form_of_a_mounted_page_makes_its_change(path: str) -> None:
    async def check(coordinator: Coordinator, _: Api) -> None:
        await make_groups(coordinator)
        browser, quoted = Browser(coordinator, mounted_at=path), quote(path)
        where = await browser.send(await browser.get(f"{quoted}/groups/mails/delete"), REASON)
        assert where.startswith(f"{quoted}/changes/")
        assert "release 7 skipped jobs" in await browser.get(where)

    run(check)


def test_chosen_members_are_removed() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        browser = Browser(coordinator)
        async with member_of(coordinator, api, "images") as member_id:
            assert f'name="member" value="{member_id}"' in await browser.get("/groups/images?tab=members")
            assert "no member was ticked" in await browser.get("/groups/images/evict?ticked=yes", 400)
            assert "it is not in the group any more" in await browser.get("/groups/images/evict?member=none", 400)
            plan = await browser.get(f"/groups/images/evict?ticked=yes&member={member_id}")
            await browser.send(plan, REASON | {"name": "images"})
            records = await coordinator.rebalances("images")
            assert any(record.why.cause == "evicted" for record in records)
        assert "The group has no members." in await browser.get("/groups/images/evict")

    run(check)


def test_counts_of_one_are_in_the_singular() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        await coordinator.reset("images", {("jobs", 0): 0})
        assert ">the only topic of the group<" in await api.page("groups/images/reset")
        assert ">the only topic of the group<" in await api.page("groups/images/delete-offsets")
        assert "Show the only group" in await api.page("?prefix=nowhere")
        await coordinator.reset("images", {("mails", 0): 0})
        assert ">all 2 topics of the group<" in await api.page("groups/images/reset")
        await coordinator.reset("mails", {("mails", 0): 0})
        await api.eventually("groups", lambda items: len(items) == 2)
        assert "Show all 2 groups" in await api.page("?prefix=nowhere")

    run(check)


def test_offsets_and_groups_are_deleted() -> None:
    async def check(coordinator: Coordinator, _: Api) -> None:
        browser = Browser(coordinator)
        await make_groups(coordinator)
        plan = await browser.get("/groups/images/delete-offsets?ticked=yes&partition=jobs:1")
        assert table(plan) == ["jobs 1 0 none -"]
        assert 'name="name"' not in plan  # it has no members
        done = await browser.get(await browser.send(plan, REASON))
        assert "The change is durable." in done
        assert list(await coordinator.offsets("images")) == [("jobs", 0)]
        assert "partition &#39;jobs&#39;: expected" in await browser.get(
            "/groups/images/delete-offsets?partition=jobs", 400
        )

        plan = await browser.get("/groups/odd%20%2F%20name/delete")
        done = await browser.get(await browser.send(plan, REASON))
        assert table(done) == ["mails 0 0 none -"]
        await browser.get("/groups/odd%20%2F%20name", 404)

    run(check)


def test_group_with_members_is_not_deleted() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        browser = Browser(coordinator)
        await make_groups(coordinator)
        async with member_of(coordinator, api, "images"):
            page = await browser.get("/groups/images/delete")
            assert "stop its consumers first" in page
            assert 'method="post"' not in page
            token = {"token": await token_of(browser)}
            refused = await browser.post(
                "/groups/images/delete", httpx.QueryParams(REASON | token | {"name": "images"})
            )
            assert (refused.status_code, "NON_EMPTY_GROUP" in refused.text) == (409, True)

    run(check)


async def token_of(browser: Browser) -> str:
    [token] = re.findall(r'name="token" value="(\w+)"', await browser.get("/groups/mails/delete"))
    return str(token)


def test_errors_of_choices_are_shown_on_the_form() -> None:
    async def check(coordinator: Coordinator, _: Api) -> None:
        browser = Browser(coordinator)
        await make_groups(coordinator)
        for query, status, text in (
            ("topic=jobs&to=offset&offset=x", 400, "offset=&#39;x&#39;: expected a whole number"),
            ("topic=jobs&to=yesterday", 400, "expected one of earliest, latest, offset"),
            ("topic=nowhere&to=latest", 404, "nowhere"),
            ("undo=1", 404, "there is no record of it here"),
            ("to=time&time=yesterday", 400, "expected ISO 8601"),
            ("to=shift&shift=-x", 400, "shift=&#39;x&#39;: expected a whole number"),
            ("to=group", 400, "expected the id of another group"),
        ):
            page = await browser.get(f"/groups/images/reset?{query}", status)
            assert text in page.partition('role="alert"')[2].partition("</p>")[0]
            assert 'method="post"' not in page
        await browser.get("/groups/none/reset", 404)
        await browser.get("/changes/none", 404)

    run(check)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/json"}, 415),
    ],
)
def test_forms_of_other_sites_are_refused(headers: dict[str, str], status: int) -> None:
    async def check(coordinator: Coordinator, _: Api) -> None:
        browser = Browser(coordinator)
        await make_groups(coordinator)
        fields = httpx.QueryParams(REASON | {"token": await token_of(browser)})
        refused = await browser.post("/groups/mails/delete", fields, **headers)
        assert refused.status_code == status
        await coordinator.describe("mails")
        made = await browser.post("/groups/mails/delete", fields, **{"sec-fetch-site": "same-origin"})
        assert made.status_code == 303

    run(check)


def test_form_without_origin_is_refused() -> None:
    async def check(coordinator: Coordinator, _: Api) -> None:
        browser = Browser(coordinator)
        await make_groups(coordinator)
        fields = REASON | {"token": await token_of(browser)}
        assert (await browser.client.post("/groups/mails/delete", data=fields)).status_code == 403
        await coordinator.describe("mails")

    run(check)


def test_form_needs_the_token_of_its_browser_user_and_process() -> None:
    async def check(coordinator: Coordinator, _: Api) -> None:
        await make_groups(coordinator)
        browser, other = Browser(coordinator), Browser(coordinator)
        token = await token_of(browser)
        other.client.cookies = browser.client.cookies
        for sender, fields in ((browser, {}), (browser, {"token": "0" * 64}), (other, {"token": token})):
            refused = await sender.post("/groups/mails/delete", httpx.QueryParams(REASON | fields))
            assert (refused.status_code, "reload it" in refused.text) == (403, True)
        browser.client.cookies.clear()
        refused = await browser.post("/groups/mails/delete", httpx.QueryParams(REASON | {"token": token}))
        assert refused.status_code == 403
        browser.client.cookies.set(tokens.COOKIE, "0" * 32)  # of somebody who can set cookies, but not read the page
        refused = await browser.post("/groups/mails/delete", httpx.QueryParams(REASON | {"token": token}))
        assert refused.status_code == 403
        await coordinator.describe("mails")

    run(check)


def test_token_of_another_user_is_refused() -> None:
    async def check(coordinator: Coordinator, _: Api) -> None:
        await make_groups(coordinator)
        browser = Browser(coordinator, trusted_header="X-User")
        browser.client.headers["X-User"] = "ann"
        token = await token_of(browser)
        fields = httpx.QueryParams(REASON | {"token": token})
        assert (await browser.post("/groups/mails/delete", fields, **{"X-User": "bob"})).status_code == 403
        id_ = browser.client.cookies[tokens.COOKIE]
        browser.client.headers["X-User"] = "x bob"  # of this user with this cookie is not of bob with a longer one
        fields_of_x_bob = httpx.QueryParams(REASON | {"token": await token_of(browser)})
        longer = {"X-User": "bob", "cookie": f'{tokens.COOKIE}="{id_} x"'}
        assert (await browser.post("/groups/mails/delete", fields_of_x_bob, **longer)).status_code == 403
        browser.client.headers["X-User"] = "ann"
        made = await browser.post("/groups/mails/delete", fields)
        assert "<dd>ann</dd>" in await browser.get(made.headers["location"])

    run(check)


def test_cookie_is_strict_and_not_for_scripts() -> None:
    async def check(coordinator: Coordinator, _: Api) -> None:
        await make_groups(coordinator)
        response = await Browser(coordinator).client.get("/groups/mails/delete")
        attributes = {part.strip().lower() for part in response.headers["set-cookie"].split(";")[1:]}
        assert attributes == {"httponly", "path=/", "samesite=strict"}

    run(check)


def test_body_that_is_no_form_is_refused() -> None:
    async def check(coordinator: Coordinator, _: Api) -> None:
        await make_groups(coordinator)
        browser = Browser(coordinator)
        for body in (b"reason=%FF", b"\xff", b"a=1&" * 20_001):
            headers = {"content-type": "application/x-www-form-urlencoded", "origin": ORIGIN}
            response = await browser.client.post("/groups/mails/delete", content=body, headers=headers)
            assert (response.status_code, "expected a form in UTF-8 with at most" in response.text) == (400, True)

    run(check)
