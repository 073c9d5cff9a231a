"""Figures and health of an embedded coordinator, and its collector for Prometheus."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest
from doc_pages import DOCS, run, sections
from harness import async_test
from prometheus_client import CollectorRegistry, generate_latest

from callboard import Coordinator, CoordinatorStats, Health, StartError
from callboard.runtime.embed import thread as thread_module
from callboard.runtime.log.stats import LogStats


def samples(registry: CollectorRegistry) -> dict[str, float]:
    """By name, and the group where there is one."""
    return {
        sample.name
        + "".join(f"{{{value}}}" for label, value in sample.labels.items() if label == "group"): sample.value
        for family in registry.collect()
        for sample in family.samples
    }


@async_test
async def test_stats_count_groups_commits_and_rebalances(tmp_path: Path) -> None:
    async with Coordinator(tmp_path, topics={"jobs": 1}) as coordinator:
        before = coordinator.stats()
        async with coordinator.member("g", resources={"jobs": 1}) as member:
            await (await member.next_assignment()).shards[0].commit(1)
            after = coordinator.stats()
    assert isinstance(before, CoordinatorStats)
    assert (before.active_groups, before.commits, before.rebalances) == (0, 0, 0)
    assert (after.active_groups, after.commits, after.rebalances) == (1, 1, 1)
    assert after.journal_bytes > before.journal_bytes
    assert 0 < after.memory_bytes < after.memory_limit_bytes


@async_test
async def test_stats_do_not_wait_for_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Coordinator(tmp_path) as coordinator:
        monkeypatch.setattr(type(coordinator.node), "is_loading", True)
        assert coordinator.stats().commits == 0
        assert not coordinator.health().is_ready


@async_test
async def test_health_has_the_reason_before_the_start_after_a_failure_and_after_the_end() -> None:
    coordinator = Coordinator()
    assert "not running yet" in coordinator.health().reason
    async with coordinator:
        assert coordinator.health() == Health(True, "")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(coordinator.node.offsets_log, "stats", lambda: LogStats(failure="fdatasync: I/O error"))
            assert coordinator.health() == Health(
                False, "commits are refused, the log has failed: fdatasync: I/O error"
            )
    assert coordinator.health() == Health(False, "this Coordinator has stopped: make another one")


def test_health_of_a_thread_whose_loop_is_blocked_answers_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_module, "HEALTH_TIMEOUT_S", 0.05)
    unblocked = threading.Event()

    async def block() -> None:
        unblocked.wait()

    with Coordinator.in_thread() as coordinator:
        assert coordinator.health().is_ready
        blocking = threading.Thread(target=lambda: coordinator.run(block()))
        blocking.start()
        while coordinator.health().is_ready:
            time.sleep(0.001)
        assert "has not answered for" in coordinator.health().reason
        unblocked.set()
        blocking.join()
    assert coordinator.health() == Health(False, "this Coordinator has stopped: make another one")


def test_collector_of_a_thread_has_the_metrics_of_a_server_and_the_lag_of_named_groups() -> None:
    coordinator = Coordinator.in_thread(topics={"jobs": 2})
    registry = CollectorRegistry()
    registry.register(coordinator.collector(["g"]))
    assert samples(registry) == {"callboard_ready": 0}
    with coordinator:
        coordinator.reset("g", {"jobs": 0})
        coordinator.reset("other", {"jobs": 0})
        collected = samples(registry)
        assert b"# TYPE callboard_commits_total counter" in generate_latest(registry)
        coordinator.restart()
        restarted = samples(registry)
    assert (collected["callboard_ready"], collected["callboard_commits_total"]) == (1, 2)
    assert {name: value for name, value in collected.items() if "lag" in name} == {"callboard_group_lag{g}": 0}
    assert (restarted["callboard_ready"], restarted["callboard_commits_total"]) == (1, 0)
    assert samples(registry) == {"callboard_ready": 0}


@async_test
async def test_collector_on_the_coordinators_own_loop_has_the_lag_of_the_scrape_before() -> None:
    async with Coordinator(topics={"jobs": 1}) as coordinator:
        await coordinator.reset("g", {"jobs": 0})
        registry = CollectorRegistry()
        registry.register(coordinator.collector(["g"]))
        first = samples(registry)
        while "callboard_group_lag{g}" not in samples(registry):
            await asyncio.sleep(0)
        from_a_thread = await asyncio.to_thread(samples, registry)
    assert first["callboard_commits_total"] == 1
    assert "callboard_group_lag{g}" not in first
    assert from_a_thread["callboard_group_lag{g}"] == 0


def test_collector_with_too_many_groups_is_refused() -> None:
    with pytest.raises(StartError, match="the lag of 101 groups is requested, expected at most 100"):
        Coordinator().collector(f"g{number}" for number in range(101))
    with pytest.raises(StartError, match="expected a list of group ids"):
        Coordinator().collector("g")


def test_code_of_the_page_on_metrics_prints_the_output_shown() -> None:
    [block] = sections(DOCS / "metrics.md")["Embedded coordinators"]
    assert run(DOCS / "metrics.md", block, {}) == block.output
