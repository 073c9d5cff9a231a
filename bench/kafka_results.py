"""The figures of ``callboard bench kafka``: rows, ratios, the tables and the JSON. No I/O but printing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from callboard.bench.harness import median_or_none, summarise
from callboard.bench.load_connections import LoadResult
from callboard.bench.load_generator import COMMITS

SCHEMA = 1
"""The version of the JSON's form; changed with each change of its fields."""
CALLBOARD, KAFKA, SYNCED_KAFKA = "Callboard", "Kafka", "Kafka, synced"
NOT_KNOWN = "not known"
COLUMNS = (
    *("requests", "load", "server", "synced before\nthe answer", "requests/s", "spread"),
    *("p50\nms", "p99\nms", "p99.9\nms", "CPU\nus/req"),
)
RATIO_COLUMNS = ("requests", "load", "Callboard / ...", "requests/s", "CPU per request", "p50", "p99", "p99.9")


class Load(NamedTuple):
    """What is sent: heartbeats or commits, and how many at a time on each connection."""

    requests: str
    in_flight: int


class Figures(NamedTuple):
    """Those of one run, or their medians. ``cpu_us``: of the server for each request; None if it is not known."""

    requests_per_s: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    cpu_us: float | None


class Row(NamedTuple):
    """One server under one load. ``rounds`` has the figures of each round, ``figures`` their medians."""

    server: str
    load: Load
    synced: str
    figures: Figures
    spread: float
    rounds: list[Figures]


class Ratio(NamedTuple):
    """Callboard's figure divided by Kafka's in each round: the median, the least and the largest."""

    median: float
    least: float
    most: float


class Comparison(NamedTuple):
    """Callboard's row and one of Kafka's under the same load; ``cpu`` is None if Kafka's is not known."""

    load: Load
    kafka: str
    rate: Ratio
    cpu: Ratio | None
    p50: Ratio
    p99: Ratio
    p999: Ratio


Rounds = Mapping[tuple[str, Load], Sequence[LoadResult]]


def figures(run: LoadResult) -> Figures:
    return Figures(
        run.answers / run.elapsed_s,
        1e3 * run.latency_p50_s,
        1e3 * run.latency_p99_s,
        1e3 * run.latency_p999_s,
        None if run.server_cpu_s is None else 1e6 * run.server_cpu_s / run.answers,
    )


def medians(rounds: Sequence[Figures]) -> Figures:
    return Figures(
        median(each.requests_per_s for each in rounds),
        median(each.p50_ms for each in rounds),
        median(each.p99_ms for each in rounds),
        median(each.p999_ms for each in rounds),
        median_or_none([each.cpu_us for each in rounds]),
    )


def make_rows(rounds: Rounds) -> list[Row]:
    """Sorted by load, heartbeats first; under each load in the order of ``rounds``."""
    order = sorted(rounds, key=lambda key: (key[1].requests == COMMITS, key[1].in_flight))
    return [_row(server, load, [figures(run) for run in rounds[server, load]]) for server, load in order]


def _row(server: str, load: Load, measured: list[Figures]) -> Row:
    spread = summarise([each.requests_per_s for each in measured]).spread
    return Row(server, load, synced(server, load.requests), medians(measured), spread, measured)


def synced(server: str, requests: str) -> str:
    """Whether an answer says that the disk has the record; "" for heartbeats, which write nothing."""
    if requests != COMMITS:
        return ""
    return {CALLBOARD: "always", KAFKA: "no, its default", SYNCED_KAFKA: "each write"}[server]


def make_comparisons(rows: Sequence[Row]) -> list[Comparison]:
    """Callboard's rows with each of Kafka's under the same load."""
    ours = {row.load: row for row in rows if row.server == CALLBOARD}
    return [_comparison(ours[row.load], row) for row in rows if row.server != CALLBOARD]


def _comparison(ours: Row, kafka: Row) -> Comparison:
    ratios = [
        _ratio([each[index] for each in ours.rounds], [each[index] for each in kafka.rounds]) for index in range(5)
    ]
    rate, p50, p99, p999, cpu = ratios
    assert rate is not None and p50 is not None and p99 is not None and p999 is not None
    return Comparison(ours.load, kafka.server, rate, cpu, p50, p99, p999)


def _ratio(ours: Sequence[float | None], kafkas: Sequence[float | None]) -> Ratio | None:
    """None if a figure is unknown in all rounds, or too small to divide by."""
    ratios = [own / kafka for own, kafka in zip(ours, kafkas, strict=True) if own is not None and kafka]
    return Ratio(median(ratios), min(ratios), max(ratios)) if ratios else None


def cells(row: Row, connections: int) -> list[str]:
    values = row.figures
    return [
        row.load.requests,
        f"{connections} x {row.load.in_flight}",
        row.server,
        row.synced,
        f"{values.requests_per_s:,.0f}",
        f"{row.spread:.0%}",
        f"{values.p50_ms:.2f}",
        f"{values.p99_ms:.2f}",
        f"{values.p999_ms:.2f}",
        NOT_KNOWN if values.cpu_us is None else f"{values.cpu_us:.1f}",
    ]


def ratio_cells(comparison: Comparison, connections: int) -> list[str]:
    measured = (comparison.rate, comparison.cpu, comparison.p50, comparison.p99, comparison.p999)
    load = comparison.load
    return [load.requests, f"{connections} x {load.in_flight}", comparison.kafka, *map(ratio_text, measured)]


def ratio_text(ratio: Ratio | None) -> str:
    """The median, and below it the least and the largest, unless there was only one round."""
    if ratio is None:
        return NOT_KNOWN
    if ratio.least == ratio.most:
        return f"{ratio.median:.2f}"
    return f"{ratio.median:.2f}\n{ratio.least:.2f} to {ratio.most:.2f}"


def row_json(row: Row) -> dict[str, Any]:
    return {
        "server": row.server,
        **row.load._asdict(),
        "synced": row.synced,
        **row.figures._asdict(),
        "spread": row.spread,
        "rounds": [each._asdict() for each in row.rounds],
    }


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Ratios as objects with ``median``, ``least`` and ``most``; null if one is not known."""
    ratios = {name: value._asdict() for name, value in comparison._asdict().items() if isinstance(value, Ratio)}
    return {"kafka": comparison.kafka, **comparison.load._asdict(), "cpu": None, **ratios}
