"""The HTTP API with odd names, origins and bodies, and with groups that cannot be read."""

from __future__ import annotations

import pytest
from http_api_helpers import JSON, REASON, Api, make_groups, run

from callboard import Coordinator, CoordinatorError
from callboard.runtime.web import backend as backend_module
from callboard.runtime.web.snapshots import Snapshots


def test_name_that_utf_8_has_not_breaks_no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Admin methods refuse such a group, so this one does without their check."""
    monkeypatch.setattr("callboard.runtime.embed.admin.check_group", lambda group: None)

    async def check(coordinator: Coordinator, api: Api) -> None:
        with pytest.raises(CoordinatorError):
            await coordinator.reset("half \ud800", {("jobs", 0): 0})
        rows = await api.eventually("groups", bool)
        assert [row["group"] for row in rows] == ["half \ud800"]
        assert "half \\ud800" in await api.page("")

    run(check)


def test_origin_that_is_no_url_is_refused() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        for origin in ("http://[::1", "null", ""):
            response = await api.request("DELETE", "groups/none", REASON, {**JSON, "origin": origin})
            assert response.status_code == 403

    run(check)


def test_empty_list_of_members_is_not_all_members() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        async with coordinator.member("images", resources={"jobs": 3}):
            await api.eventually("groups", lambda rows: [row["members"] for row in rows] == [1])
            for name in ("members", "instances"):
                response = await api.request("POST", "groups/images/evict", REASON | {name: []})
                assert response.status_code == 400
                assert f"{name} []: expected a list of 1 to" in response.json()["detail"]
            assert len(await api.items("groups/images/members")) == 1

    run(check)


def test_change_is_answered_though_its_group_cannot_be_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(snapshots: Snapshots, group: str) -> None:
        raise backend_module.Unavailable("the coordinator has not answered for 2 s")

    async def check(coordinator: Coordinator, api: Api) -> None:
        await make_groups(coordinator)
        await api.items("groups")
        monkeypatch.setattr(Snapshots, "reread", fail)
        assert await api.change("DELETE", "groups/mails") == {"group": "mails"}
        assert (await api.request("DELETE", "groups/mails", REASON)).json()["error"] == "GROUP_ID_NOT_FOUND"

    run(check)


def test_groups_of_a_topic_have_pages() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        await make_groups(coordinator)
        first = await api.json("topics/mails/groups?limit=1")
        assert [row["group"] for row in first["items"]] == ["mails"]
        second = await api.json(f"topics/mails/groups?limit=1&after={first['after']}")
        assert [row["group"] for row in second["items"]] == ["odd / name"]
        assert second["after"] is None
        for query in ("after=", "after=%F0", "limit=0", "limit=1&limit=1", "sort=lag"):
            assert (await api.request("GET", f"topics/mails/groups?{query}")).status_code == 400

    run(check)
