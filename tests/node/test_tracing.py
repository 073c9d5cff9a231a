"""Spans of rebalances, in the exporter in memory of OpenTelemetry's SDK."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from harness import async_test, commit_values, heartbeat_values, join_and_sync, running_node

from callboard import Coordinator
from callboard.actors.group.events import DEAD_NAME, GroupEvent, Kind, Reason
from callboard.runtime.node.tracing import PHASES_MAX, RebalanceTracer

trace = pytest.importorskip("opentelemetry.trace")
sdk = pytest.importorskip("opentelemetry.sdk.trace")
exporters = pytest.importorskip("opentelemetry.sdk.trace.export")
memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a provider of this test exports. The provider of a process can be set only once."""
    provider, exporter = sdk.TracerProvider(), memory.InMemorySpanExporter()
    provider.add_span_processor(exporters.SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return exporter


def by_name(exporter: Any) -> dict[str, list[Any]]:
    spans: dict[str, list[Any]] = {}
    for span in exporter.get_finished_spans():
        spans.setdefault(span.name, []).append(span)
    return spans


@async_test
async def test_rebalance_over_tcp_is_a_span_with_its_phases(tmp_path: Path, exporter: Any) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        member = await join_and_sync(client, "g")
        spans = by_name(exporter)
        for _ in range(5):
            await client.ask("heartbeat", **heartbeat_values("g", member))
            await client.ask("offset_commit", 9, **commit_values("g", member))
        assert by_name(exporter) == spans, "neither heartbeats nor commits have spans"
    [parent] = spans.pop("kafka.rebalance")
    assert {name: len(found) for name, found in spans.items()} == {"kafka.rebalance.join": 1, "kafka.rebalance.sync": 1}
    assert parent.parent is None
    attributes = dict(parent.attributes)
    assert attributes.pop("callboard.member.id") == member.member_id
    assert attributes.pop("messaging.client.id")
    assert attributes == {
        "messaging.consumer.group.name": "g",
        "callboard.rebalance.cause": "member_joined",
        "callboard.rebalance.generation": member.generation_id,
        "callboard.rebalance.state": "Stable",
        "callboard.rebalance.joined": 1,
        "callboard.rebalance.left": 0,
        "callboard.rebalance.expired": 0,
        "callboard.rebalance.restarts": 0,
    }
    [join], [sync] = spans.values()
    for child in (join, sync):
        assert child.parent.span_id == parent.context.span_id
    assert (join.start_time, sync.end_time) == (parent.start_time, parent.end_time)
    assert join.end_time == sync.start_time


@async_test
async def test_rebalance_of_an_embedded_coordinator_is_no_part_of_the_programs_own_spans(
    tmp_path: Path, exporter: Any
) -> None:
    async with Coordinator(tmp_path) as coordinator:
        with trace.get_tracer("program").start_as_current_span("work"):
            async with coordinator.member("g", resources={"jobs": 1}, protocol="consumer") as member:
                await member.next_assignment()
    spans = by_name(exporter)
    assert len(spans["kafka.rebalance.assign"]) == len(spans["kafka.rebalance"]) == 1
    [rebalance] = spans["kafka.rebalance"]
    assert rebalance.parent is None
    assert rebalance.context.trace_id != spans["work"][0].context.trace_id


# Without I/O ---------------------------------------------------------------------------------------------------------


def changed(state: str, reason: Reason, at_ms: int, wall_ms: int | None = None) -> GroupEvent:
    return GroupEvent(1_000_000 + at_ms if wall_ms is None else wall_ms, at_ms, Kind.STATE_CHANGED, reason, state, 3)


REBALANCE = (
    changed("PreparingRebalance", Reason.SESSION_EXPIRED, 0),
    changed("CompletingRebalance", Reason.ALL_JOINED, 400, wall_ms=5),
    changed("Stable", Reason.ASSIGNMENT_STORED, 450, wall_ms=6),
)


def observe(tracer: RebalanceTracer, events: Sequence[GroupEvent]) -> None:
    for event in events:
        tracer.observe("g", [event])


def test_durations_do_not_follow_steps_of_the_wall_clock(exporter: Any) -> None:
    observe(RebalanceTracer(), REBALANCE)
    spans = by_name(exporter)
    [parent], [join] = spans["kafka.rebalance"], spans["kafka.rebalance.join"]
    assert (parent.start_time, parent.end_time - parent.start_time) == (1_000_000_000_000, 450_000_000)
    assert join.end_time - join.start_time == 400_000_000
    assert "messaging.client.id" not in parent.attributes


def test_group_that_is_gone_leaves_no_span_and_no_memory(exporter: Any) -> None:
    tracer = RebalanceTracer()
    observe(tracer, [REBALANCE[0], changed(DEAD_NAME, Reason.DELETED, 10)])
    assert exporter.get_finished_spans() == ()
    assert tracer._open == {}
    observe(tracer, REBALANCE)
    assert tracer._open == {}


def test_rebalance_that_begins_again_for_ever_has_a_limited_number_of_phases(exporter: Any) -> None:
    tracer = RebalanceTracer()
    observe(tracer, REBALANCE[:2] * 100)
    assert len(tracer._open["g"].phases) == PHASES_MAX
    observe(tracer, REBALANCE[2:])
    assert len(exporter.get_finished_spans()) == PHASES_MAX + 1


def test_tracer_that_fails_is_logged(
    exporter: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trace, "get_tracer", None)
    tracer = RebalanceTracer()
    with caplog.at_level(logging.ERROR, "callboard.runtime"):
        observe(tracer, REBALANCE)
    assert "a rebalance has no span" in caplog.text
    assert tracer._open == {}


def test_program_without_opentelemetry_imports_nothing_of_it() -> None:
    script = (
        "import asyncio, sys, callboard\n"
        "async def main():\n"
        "    async with callboard.Coordinator() as coordinator:\n"
        "        async with coordinator.member('g', resources={'jobs': 1}) as member:\n"
        "            await member.next_assignment()\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    completed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert completed.stdout == "[]\n", completed.stderr


def test_without_a_provider_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    tracer = trace.NoOpTracer()

    def start_span(name: str, *_arguments: Any, **_named: Any) -> Any:
        made.append(name)
        return trace.INVALID_SPAN

    monkeypatch.setattr(tracer, "start_span", start_span)
    monkeypatch.setattr(trace, "get_tracer", lambda name: tracer)
    observe(RebalanceTracer(), REBALANCE)
    assert made == ["kafka.rebalance"], "no children"
