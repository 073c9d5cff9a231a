"""The HTTP API of an embedded coordinator: what it answers, what it changes, and what it refuses."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from http_api_helpers import JSON, REASON, TOPICS, Api, make_groups, run
from page_helpers import rows

import callboard.web
from callboard import Coordinator, CoordinatorError, ErrorCode, OffsetsOf, ShiftBy
from callboard.runtime.embed.port import PortAdmin, port_of
from callboard.runtime.web import backend as backend_module
from callboard.runtime.web.problems import BadBody
from callboard.runtime.web.reset_targets import parse_target
from callboard.runtime.web.snapshots import Snapshots

WEEK: Any = {"offsets_retention_minutes": 7 * 24 * 60}
"""By default an embedded coordinator keeps offsets for ever."""


def test_groups_are_listed_with_members_topics_and_lag() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        await make_groups(coordinator)
        page = await api.json("groups")
        assert [row["group"] for row in page["items"]] == ["images", "mails", "odd / name"]
        expires_in = datetime.fromisoformat(page["items"][0].pop("expires_at")) - datetime.now(UTC)
        assert timedelta(days=6) < expires_in <= timedelta(days=7)
        assert page["items"][0] == {
            "group": "images",
            "state": "Empty",
            "type": "classic",
            "protocol_type": "",
            "members": 0,
            "topics": ["jobs"],
            "lag": 0,
            "last_rebalance": None,
            "guarded_until": None,
        }
        assert page["after"] is None
        assert page["age_ms"] >= 0

    run(check, **WEEK)


def test_pages_of_the_list_follow_each_other() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        await make_groups(coordinator)
        first = await api.json("groups?limit=2&sort=-group")
        second = await api.json(f"groups?limit=2&sort=-group&after={first['after']}")
        assert [row["group"] for row in first["items"] + second["items"]] == ["odd / name", "mails", "images"]
        assert second["after"] is None

    run(check)


def test_table_is_made_again_only_after_a_change() -> None:
    async def check(coordinator: Coordinator, _: Api) -> None:
        snapshots = Snapshots(backend_module.Backend(port_of(coordinator)))
        await make_groups(coordinator)
        first = await snapshots.get()
        await snapshots.reread("mails")
        assert (await snapshots.get()).table is first.table
        await coordinator.delete("mails")
        await snapshots.reread("mails")
        assert (await snapshots.get()).table.names == ["images", "odd / name"]
        await snapshots.close()

    run(check)


def test_one_group_with_a_slash_in_its_name() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        await make_groups(coordinator)
        assert (await api.json("groups/odd%20%2F%20name"))["group"] == "odd / name"
        [offset] = await api.items("groups/odd%20%2F%20name/offsets")
        assert (offset["topic"], offset["offset"], offset["end_offset"], offset["lag"]) == ("mails", 0, 0, 0)

    run(check)


def test_members_with_their_partitions() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        async with coordinator.member("images", resources={"jobs": 3}):
            await api.eventually("groups?state=stable", lambda rows: [row["members"] for row in rows] == [1])
            [member] = await api.items("groups/images/members")
        assert member["assigned"] == [{"topic": "jobs", "partitions": [0, 1, 2]}]
        assert member["topics"] == ["jobs"]
        assert member["epoch"] is None

    run(check)


def test_explanation_of_a_group() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        async with coordinator.member("images", resources={"jobs": 3}):
            await api.eventually("groups?state=stable", lambda rows: [row["members"] for row in rows] == [1])
            explained = await api.json("groups/images/explain")
            assert explained == (await coordinator.explain("images")).as_json() | {"now": explained["now"]}
        assert explained["sentence"].endswith(" joined; it is stable with 1 member.")
        assert (explained["group"], explained["now"]["state"]) == ("images", "Stable")
        assert [rebalance["cause"] for rebalance in explained["rebalances"]] == ["new_member"]
        assert (await api.request("GET", "groups/none/explain")).status_code == 404

    run(check)


def test_unknown_lag_is_null() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        await make_groups(coordinator)
        async with coordinator.member("unread", resources={"jobs": 1}):
            [row] = await api.eventually("groups?prefix=unread", lambda rows: bool(rows) and rows[0]["members"] == 1)
        assert row["lag"] is None
        await coordinator.delete_topic("mails")
        [images, mails] = await api.items("lag?group=images&group=mails")
        assert images["lag"] == 0
        assert mails["lag"] is None
        assert await api.items("groups?min_lag=0&prefix=unread") == []

    run(check)


def test_groups_of_a_topic() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        await make_groups(coordinator)
        assert await api.items("topics/jobs/groups") == [{"group": "images", "state": "Empty", "members": 0, "lag": 0}]
        response = await api.request("GET", "topics/nowhere/groups")
        assert (response.status_code, response.json()["error"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")

    run(check)


def test_list_has_groups_by_a_part_of_their_name_and_by_the_guard_of_a_reset() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        await make_groups(coordinator)
        assert [row["group"] for row in await api.items("groups?contains=IL")] == ["mails"]
        assert await api.items("groups?guarded=true") == []
        async with coordinator.member("images", resources={"jobs": 3}):
            await api.eventually("groups?state=stable", lambda rows: [row["members"] for row in rows] == [1])
            [row] = await api.items("groups?state=stable")
            assert (row["guarded_until"], row["expires_at"]) == (None, None)
        done = await coordinator.evict_and_reset("images", {"jobs": 0})
        [row] = await api.eventually("groups?guarded=true", bool)
        assert done.guarded_until is not None
        assert (row["group"], row["guarded_until"]) == ("images", done.guarded_until.isoformat())
        assert datetime.fromisoformat(row["expires_at"]) < datetime.now(UTC) + timedelta(days=7)
        assert [row["group"] for row in await api.items("groups?guarded=false")] == ["mails", "odd / name"]
        assert "◆ guarded" in " ".join(rows(await api.page("?guarded=true")))
        for query in ("guarded=yes", "contains="):
            assert "expected" in (await api.request("GET", f"groups?{query}")).json()["detail"]

    run(check, **WEEK)


def test_settings_say_where_they_are_from() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        await coordinator.set(group_max_session_timeout_ms=900_000)
        rows = {row["name"]: row for row in await api.items("settings")}
        assert rows["group_max_session_timeout_ms"]["value"] == 900_000
        assert rows["group_max_session_timeout_ms"]["source"] == "dynamic"
        assert rows["group_min_session_timeout_ms"]["source"] == "default"
        await coordinator.set(listener_name_plaintext_max_connections=7)
        [limit] = [row for row in await api.items("settings") if row["name"].startswith("listener_name_")]
        assert (limit["value"], limit["source"], limit["is_dynamic"]) == (7, "dynamic", True)

    run(check)


# Changes -------------------------------------------------------------------------------------------------------------


def test_changes_are_made_and_seen_in_the_list_at_once() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        await make_groups(coordinator)
        await api.items("groups")
        await api.change("DELETE", "groups/images/offsets", partitions=[{"topic": "jobs", "partition": 1}])
        assert list(await coordinator.offsets("images")) == [("jobs", 0)]
        await api.change("DELETE", "groups/images")
        assert [row["group"] for row in await api.items("groups")] == ["mails", "odd / name"]
        with pytest.raises(CoordinatorError) as caught:
            await coordinator.describe("images")
        assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND

    run(check)


def test_reset_removes_members_and_sets_offsets() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        await coordinator.reset("images", {("jobs", 0): 4, ("jobs", 1): 5})
        targets = [{"topic": "jobs", "to": "earliest"}, {"topic": "jobs", "partition": 1, "to": None}]
        expected = [
            {"topic": "jobs", "partition": 0, "before": 4, "after": 0, "note": None},
            {"topic": "jobs", "partition": 1, "before": 5, "after": None, "note": None},
            {"topic": "jobs", "partition": 2, "before": None, "after": 0, "note": None},
        ]
        async with coordinator.member("images", resources={"jobs": 3}):
            await api.eventually("groups?state=stable", lambda rows: [row["members"] for row in rows] == [1])
            [member] = await api.items("groups/images/members")
            plan = await api.change("POST", "groups/images/reset", targets=targets, dry_run=True)
            assert (plan["is_plan"], plan["partitions"], plan["removed"]) == (True, expected, [member["member_id"]])
            assert len(await coordinator.offsets("images")) == 2
            done = await api.change("POST", "groups/images/reset", targets=targets)
            assert (done["is_plan"], done["partitions"], done["removed"]) == (False, expected, [member["member_id"]])
            found = {partition: each.offset for partition, each in (await coordinator.offsets("images")).items()}
            assert found == {("jobs", 0): 0, ("jobs", 2): 0}
            assert (plan["change"], [each["member_id"] for each in plan["members"]]) == (None, plan["removed"])
        done = await api.change("POST", "groups/images/reset", targets=targets)
        assert done["guarded_until"] is not None
        assert (await api.json("groups/images"))["guarded_until"] == done["guarded_until"]
        await coordinator.reset("mails", {("jobs", 0): 0})
        assert (await api.json("groups/mails"))["guarded_until"] is None

    run(check)


def test_reset_is_watched_and_undone_by_its_id() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        await coordinator.reset("images", {("jobs", 0): 4})
        await coordinator.reset("copy", {("jobs", 0): 7})
        async with coordinator.member("images", resources={"jobs": 3}) as member:
            await member.next_assignment()
            targets = [{"topic": "jobs", "partition": 0, "to": {"group": "copy"}}]
            done = await api.change("POST", "groups/images/reset", targets=targets)
            assert done["partitions"][0]["note"] == "not checked: the partition has no records"
            assert len(done["warnings"]) == 1
            while not (progress := await api.json(f"changes/{done['change']}"))["is_complete"]:
                await asyncio.sleep(0.05)
                await member.next_assignment()
            assert progress["sentence"].endswith(" s, all positions fetched")
        [made] = await api.items("groups/images/resets")
        assert (made["change"], made["by"], made["reason"]) == (done["change"], "User:ANONYMOUS", REASON["reason"])
        assert made["partitions"] == [{"topic": "jobs", "partition": 0, "before": 4, "after": 7, "note": None}]
        plan = await api.change("POST", f"changes/{done['change']}/undo", dry_run=True)
        assert (plan["is_plan"], plan["partitions"][0]["after"]) == (True, 4)
        undone = await api.change("POST", f"changes/{done['change']}/undo")
        assert (await coordinator.offsets("images"))["jobs", 0].offset == 4
        refused = await api.request("POST", f"changes/{done['change']}/undo", REASON)
        assert (refused.status_code, refused.json()["detail"].split(": ", 1)[1]) == (
            409,
            f"it was undone by change {undone['change']} already",
        )
        for method, path, body in (("GET", "changes/none", None), ("POST", "changes/none/undo", REASON)):
            unknown = await api.request(method, path, body)
            assert unknown.status_code == 404 and "change 'none': there is no record" in unknown.json()["detail"]

    run(check)


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ({"time": "2026-01-31T08:00:00+02:00"}, datetime(2026, 1, 31, 6, tzinfo=UTC)),
        ({"shift": -100}, ShiftBy(-100)),
        ({"group": "copy"}, OffsetsOf("copy")),
        (None, None),
        ("latest", "latest"),
        (7, 7),
    ],
)
def test_target_in_a_body(to: Any, expected: Any) -> None:
    assert parse_target(to) == expected


@pytest.mark.parametrize(
    ("to", "says"),
    [
        ({"time": "2026-01-31T08:00:00"}, "expected ISO 8601 with a zone"),
        ({"time": 7}, "time 7: expected ISO 8601"),
        ({"shift": True}, "shift True: expected a number of records"),
        ({"group": ""}, "group '': expected the id"),
        ({}, "expected an offset, earliest, latest"),
        ({"time": "2026-01-31T08:00:00Z", "shift": 1}, "expected an offset, earliest, latest"),
        (True, "to True: expected an offset"),
    ],
)
def test_bad_target_in_a_body(to: Any, says: str) -> None:
    with pytest.raises(BadBody) as raised:
        parse_target(to)
    assert says in str(raised.value)


def test_evicted_member_is_out_of_the_group() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        async with coordinator.member("images", resources={"jobs": 3}):
            await api.eventually("groups?state=stable", lambda rows: [row["members"] for row in rows] == [1])
            [described] = await api.items("groups/images/members")
            refused = await api.request("POST", "groups/images/evict", REASON | {"members": ["nobody"]})
            assert (refused.status_code, refused.json()["error"]) == (404, "UNKNOWN_MEMBER_ID")
            refused = await api.request("DELETE", "groups/images", REASON)
            assert (refused.status_code, refused.json()["error"]) == (409, "NON_EMPTY_GROUP")
            answer = await api.change("POST", "groups/images/evict", members=[described["member_id"]])
            assert answer == {"group": "images", "removed": [described["member_id"]]}
            members = await api.items("groups/images/members")
            assert described["member_id"] not in [each["member_id"] for each in members]

    run(check)


def test_changes_are_in_the_audit_trail_with_user_and_reason(tmp_path: Path) -> None:
    async def check(coordinator: Coordinator, _: Api) -> None:
        api = Api(callboard.web.app(coordinator, trusted_header="X-User"))
        await make_groups(coordinator)
        assert (await api.request("GET", "groups")).status_code == 401
        response = await api.request("DELETE", "groups/mails", REASON, JSON | {"x-user": "ann"})
        assert response.status_code == 200
        await coordinator.delete("images")

    run(check, data=tmp_path, audit="file")
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    ours, own = [line for line in lines if "delete" in json.dumps(line).lower() and line.get("operation") == "delete"]
    assert (ours["principal"], ours["reason"], ours["api"]) == (
        "User:ann",
        REASON["reason"],
        "DELETE /api/v1/groups/{group}",
    )
    assert (own["principal"], own["api"]) == ("User:callboard", "Coordinator.delete")


@pytest.mark.parametrize("sent", [(), ("",), ("eve", "ann"), ("ann", "ann")], ids=str)
def test_user_is_refused_unless_the_proxy_names_exactly_one(sent: tuple[str, ...]) -> None:
    """A proxy that adds the header to that of the client would let clients choose their name."""

    async def check(coordinator: Coordinator, _: Api) -> None:
        transport = httpx.ASGITransport(callboard.web.app(coordinator, trusted_header="X-User"))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            headers = [("x-user", name) for name in sent]
            assert (await client.get("/api/v1/groups", headers=headers)).status_code == 401
            assert (await client.get("/api/v1/groups", headers=[("x-user", "ann")])).status_code == 200

    run(check)


def test_changes_are_refused_while_a_required_trail_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        (tmp_path / "audit.jsonl").mkdir()
        await coordinator.reset("mails", {("jobs", 0): 0})
        while not coordinator.node.services.audit.failure:
            await asyncio.sleep(0.001)
        refused = await api.request("DELETE", "groups/mails", REASON)
        assert (refused.status_code, refused.json()["error"]) == (503, "KAFKA_STORAGE_ERROR")
        assert "audit trail cannot be written" in refused.json()["detail"]
        await coordinator.describe("mails")

    run(check, data=tmp_path, audit="file", audit_required=True)
    assert not [record for record in caplog.records if record.name == "callboard.runtime.web"]


# Refusals ------------------------------------------------------------------------------------------------------------

BAD_REQUESTS: list[tuple[str, str, object, int, str]] = [
    ("GET", "groups?sort=lga", None, 400, "sort='lga': did you mean 'lag'?"),
    ("GET", "groups?limit=0", None, 400, "limit='0': expected a whole number from 1 to 1000"),
    ("GET", "groups?limit=1001", None, 400, "limit='1001'"),
    ("GET", "groups?min_lag=-1", None, 400, "min_lag='-1'"),
    ("GET", "groups?state=Stabel", None, 400, "did you mean 'Stable'?"),
    ("GET", "groups?type=share", None, 400, "type='share'"),
    ("GET", "groups?after=x", None, 400, "expected the value of `after`"),
    ("GET", "groups?after=WyJsYWciLG51bGwsICJhIl0", None, 400, "a cursor of sort=lag, expected one of sort=group"),
    ("GET", "groups?sort=lag&sort=lag", None, 400, "twice"),
    ("GET", "groups?colour=red", None, 400, "unknown parameter 'colour'"),
    ("GET", "groups/%FF", None, 400, "expected UTF-8"),
    ("GET", "groups/none", None, 404, "there is no such group"),
    ("GET", "groups/none/offsets", None, 404, "there is no such group"),
    ("GET", "lag", None, 400, "0 groups: expected 1 to 100"),
    ("GET", "lag?topic=x", None, 400, "unknown parameter 'topic'"),
    ("GET", "elsewhere", None, 404, "nothing is at '/api/v1/elsewhere'"),
    ("PUT", "groups/mails", REASON, 405, "expected DELETE, GET, HEAD"),
    ("DELETE", "groups/mails", {}, 400, "reason None: expected a text of 1 to 1000 characters"),
    ("DELETE", "groups/mails", {"reason": " "}, 400, "reason ' '"),
    ("DELETE", "groups/mails", [1], 400, "expected an object"),
    ("DELETE", "groups/mails", b"{", 400, "expected JSON"),
    ("DELETE", "groups/mails", b"[" * 100_000, 400, "expected JSON"),
    ("DELETE", "groups/mails", b" " * 1_000_001, 400, "too long"),
    ("DELETE", "groups/mails", REASON | {"force": True}, 400, "unknown 'force' in the body"),
    ("DELETE", "groups/mails/offsets", REASON, 400, "partitions None: expected a list of 1 to 10000 partitions"),
    (
        "DELETE",
        "groups/mails/offsets",
        REASON | {"partitions": [{"topic": "jobs"}]},
        400,
        "partition {'topic': 'jobs'}",
    ),
    ("POST", "groups/mails/reset", REASON, 400, "targets None: expected a list"),
    ("POST", "groups/mails/reset", REASON | {"targets": [{"topic": "jobs"}]}, 400, "expected an object as in"),
    ("POST", "groups/mails/reset", REASON | {"targets": [{"topic": "jobs", "to": -1}]}, 400, "to -1: expected an"),
    ("POST", "groups/mails/reset", REASON | {"targets": [{"topic": "jobs", "to": []}]}, 400, "to []: expected an"),
    ("POST", "groups/mails/reset", REASON | {"targets": [{"topic": "jobs", "to": 0}] * 2}, 400, "there are two"),
    ("POST", "groups/mails/reset", REASON | {"targets": [{"topic": "no", "to": 0}]}, 404, "there is no topic"),
    ("POST", "groups/mails/reset", REASON | {"targets": [], "dry_run": 1}, 400, "targets []"),
    ("POST", "groups/mails/evict", REASON | {"members": "ann"}, 400, "members 'ann': expected a list"),
]


def test_bad_requests_are_problems_that_name_the_value() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        await make_groups(coordinator)
        for method, path, body, status, text in BAD_REQUESTS:
            response = await api.request(method, path, body)
            assert response.status_code == status, (path, response.text)
            assert response.headers["content-type"] == "application/problem+json"
            assert text in response.json()["detail"], (path, response.text)
        assert len((await coordinator.groups()).groups) == 3

    run(check)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 415),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        (JSON | {"origin": "http://evil.example"}, 403),
        (JSON | {"origin": "null"}, 403),
        (JSON | {"origin": "http://callboard:8080"}, 403),
        (JSON | {"origin": "null", "host": ""}, 403),
        (JSON | {"host": ""}, 200),
        ({"content-type": "Application/JSON; charset=utf-8", "origin": "http://callboard"}, 200),
    ],
)
def test_page_of_another_site_can_change_nothing(headers: dict[str, str], status: int) -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        await make_groups(coordinator)
        response = await api.request("DELETE", "groups/mails", REASON, headers)
        assert response.status_code == status
        assert len((await coordinator.groups()).groups) == (2 if status == 200 else 3)

    run(check)


@pytest.mark.parametrize(
    ("host", "status"),
    [("evil.example", 421), ("evil.example:80", 421), ("localhost:9095", 200), ("LOCALHOST", 200), ("[::1]:9095", 200)],
)
def test_host_of_another_name_is_refused(host: str, status: int) -> None:
    async def check(coordinator: Coordinator, _: Api) -> None:
        api = Api(callboard.web.app(coordinator, hosts=("localhost", "::1")))
        assert (await api.request("GET", "settings", headers={"host": host})).status_code == status

    run(check)


def test_each_answer_has_the_security_headers() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        for path in ("settings", "elsewhere", "groups?sort=x"):
            headers = (await api.request("GET", path)).headers
            assert "default-src 'self'" in headers["content-security-policy"]
            assert headers["x-frame-options"] == "DENY"
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "same-origin"

    run(check)


# Event loops ---------------------------------------------------------------------------------------------------------


def test_coordinator_on_a_thread_of_its_own_is_asked_on_its_loop() -> None:
    async def check(api: Api) -> None:
        assert [row["group"] for row in await api.items("groups")] == ["images", "mails", "odd / name"]
        await api.change("DELETE", "groups/mails")

    with Coordinator.in_thread(topics=TOPICS) as coordinator:
        coordinator.run(make_groups(coordinator.asynchronous))  # type: ignore[arg-type]
        asyncio.run(check(Api(callboard.web.app(coordinator))))
        assert len(coordinator.groups().groups) == 2


def test_coordinator_that_does_not_run_is_a_problem() -> None:
    async def check() -> None:
        coordinator = Coordinator()
        api = Api(callboard.web.app(coordinator))
        for path in ("groups/a", "settings"):
            response = await api.request("GET", path)
            assert (response.status_code, response.headers["retry-after"]) == (503, "1")
            assert "not running yet" in response.json()["detail"]

    asyncio.run(check())


def test_loop_that_does_not_answer_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend_module, "PATIENCE_S", 0.05)

    async def check(coordinator: Coordinator, api: Api) -> None:
        await make_groups(coordinator)
        never: asyncio.Future[Any] = asyncio.Future()
        monkeypatch.setattr(PortAdmin, "describe", lambda admin, group: never)
        response = await api.request("GET", "groups/images")
        assert response.status_code == 503
        assert "has not answered" in response.json()["detail"]

    run(check)
