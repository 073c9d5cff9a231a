"""The HTTP pages of a node: /metrics as Prometheus parses it, and /healthz and /readyz for process supervisors."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from harness import NodeHarness, async_test, commit_values, heartbeat_values, join_and_sync, running_node
from health_helpers import HttpResponse, get, serving
from program_helpers import refusal
from project_paths import DOCS
from prometheus_client.parser import text_string_to_metric_families

from callboard.actors.coordinator.partition_states import PartitionState
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.log.stats import LogStats
from callboard.runtime.node import metrics as metrics_module
from callboard.runtime.node.health import LOOP_TIMEOUT_S, Pages
from callboard.runtime.node.kept_page import PAGE_KEPT_S, KeptPage
from callboard.runtime.node.metrics import metrics, pages
from callboard.runtime.node.node import Node
from callboard.runtime.settings.metric_options import MetricOptions


def new_pages(harness: NodeHarness) -> Pages:
    """Pages of a node. The page of metrics is a new one for each scrape: two seconds pass at each look at the clock."""
    return pages(lambda: harness.node, count(step=2).__next__)


async def scrape(port: int) -> dict[str, float]:
    """All samples by name and labels, as the parser of Prometheus reads them: ``name{label=value}``."""
    response = await asyncio.to_thread(get, port, "/metrics")
    assert response.status == 200
    return {
        sample.name + "".join(f"{{{label}={value}}}" for label, value in sample.labels.items()): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


async def create_group(harness: NodeHarness) -> None:
    """Create a stable group with one member and two commits."""
    client = await harness.connect()
    member = await join_and_sync(client, "busy")
    for _ in range(2):
        await client.ask("offset_commit", 9, **commit_values("busy", member))
    await client.ask("heartbeat", **heartbeat_values("busy", member))


@async_test
async def test_metrics_count_group_events(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness, serving(new_pages(harness)) as port:
        before = await scrape(port)
        await create_group(harness)
        after = await scrape(port)
    assert before["callboard_commits_total"] == 0
    assert after["callboard_commits_total"] == 2
    cause = "callboard_rebalances_total{cause=member_joined}"
    assert (before[cause], after[cause], after["callboard_joins_total"]) == (0, 1, 1)
    phases = [after[f"callboard_rebalance_seconds_count{{phase={phase}}}"] for phase in ("join", "sync", "assign")]
    assert phases == [1, 1, 0]
    assert (
        before["callboard_groups{state=Stable}{type=classic}"],
        after["callboard_groups{state=Stable}{type=classic}"],
    ) == (0, 1)
    assert after["callboard_connections"] == 1
    assert after["callboard_actors{class=GroupActor}"] == 1
    assert after["process_resident_memory_bytes"] > 0


@async_test
async def test_metrics_count_expired_sessions(tmp_path: Path) -> None:
    async with (
        running_node(tmp_path, group_min_session_timeout_ms=1) as harness,
        serving(new_pages(harness)) as port,
    ):
        await join_and_sync(await harness.connect(), "short", session_timeout=50)
        while not (samples := await scrape(port))["callboard_expired_sessions_total"]:
            pass
    assert samples["callboard_expired_sessions_total"] == 1
    assert samples["callboard_groups{state=Empty}{type=classic}"] == 1


@async_test
async def test_page_with_the_names_of_the_jmx_exporter(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness, serving(new_pages(harness)) as port:
        await create_group(harness)
        ordinary = await asyncio.to_thread(get, port, "/metrics?any=field")
        response = await asyncio.to_thread(get, port, "/metrics?style=jmx")
        refused = await asyncio.to_thread(get, port, "/metrics?style=jxm")
    assert "kafka_" not in ordinary.text
    aliases = {
        sample.name + "".join(f"{{{value}}}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
        if sample.name.startswith("kafka_")
    }
    coordinator, manager = "kafka_server_group_coordinator_metrics", "kafka_coordinator_group_groupmetadatamanager"
    assert aliases == {
        f"{coordinator}_offset_expiration_count": 0,
        f"{coordinator}_group_completed_rebalance_count": 1,
        f"{coordinator}_consumer_group_rebalance_count": 0,
        f"{coordinator}_group_count{{classic}}": 1,
        f"{coordinator}_group_count{{consumer}}": 0,
        **{f"{coordinator}_consumer_group_count{{{state}}}": 0 for state in CONSUMER_STATES},
        f"{coordinator}_num_partitions{{active}}": 4,
        f"{coordinator}_num_partitions{{loading}}": 0,
        f"{coordinator}_num_partitions{{failed}}": 0,
        f"{manager}_numgroups": 1,
        f"{manager}_numgroupsempty": 0,
        f"{manager}_numgroupspreparingrebalance": 0,
        f"{manager}_numgroupscompletingrebalance": 0,
        f"{manager}_numgroupsstable": 1,
    }
    document = (DOCS / "metrics.md").read_text()
    assert {name.partition("{")[0] for name in aliases} <= set(re.findall(r"`(kafka_\w+)", document))
    assert "callboard_ready 1.0" in response.text
    assert (refused.status, refused.text) == (400, "style='jxm': expected jmx, or no style\n")


CONSUMER_STATES = ("empty", "assigning", "reconciling", "stable")


@async_test
async def test_labels_do_not_depend_on_groups(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness, serving(new_pages(harness)) as port:
        client = await harness.connect()
        await join_and_sync(client, "first")
        before = await scrape(port)
        for number in range(20):
            await join_and_sync(client, f"group-{number}")
        after = await scrape(port)
    assert after.keys() == before.keys()
    assert after["callboard_groups{state=Stable}{type=classic}"] == 21


@async_test
async def test_metrics_of_the_log(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness, serving(new_pages(harness)) as port:
        before = await scrape(port)
        await create_group(harness)
        after = await scrape(port)
        log = harness.node.offsets_log
        assert isinstance(log, OffsetsLog)
        list(log.read(log.offsets_partitions_with_data()[0]))  # this flushes the journal to the partition files
        flushed = await scrape(port)
    assert after["callboard_log_records_total"] >= before["callboard_log_records_total"] + 3, "a group and two commits"
    rounds = after["callboard_log_rounds_total"]
    assert after["callboard_log_sync_seconds_bucket{le=+Inf}"] == after["callboard_log_sync_seconds_count"] >= rounds
    assert after["callboard_journal_bytes"] > before["callboard_journal_bytes"]
    sizes = [path.stat().st_size for path in tmp_path.rglob("__consumer_offsets-*/*.log")]
    assert flushed["callboard_log_bytes"] == flushed["callboard_log_dirty_bytes"] == sum(sizes) > 0
    assert (after["callboard_log_failed"], after["callboard_log_full"], after["callboard_log_damages"]) == (0, 0, 0)


@async_test
async def test_lag_of_named_groups_is_the_sum_of_their_partitions(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        for group in ("named", "other"):
            await client.ask("offset_commit", 9, **commit_values(group, None, offset=3))
        topic = harness.node.topics.get("t")
        assert topic is not None
        topic.raise_end(0, 10)
        page = await metrics(lambda: harness.node, ("named", "absent"))
        topic.raise_end(0, 13)
        again = await metrics(lambda: harness.node, ("named", "absent"))
    lines = [[line for line in text.splitlines() if line.startswith(b"callboard_group_lag")] for text in (page, again)]
    assert lines == [[b'callboard_group_lag{group="named"} 7.0'], [b'callboard_group_lag{group="named"} 10.0']]


def test_serve_with_too_many_groups_for_lag_is_refused(tmp_path: Path) -> None:
    groups = [argument for number in range(101) for argument in ("--metrics-lag", f"g{number}")]
    error_text = refusal("serve", "--data", "d", "--metrics", "127.0.0.1:0", *groups, folder=tmp_path)
    assert error_text.startswith("the lag of 101 groups is requested, expected at most 100")


# The page of metrics is made rarely, and off the loop ----------------------------------------------------------------


class PageMaker:
    """Makes numbered pages. A page is complete when ``gate`` is open; ``error`` is raised instead of it."""

    def __init__(self) -> None:
        self.made = 0
        self.gate = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> bytes:
        self.made += 1
        number = self.made
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return b"%d" % number


class SetClock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@async_test
async def test_scrapes_at_the_same_time_share_one_page() -> None:
    maker = PageMaker()
    page = KeptPage(maker, SetClock())
    scrapes = [asyncio.create_task(page.get()) for _ in range(20)]
    await asyncio.sleep(0)
    maker.gate.set()
    assert set(await asyncio.gather(*scrapes)) == {b"1"}
    assert maker.made == 1


@async_test
async def test_page_is_kept_for_a_second_after_it_was_made() -> None:
    maker, clock = PageMaker(), SetClock()
    maker.gate.set()
    page = KeptPage(maker, clock)
    assert await page.get() == b"1"
    clock.now_s = PAGE_KEPT_S - 0.001
    assert await page.get() == b"1"
    clock.now_s = PAGE_KEPT_S
    assert await page.get() == b"2"


@async_test
async def test_scrape_that_is_given_up_does_not_cancel_the_page_of_others() -> None:
    maker = PageMaker()
    page = KeptPage(maker, SetClock())
    first, second = (asyncio.create_task(page.get()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    maker.gate.set()
    assert await second == b"1"
    assert maker.made == 1


@async_test
async def test_page_that_failed_is_not_kept() -> None:
    maker = PageMaker()
    maker.gate.set()
    page = KeptPage(maker, SetClock())
    maker.error = OSError("the disk is gone")
    with pytest.raises(OSError, match="the disk is gone"):
        await page.get()
    maker.error = None
    assert await page.get() == b"2"


@pytest.mark.parametrize("name", ["generate_latest", "_count_groups", "_sizes"])
@async_test
async def test_slow_parts_of_the_page_are_made_off_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    threads: list[threading.Thread] = []
    original: Callable[..., object] = getattr(metrics_module, name)

    def recorded(*arguments: object) -> object:
        threads.append(threading.current_thread())
        return original(*arguments)

    monkeypatch.setattr(metrics_module, name, recorded)
    async with running_node(tmp_path) as harness:
        await metrics(lambda: harness.node)
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()


# Other pages ---------------------------------------------------------------------------------------------------------


@async_test
async def test_readyz_with_failed_log_returns_503_with_reason(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness, serving(new_pages(harness)) as port:
        log = harness.node.offsets_log
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(log, "stats", lambda: LogStats(failure="fdatasync: Input/output error"))
            response = await asyncio.to_thread(get, port, "/readyz")
            samples = await scrape(port)
    assert response.status == 503
    assert response.text == "commits are refused, the log has failed: fdatasync: Input/output error\n"
    assert samples["callboard_log_failed"] == 1


@async_test
async def test_readyz_during_loading_returns_503(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness, serving(new_pages(harness)) as port:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Node, "is_loading", True)
            for number in (1, 2):
                patch.setattr(harness.node.groups.partitions[number], "state", PartitionState.LOADING)
            response = await asyncio.to_thread(get, port, "/readyz")
            samples = await scrape(port)
    assert (response.status, response.text) == (503, "2 partitions of the log are being read\n")
    assert samples["callboard_loading_partitions"] == 2


def test_metrics_while_the_node_is_opened_has_a_page() -> None:
    assert pages(lambda: None).not_ready() == "the log is being opened"
    assert b"process_resident_memory_bytes" in asyncio.run(metrics(lambda: None))


@async_test
async def test_healthz_and_readyz_of_running_node_return_200(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness, serving(new_pages(harness)) as port:
        assert await asyncio.to_thread(get, port, "/healthz") == (200, "text/plain; charset=utf-8", "healthy\n")
        assert await asyncio.to_thread(get, port, "/readyz") == (200, "text/plain; charset=utf-8", "ready\n")


async def _nothing() -> bytes:
    return b""


@async_test
async def test_readyz_returns_reason() -> None:
    async with serving(Pages(_nothing, lambda: "partition 7 of 50 is being loaded")) as port:
        ready, health = [await asyncio.to_thread(get, port, path) for path in ("/readyz", "/healthz")]
    assert (ready.status, ready.text) == (503, "partition 7 of 50 is being loaded\n")
    assert health.status == 200, "a loading server must not be restarted"


@async_test
async def test_unknown_page_returns_404_with_known_pages() -> None:
    async with serving(Pages(_nothing, lambda: None)) as port:
        response = await asyncio.to_thread(get, port, "/metric?x=1")
        head = await asyncio.to_thread(get, port, "/healthz", "HEAD")
    assert response.status == 404
    assert response.text == "nothing is at '/metric?x=1', expected one of /metrics, /healthz, /readyz\n"
    assert (head.status, head.text) == (200, "")


@async_test
async def test_healthz_with_blocked_loop_returns_503() -> None:
    responses: list[HttpResponse] = []

    def ask(port: int) -> None:
        responses.append(get(port, "/healthz"))

    async with serving(Pages(_nothing, lambda: None)) as port:
        thread = threading.Thread(target=ask, args=(port,))
        thread.start()
        while thread.is_alive():  # this blocks the loop until the response has come
            time.sleep(0.01)
    assert [(response.status, response.text) for response in responses] == [
        (503, f"the server's loop has not answered for {LOOP_TIMEOUT_S:.0f} s\n")
    ]


def test_serve_with_used_metrics_port_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        command = ("serve", "--listen", "127.0.0.1:0", "--data", "d", "--metrics", f"127.0.0.1:{port}")
        error_text = refusal(*command, folder=tmp_path)
    assert error_text.startswith(f"port {port} of 127.0.0.1 is in use")
    assert "--metrics" in error_text


@pytest.mark.parametrize("address", ["9644", "127.0.0.1:x", "127.0.0.1:70000"])
def test_serve_with_invalid_metrics_address_is_refused(tmp_path: Path, address: str) -> None:
    error_text = refusal("serve", "--data", "d", "--metrics", address, folder=tmp_path)
    assert error_text.startswith(f"bad metrics '{address}'")


@async_test
async def test_every_metric_is_documented(tmp_path: Path) -> None:
    document = (DOCS / "metrics.md").read_text()
    options = {"metric_options": MetricOptions(has_requests=True)}
    async with running_node(tmp_path, options) as harness, serving(new_pages(harness)) as port:
        response = await asyncio.to_thread(get, port, "/metrics")
    names = {family.name for family in text_string_to_metric_families(response.text)} | {"callboard_group_lag"}
    documented = set(re.findall(r"`(callboard_\w+)", document.partition("## Lag")[0]))
    assert {name for name in names if name.startswith("callboard_")} == documented
