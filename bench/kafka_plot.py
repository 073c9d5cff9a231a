"""The plot of ``callboard bench kafka``, as PNG. matplotlib is loaded when it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from callboard.bench.harness import BenchError
from callboard.bench.kafka_results import CALLBOARD, KAFKA, SYNCED_KAFKA, Figures, Load, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {CALLBOARD: "#1450F5", KAFKA: "#111111", SYNCED_KAFKA: "#E9580E"}
BAR = 0.26  # of the distance between two loads
DPI = 130
SIZE_IN = (11.0, 4.6)

PANELS: Sequence[tuple[str, Callable[[Figures], float | None]]] = (
    ("requests/s (higher is better)", lambda figures: figures.requests_per_s),
    ("p99, ms (lower is better)", lambda figures: figures.p99_ms),
    ("server CPU, us per request (lower is better)", lambda figures: figures.cpu_us),
)


def require() -> None:
    """Raise BenchError if matplotlib is missing. Called before the measurements."""
    if find_spec("matplotlib") is None:
        raise BenchError("--plot needs matplotlib, which is not installed; run: pip install 'callboard[bench]'")


def save_plot(path: Path, title: str, rows: Sequence[Row], connections: int) -> None:
    """Bars of all rows, a panel for each figure. A figure that is not known has no bar."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE_IN, layout="constrained")
    figure.suptitle(title, fontsize=10)
    panels = figure.subplots(1, len(PANELS), sharey=True)
    loads = list(dict.fromkeys(row.load for row in rows))
    for panel, (name, value) in zip(panels, PANELS, strict=True):
        panel.set_title(name, fontsize=9)
        panel.spines[["top", "right"]].set_visible(False)
        for row in rows:
            _draw_bar(panel, loads.index(row.load), row, value(row.figures))
        panel.margins(x=0.18)
    panels[0].set_yticks(range(len(loads)), [_load_name(load, connections) for load in loads])
    panels[0].invert_yaxis()
    names = dict(zip(*reversed(panels[0].get_legend_handles_labels()), strict=True))
    figure.legend(names.values(), names.keys(), loc="outside lower center", ncols=len(names), frameon=False)
    figure.savefig(path, format="png", dpi=DPI)


def _draw_bar(panel: Axes, position: int, row: Row, value: float | None) -> None:
    if value is None:
        return
    place = list(COLOURS).index(row.server) - 1
    bars = panel.barh(position + place * BAR, value, BAR, color=COLOURS[row.server], label=row.server)
    panel.bar_label(bars, fmt="{:,.0f}" if value >= 100 else "{:.1f}", padding=2, fontsize=8)


def _load_name(load: Load, connections: int) -> str:
    return f"{load.requests}\n{connections} x {load.in_flight}"
