"""Compaction of the log on demand: over HTTP and by the form, with a plan, a reason and a line of the audit trail."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from audit_helpers import audit_lines
from http_api_helpers import REASON, Api, run
from page_helpers import Browser, rows

from callboard import Coordinator
from callboard.runtime.common.errors import CompactionRuns
from callboard.runtime.log.due_partition import DuePartition
from callboard.runtime.node.node import Node


class OnePartition:
    """A cleaner that has one partition to compact, and never ends."""

    is_running = False

    async def compactable(self) -> Sequence[DuePartition]:
        return [DuePartition("__consumer_offsets-7", 2048, 1024)]

    def compact_now(self) -> None:
        if self.is_running:
            raise CompactionRuns("the log is being compacted: wait until that is done")
        self.is_running = True


@pytest.fixture
def cleaner(monkeypatch: pytest.MonkeyPatch) -> OnePartition:
    made = OnePartition()
    monkeypatch.setattr(Node, "cleaner", property(lambda _node: made))
    return made


def recorded(folder: Path) -> list[dict[str, Any]]:
    return [line for line in audit_lines(folder) if line["kind"] == "changed"]


def test_compaction_is_planned_begun_and_recorded(tmp_path: Path, cleaner: OnePartition) -> None:
    async def check(_: Coordinator, api: Api) -> None:
        plan = await api.change("POST", "log/compact", dry_run=True)
        assert not cleaner.is_running
        row = {"partition": "__consumer_offsets-7", "clean_bytes": 2048, "dirty_bytes": 1024}
        assert plan == {"is_plan": True, "items": [row]}
        assert not (await api.json("log"))["is_compacting"]
        assert (await api.change("POST", "log/compact"))["items"] == [row]
        assert (await api.json("log"))["is_compacting"]
        refused = await api.request("POST", "log/compact", REASON)
        assert (refused.status_code, refused.json()["detail"]) == (
            409,
            "the log is being compacted: wait until that is done",
        )

    run(check, data=tmp_path, audit="file")
    [line] = recorded(tmp_path)
    assert (line["operation"], line["resource"], line["reason"]) == ("compact", "Broker:1", REASON["reason"])
    assert line["api"] == "POST /api/v1/log/compact"


def test_form_begins_a_compaction_and_is_refused_while_one_runs(tmp_path: Path, cleaner: OnePartition) -> None:
    async def check(coordinator: Coordinator, _: Api) -> None:
        browser = Browser(coordinator)
        assert 'href="/log/compact"' in await browser.get("/log")
        plan = await browser.get("/log/compact")
        assert rows(plan)[1:] == ["__consumer_offsets-7 1.0 KiB 2.0 KiB"]
        assert "reason &#39;&#39;: expected" in await browser.send(plan, {}, 400)
        assert not cleaner.is_running
        assert await browser.send(plan, REASON) == "/log"
        assert "is being compacted" in await browser.get("/log")
        assert "the log is being compacted: wait" in await browser.send(plan, REASON, 409)

    run(check, data=tmp_path, audit="file")
    assert [line["api"] for line in recorded(tmp_path)] == ["POST /log/compact"]


def test_log_in_memory_is_not_compacted() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        refused = await api.request("POST", "log/compact", REASON)
        assert (refused.status_code, "it is in memory" in refused.json()["detail"]) == (400, True)
        assert "it is in memory" in await Browser(coordinator).get("/log/compact")

    run(check)


def test_nothing_to_compact_is_said(tmp_path: Path) -> None:
    async def check(coordinator: Coordinator, _: Api) -> None:
        assert "no partition has a closed segment" in await Browser(coordinator).get("/log/compact")

    run(check, data=tmp_path)
