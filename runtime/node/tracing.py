"""RebalanceTracer: a span of OpenTelemetry for each rebalance, with a child for each of its phases.

It is made when the rebalance has ended. Only ``opentelemetry-api`` is used, and only in a program that has imported it:
this module imports nothing by itself. Without a tracer provider nothing is recorded.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ...actors.group.event_log import RebalanceSummary, RebalanceTally
from ...actors.group.events import DEAD_NAME, GroupEvent, Kind, Reason
from ...actors.group.rebalance_counts import PHASES

TRACE_MODULE: Final = "opentelemetry.trace"
TRACER_NAME: Final = "callboard"
SPAN_NAME: Final = "kafka.rebalance"
"""Of the phases with a suffix, as in ``kafka.rebalance.join``."""

PHASES_MAX = 32
"""Phases of a rebalance that begins again and again. Later ones have no spans."""

NS_PER_MS = 1_000_000

log = logging.getLogger("callboard.runtime")


class PhaseBegin(NamedTuple):
    phase: str
    event: GroupEvent


class OpenRebalance:
    """The rebalance of one group: its events, added up, and the phases that have begun."""

    __slots__ = ("phases", "tally")

    def __init__(self) -> None:
        self.tally = RebalanceTally()
        self.phases: list[PhaseBegin] = []


class RebalanceTracer:
    """Observes the events of all groups."""

    def __init__(self) -> None:
        self._open: dict[str, OpenRebalance] = {}  # by group id

    def observe(self, group_id: str, events: Sequence[GroupEvent]) -> None:
        """An exporter that fails is logged, and does not affect the group."""
        if TRACE_MODULE not in sys.modules:
            return
        for event in events:
            if event.reason is not Reason.LOADED:
                self._add(group_id, event)

    def _add(self, group_id: str, event: GroupEvent) -> None:
        rebalance = self._open.setdefault(group_id, OpenRebalance())
        summary = rebalance.tally.add(event)
        if event.kind is not Kind.STATE_CHANGED:
            return
        phase = PHASES.get(event.state)
        if phase is not None and len(rebalance.phases) < PHASES_MAX:
            rebalance.phases.append(PhaseBegin(phase, event))
        if summary is not None:
            try:
                _record(group_id, summary, rebalance.phases)
            except Exception:
                log.exception("bug in a tracer: a rebalance has no span")
        if phase is None or event.state == DEAD_NAME:
            del self._open[group_id]


def _record(group_id: str, summary: RebalanceSummary, phases: Sequence[PhaseBegin]) -> None:
    from opentelemetry import context, trace

    tracer = trace.get_tracer(TRACER_NAME)
    begin_ns = _wall_ns(summary.cause)
    span = tracer.start_span(
        SPAN_NAME, context.Context(), attributes=_attributes(group_id, summary), start_time=begin_ns
    )
    if span.is_recording():
        parent = trace.set_span_in_context(span, context.Context())
        ends = [*(begin.event for begin in phases[1:]), summary.ended]
        for (phase, begin), end in zip(phases, ends, strict=True):
            child = tracer.start_span(f"{SPAN_NAME}.{phase}", parent, start_time=_since(begin, summary))
            child.end(_since(end, summary))
    span.end(_since(summary.ended, summary))


def _wall_ns(event: GroupEvent) -> int:
    return event.wall_ms * NS_PER_MS


def _since(event: GroupEvent, summary: RebalanceSummary) -> int:
    """The time of an event in ns since 1970. A step of the wall clock does not change durations."""
    return _wall_ns(summary.cause) + (event.monotonic_ms - summary.cause.monotonic_ms) * NS_PER_MS


def _attributes(group_id: str, summary: RebalanceSummary) -> dict[str, Any]:
    """The names that begin with "messaging" are those of OpenTelemetry's conventions that do not change any more."""
    cause, ended = summary.cause, summary.ended
    attributes: dict[str, Any] = {
        "messaging.consumer.group.name": group_id,
        "callboard.rebalance.cause": cause.reason.name.lower(),
        "callboard.rebalance.generation": ended.generation,
        "callboard.rebalance.state": ended.state,
        "callboard.rebalance.joined": summary.joined,
        "callboard.rebalance.left": summary.left,
        "callboard.rebalance.expired": summary.expired,
        "callboard.rebalance.restarts": summary.restarts,
    }
    names = {"messaging.client.id": cause.client_id, "callboard.member.id": cause.member_id}
    return attributes | {name: value for name, value in names.items() if value}
