"""When offsets were committed, by whom, and how old the first record after them is: over HTTP, and on the page."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

import pytest
from http_api_helpers import Api, run
from page_helpers import rows
from topics_helpers import producer_batch

from callboard import Coordinator
from callboard.actors.errors import CoordinatorError, ErrorCode
from callboard.runtime.embed.port import port_of
from callboard.runtime.web import commit_times
from callboard.runtime.web.backend import Backend
from callboard.runtime.web.page.group import read_group

DAY_MS = 86_400_000


def produce(coordinator: Coordinator, age_ms: int) -> None:
    """Three records of the first partition."""
    topic = coordinator.node.topics.get("jobs")
    assert topic is not None
    topic.append(0, producer_batch(3, timestamps=[time.time_ns() // 1_000_000 - age_ms] * 3))


async def partitions(api: Api) -> list[str]:
    """The rows of the tab, with T for a time."""
    found = rows(await api.page("groups/images?tab=partitions"))[1:]
    return [re.sub(r"(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d", "T", row) for row in found]


def test_offset_that_a_member_commits_has_its_time_and_owner() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        produce(coordinator, DAY_MS)
        await coordinator.reset("images", {("jobs", 1): 0})
        async with coordinator.member("images", resources={"jobs": 3}) as member:
            assignment = await member.next_assignment()
            await coordinator.rebalances("images")  # its record is complete
            before = datetime.now(UTC)
            await assignment.shard("jobs", 0).commit(2)
            first, second = await api.items("groups/images/offsets")
            assert (first["lag"], second["lag"], second["lag_ms"]) == (1, 0, 0)
            assert DAY_MS <= first["lag_ms"] < DAY_MS + 3_600_000
            assert before.timestamp() - 1 <= datetime.fromisoformat(first["committed_at"]).timestamp()
            assert second["committed_at"] < first["committed_at"]
            assert await partitions(api) == [
                "jobs 0 2 3 1 24 h callboard 127.0.0.1 T its owner",
                "jobs 1 0 0 0 0 callboard 127.0.0.1 T ?",
                "jobs 2 - 0 ? - callboard 127.0.0.1 - -",
            ]

    run(check)


def test_offset_of_a_reset_that_is_guarded_is_named() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        async with coordinator.member("images", resources={"jobs": 3}) as member:
            await member.next_assignment()
        await coordinator.evict_and_reset("images", {("jobs", 0): 0})
        [row] = await api.items("groups/images/offsets")
        assert row["committed_at"] is None
        assert await partitions(api) == ["jobs 0 0 0 0 0 - ? a reset"]

    run(check)


def test_times_of_a_group_whose_node_has_an_older_version_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    class Older:
        async def ask(self, _message: object) -> object:
            raise CoordinatorError(ErrorCode.UNSUPPORTED_VERSION, "the node has an older version")

    async def check(coordinator: Coordinator, api: Api) -> None:
        produce(coordinator, DAY_MS)
        await coordinator.reset("images", {("jobs", 0): 0})
        monkeypatch.setattr(commit_times, "requests_of", lambda _node: Older())
        [row] = await api.items("groups/images/offsets")
        assert (row["lag"], row["committed_at"]) == (3, None)
        assert await partitions(api) == ["jobs 0 0 3 3 24 h - ? ?"]

    run(check)


def test_commits_of_a_group_are_counted_while_somebody_looks() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        await coordinator.reset("images", {("jobs", 0): 0})
        await coordinator.reset("images", {("jobs", 0): 1})
        found = await read_group(Backend(port_of(coordinator)), "images")
        assert found.times.commits == 2
        assert "<dt>Commits a minute</dt>" in await api.page("groups/images")

    run(check)
