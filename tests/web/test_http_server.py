"""The HTTP API about the server: actors, log, audit trail and settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from http_api_helpers import REASON, Api, make_groups, run

from callboard import Coordinator, CoordinatorError, ErrorCode
from callboard.runtime.web import server_reading
from callboard.runtime.web.server_settings import check_allowed

SETTING = "group_max_session_timeout_ms"


def test_actors_by_class_with_rates_once_they_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_reading, "RATE_INTERVAL_MIN_S", 0.0)

    async def check(coordinator: Coordinator, api: Api) -> None:
        first = await api.json("actors")
        assert {row["messages_per_s"] for row in first["items"]} == {None}
        for number in range(3):
            await coordinator.reset(f"group-{number}", {("jobs", 0): 0})
            answer = await api.json("actors")
        rows = {row["class"]: row for row in answer["items"]}
        assert rows["OffsetWriterActor"]["actors"] == 1
        assert rows["OffsetWriterActor"]["messages_per_s"] > 0
        assert rows["OffsetWriterActor"]["messages"] >= 3
        assert answer["dead_letters"] == coordinator.node.actors.system.stats().dead_letters
        assert answer["turns"]["count"] > 0
        assert answer["turns"]["p99_us"] > 0

    run(check)


def test_log_by_partition(tmp_path: Path) -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        assert (await api.json("log"))["items"] == []
        await coordinator.reset("images", {("jobs", 0): 0})
        answer = await api.json("log")
        assert answer["syncs"]["count"] >= 1
        assert answer["journal"]["bytes"] > 0
        await coordinator.restart()  # it writes the journal's records to the partition
        answer = await api.json("log")
        [row] = answer["items"]
        assert row["partition"].startswith("__consumer_offsets-")
        assert (row["end_offset"], row["damages"], row["failure"], row["compacted_at"]) == (1, 0, None, None)
        assert (row["segments"], row["dirty_ratio"]) == (1, 1.0)
        assert row["bytes"] > 0
        assert answer["failure"] is None

    run(check, data=tmp_path)


def test_numbers_of_a_log_in_memory_are_known_or_null() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        assert (await api.json("log"))["syncs"] == {"count": 0, "p50_ms": None, "p99_ms": None}

    run(check)


def test_audit_trail_the_newest_first_in_pages(tmp_path: Path) -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        names = [f"group-{number}" for number in range(5)]
        for name in names:
            await coordinator.reset(name, {("jobs", 0): 0})
        await coordinator.node.data.files.wait_until_idle()
        first = await api.json("audit?limit=2")
        assert [line["resource"] for line in first["items"]] == ["Group:group-4", "Group:group-3"]
        second = await api.json(f"audit?limit=2&after={first['after']}")
        assert [line["resource"] for line in second["items"]] == ["Group:group-2", "Group:group-1"]
        last = await api.json(f"audit?after={second['after']}")
        assert "Group:group-0" in [line.get("resource") for line in last["items"]]
        assert last["after"] is None
        for query in ("after=x", "after=YTox", "limit=0", "kind=changed"):
            assert (await api.request("GET", f"audit?{query}")).status_code == 400

    run(check, data=tmp_path, audit="file")


def test_audit_trail_that_is_off_has_no_lines() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        assert await api.json("audit") == {"items": [], "after": None, "kept": "none"}

    run(check)


def test_dynamic_setting_is_changed_with_its_reason_and_back(tmp_path: Path) -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        for value, source in ((1_700_000, "dynamic"), (None, "default")):
            answer = await api.change("PATCH", "settings", values={SETTING: value})
            [row] = [row for row in answer["items"] if row["name"] == SETTING]
            assert (row["value"], row["source"]) == (value or 1_800_000, source)
        await coordinator.node.data.files.wait_until_idle()
        lines = (await api.json("audit"))["items"]
        assert [line["after"] for line in lines if line["kind"] == "changed"] == [{SETTING: None}, {SETTING: 1_700_000}]
        assert {(line["reason"], line["api"]) for line in lines} == {(REASON["reason"], "PATCH /api/v1/settings")}

    run(check, data=tmp_path, audit="file")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"audit": "file"}, "audit"),
        ({"group_max_session_timeout": 1}, "group_max_session_timeout"),
        ({SETTING: "soon"}, "soon"),
        ({SETTING: [1]}, "expected a number, true, false, a text, or null"),
        ({}, "expected an object"),
    ],
)
def test_change_of_settings_that_is_refused_names_the_value(values: object, text: str) -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        response = await api.request("PATCH", "settings", REASON | {"values": values})
        assert response.status_code == 400
        assert text in response.json()["detail"]

    run(check)


def test_dynamic_settings_says_who_may_change_them() -> None:
    check_allowed("all", is_local=False)
    check_allowed("local", is_local=True)
    for allowed, is_local in (("local", False), ("none", True)):
        with pytest.raises(CoordinatorError, match=f"--dynamic-settings {allowed}") as caught:
            check_allowed(allowed, is_local=is_local)
        assert caught.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_rebalances_of_a_group_have_a_limit() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        for _ in range(2):
            async with coordinator.member("images", resources={"jobs": 3}):
                await api.eventually("groups?state=stable", lambda rows: [row["members"] for row in rows] == [1])
        rows = await api.eventually("groups/images/rebalances", lambda rows: len(rows) >= 2)
        assert rows[0]["began_ms"] >= rows[1]["began_ms"]
        assert await api.items("groups/images/rebalances?limit=1") == rows[:1]
        assert await api.items("groups/none/rebalances") == []
        assert (await api.request("GET", "groups/images/rebalances?limit=51")).status_code == 400

    run(check)


def test_key_of_a_request_gives_the_first_answer_again() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        await make_groups(coordinator)
        headers = {"content-type": "application/json", "idempotency-key": "k1"}
        body = REASON | {"targets": [{"topic": "mails", "to": 0}]}
        first = await api.request("POST", "groups/mails/reset", body, headers)
        again = await api.request("POST", "groups/mails/reset", body, headers)
        assert (first.status_code, again.status_code) == (200, 200)
        assert first.json() == again.json()
        assert len(await api.items("groups/mails/resets")) == 1
        other = await api.request("POST", "groups/mails/reset", body | {"reason": "another"}, headers)
        assert other.status_code == 422
        assert (await api.request("POST", "groups/images/reset", body, headers)).status_code == 422
        await api.request("POST", "groups/mails/reset", body, headers | {"idempotency-key": "k2"})
        assert len(await api.items("groups/mails/resets")) == 2

    run(check)


def test_key_of_a_request_that_was_refused_can_be_used_again() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        headers = {"content-type": "application/json", "idempotency-key": "k1"}
        assert (await api.request("POST", "groups/none/evict", REASON, headers)).status_code == 404
        await coordinator.reset("none", {("jobs", 0): 0})
        assert (await api.request("POST", "groups/none/evict", REASON, headers)).status_code == 200

    run(check)
