"""Requests that the HTTP server refuses are in the audit trail."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from audit_helpers import audit_lines
from http_api_helpers import JSON, REASON, Api, run
from page_helpers import ORIGIN, Browser

import callboard.web
from callboard import Coordinator

FIELDS = ("kind", "principal", "listener", "mechanism", "reason", "operation", "resource", "count")


def refusals(folder: Path) -> list[dict[str, Any]]:
    lines = [line for line in audit_lines(folder) if line["kind"] in ("refused", "denied")]
    return [{name: line[name] for name in FIELDS if name in line} for line in lines]


def test_requests_without_a_user_are_one_line(tmp_path: Path) -> None:
    async def check(coordinator: Coordinator, _: Api) -> None:
        api = Api(callboard.web.app(coordinator, trusted_header="X-User"))
        for path in ("groups", "groups/images", "http://callboard/audit"):
            assert (await api.request("GET", path)).status_code == 401
        assert (await api.request("GET", "groups", headers={"X-User": "ann"})).status_code == 200

    run(check, data=tmp_path, audit="file")
    [line] = refusals(tmp_path)
    assert line.pop("reason").startswith("the header X-User is missing, empty or there twice")
    assert line == {
        "kind": "refused",
        "principal": "User:ANONYMOUS",
        "listener": "web",
        "mechanism": "HTTP",
        "count": 3,
    }


def test_changes_of_other_sites_and_forms_without_a_token_are_recorded(tmp_path: Path) -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        evil = JSON | {"origin": "https://evil.example"}
        assert (await api.request("DELETE", "groups/images", REASON, evil)).status_code == 403
        await coordinator.reset("images", {("jobs", 0): 0})
        browser = Browser(coordinator)
        page = await browser.get("/groups/images/delete")
        browser.client.cookies.clear()
        await browser.send(page, REASON, 403)
        assert (await api.request("GET", "groups/none")).status_code == 404

    run(check, data=tmp_path, audit="file")
    reasons = sorted(line["reason"] for line in refusals(tmp_path))
    assert [reason[:45] for reason in reasons] == [
        "Origin 'https://evil.example': expected none,",
        "the form is not of this server since its star",
    ]


def test_change_of_a_setting_that_is_not_allowed_is_a_denial(tmp_path: Path) -> None:
    async def check(coordinator: Coordinator, _: Api) -> None:
        api = Api(callboard.web.app(coordinator, trusted_header="X-User"))
        body = REASON | {"values": {"group_max_session_timeout_ms": 1_700_000}}
        refused = await api.request("PATCH", "settings", body, JSON | {"X-User": "ann"})
        assert (refused.status_code, refused.json()["error"]) == (403, "CLUSTER_AUTHORIZATION_FAILED")

    run(check, data=tmp_path, audit="file")
    [line] = refusals(tmp_path)
    assert line == {
        "kind": "denied",
        "principal": "User:ann",
        "listener": "web",
        "operation": "ALTER_CONFIGS",
        "resource": "Cluster:kafka-cluster",
        "count": 1,
    }


def test_request_is_refused_while_the_coordinator_does_not_run() -> None:
    async def check(_: Coordinator, __: Api) -> None:
        api = Api(callboard.web.app(Coordinator(), trusted_header="X-User"))
        assert (await api.request("GET", "groups")).status_code == 401

    run(check)


@pytest.mark.parametrize("reason", ["half \ud83d", "\udc00"])
def test_reason_with_half_of_a_character_is_refused(reason: str) -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        await coordinator.reset("images", {("jobs", 0): 0})
        refused = await api.request("DELETE", "groups/images", {"reason": reason})
        assert refused.status_code == 400
        assert "is half of a character, expected whole ones" in refused.json()["detail"]
        sent = {"content-type": "application/x-www-form-urlencoded", "origin": ORIGIN}
        content = f"reason={quote(reason.encode('utf-8', 'surrogatepass'))}"
        form = await Browser(coordinator).client.post("/groups/images/delete", content=content, headers=sent)
        assert (form.status_code, "expected a form in UTF-8" in form.text) == (400, True)

    run(check)
