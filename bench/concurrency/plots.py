"""The plots of a run, as PNG. matplotlib is loaded when one is drawn.

An engine has the same colour, marker and dash in all plots (``styles.py``). Engines that are WRONG or FAILED have no
figures and are not drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from io import BytesIO
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from callboard.bench.concurrency.plan import Case
from callboard.bench.concurrency.results import BASE, RIGHT, Summary, SummaryTable
from callboard.bench.concurrency.styles import STYLES, count, rate, significant, style
from callboard.bench.harness import BenchError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

WIDTH_IN = 10.0
DPI = 130
FEW_TENS = 100  # an axis with a smaller span has ticks between powers of ten
PANELS_A_LINE = 2  # of panels with separate scales
ROW_IN = 0.34  # an engine's line in a plot of rows
TEXT = "#222222"

SETTINGS: Any = {  # matplotlib's type for it differs between versions
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": "#777777",
    "axes.labelcolor": TEXT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "text.color": TEXT,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 7,
}


def require() -> None:
    """Raise BenchError if matplotlib is missing. Called before the measurements."""
    if find_spec("matplotlib") is None:
        raise BenchError(
            "the report's plots need matplotlib, which is not installed; run: pip install 'callboard[bench]' "
            "(or give --no-html: table, CSV and JSON only)"
        )


# The four kinds of plot -----------------------------------------------------------------------------------------------


def throughput(cases: Sequence[Case], table: SummaryTable) -> bytes:
    """Requests per second of one workload, by number of groups; a row per engine if there is only one number."""
    return _against_groups(cases, table) if len(cases) > 1 else _rates(table[cases[0]])


def ccdf(cases: Sequence[Case], table: SummaryTable) -> bytes | None:
    """The share of requests slower than a latency, one panel per number of groups; None without curves."""
    cases = [case for case in cases if any(summary.ccdf for summary in table[case].values())]
    if not cases:
        return None

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, len(cases), sharey=True, squeeze=False)[0]
        for panel, case in zip(panels, cases, strict=True):
            for summary in table[case].values():
                if summary.ccdf:
                    _line(
                        panel,
                        summary.engine,
                        [latency_us / 1e3 for latency_us, _ in summary.ccdf],
                        [share for _, share in summary.ccdf],
                    )
            panel.set(xscale="log", yscale="log", xlabel="latency, ms")
            panel.set_title(count(case.groups, "group"))
            low, high = panel.get_xlim()
            _tens(panel.xaxis, "{:,.6g}".format, (1,) if high / low > FEW_TENS else (1, 2, 5))
            _tens(panel.yaxis, lambda share: f"{100 * share:.6g} %")
        panels[0].set_ylabel("share of slower requests")
        _legend(figure, panels)

    return _png(draw, 4.4)


def memory(cases: Sequence[Case], table: SummaryTable) -> bytes | None:
    """Resident memory per group, a row per engine, a panel per case; None without figures."""
    cases = [case for case in cases if _rows(table[case], "bytes_a_group")]
    if not cases:
        return None
    engines = _engines(cases, table, "bytes_a_group")

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, len(cases), sharey=True, sharex=True, squeeze=False)[0]
        for panel, case in zip(panels, cases, strict=True):
            for summary in _rows(table[case], "bytes_a_group"):
                _bar(
                    panel,
                    engines.index(summary.engine),
                    summary.engine,
                    (summary.figure("bytes_a_group") or 0) / 1e3,
                    significant,
                )
            panel.set_xlabel("kB per group")
            panel.set_xlim(left=0)
            panel.set_title(count(case.groups, "group"))
            _name_rows(panel, engines)

    return _png(draw, 1.1 + ROW_IN * len(engines))


def fairness(cases: Sequence[Case], table: SummaryTable) -> bytes | None:
    """The 99th percentile of hot and of cold groups, joined by a line, and Jain's index; None without figures."""
    cases = [case for case in cases if _rows(table[case], "cold_p99_us")]
    if not cases:
        return None
    engines = _engines(cases, table, "cold_p99_us")

    lines = -(-len(cases) // PANELS_A_LINE)

    def draw(figure: Figure) -> None:
        grid = figure.subplots(lines, min(len(cases), PANELS_A_LINE), sharey=True, squeeze=False).flat
        for panel, case in zip_longest(grid, cases):
            if case is None:
                panel.set_visible(False)
                continue
            for summary in _rows(table[case], "cold_p99_us"):
                _dumbbell(panel, engines.index(summary.engine), summary)
            panel.set(xscale="log", xlabel="p99, ms")
            panel.set_title(f"{case.workload}, {count(case.groups, 'group')}")
            panel.set_title("Jain", loc="right", fontsize=9, fontweight="normal")
            _few(panel.xaxis, "{:,.6g}".format)
            _name_rows(panel, engines)

    return _png(draw, lines * (1.1 + ROW_IN * len(engines)))


# Parts ----------------------------------------------------------------------------------------------------------------


def _against_groups(cases: Sequence[Case], table: SummaryTable) -> bytes:
    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for engine in dict.fromkeys(engine for case in cases for engine in table[case]):
            summaries = [table[case][engine] for case in cases if engine in table[case] and table[case][engine].rounds]
            if summaries:
                _ranges(axes, engine, summaries)
        sizes = [case.groups for case in cases]
        axes.set(xscale="log", yscale="log", xlabel="groups", ylabel="requests per second")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.minorticks_off()
        _few(axes.yaxis, rate)
        _legend(figure, [axes])

    return _png(draw, 4.2)


def _ranges(axes: Axes, engine: str, summaries: Sequence[Summary]) -> None:
    """An engine's medians as a line, and a bar from its slowest round to its fastest."""
    sizes = [summary.case.groups for summary in summaries]
    medians = [summary.throughput.median for summary in summaries if summary.throughput]
    _line(axes, engine, sizes, medians, marked=True)
    for summary in summaries:
        axes.plot([summary.case.groups] * 2, _span(summary), color=style(engine).colour, linewidth=1, alpha=0.6)


def _span(summary: Summary) -> tuple[float, float]:
    return min(summary.rounds.values()), max(summary.rounds.values())


def _tens(axis: Axis, write: Callable[[float], str], steps: Sequence[int] = (1,)) -> None:
    """Label a logarithmic axis at the powers of ten times ``steps``, with plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))
    axis.set_minor_formatter(NullFormatter())


def _few(axis: Axis, write: Callable[[float], str]) -> None:
    """As ``_tens``, for an axis that spans few powers of ten."""
    _tens(axis, write, (1, 2, 5))


def _rates(summaries: dict[str, Summary]) -> bytes:
    correct = [summary for summary in summaries.values() if summary.rounds]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for row, summary in enumerate(correct):
            assert summary.throughput is not None
            _bar(axes, row, summary.engine, summary.throughput.median, rate)
            axes.plot(_span(summary), [row + 0.34] * 2, color="#555555", linewidth=1.2)
        axes.set_xlabel("requests per second (thin line: from the slowest round to the fastest)")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_xlim(left=0)
        _name_rows(axes, [summary.engine for summary in correct])

    return _png(draw, 1.1 + ROW_IN * max(len(correct), 1))


def _line(axes: Axes, engine: str, x: Sequence[float], y: Sequence[float], marked: bool = False) -> None:
    engine_style = style(engine)
    width = 2.4 if engine == BASE else None
    marker_interval = None if marked else max(len(x) // 6, 1)  # six markers on a curve
    axes.plot(
        x,
        y,
        engine_style.dash,
        color=engine_style.colour,
        marker=engine_style.marker,
        markevery=marker_interval,
        linewidth=width,
        label=engine,
    )


def _bar(axes: Axes, row: int, engine: str, value: float, write: Callable[[float], str]) -> None:
    axes.barh(row, value, height=0.6, color=style(engine).colour)
    axes.margins(x=0.14)  # for the numbers
    axes.annotate(write(value), (value, row), xytext=(5, 0), textcoords="offset points", va="center", fontsize=9)


def _dumbbell(axes: Axes, row: int, summary: Summary) -> None:
    """Hollow: the groups that are not hot; filled: the hottest 1 %."""
    cold, hot = summary.figure("cold_p99_us"), summary.figure("hot_p99_us")
    engine_style = style(summary.engine)
    assert cold is not None
    axes.margins(x=0.18)  # for Jain's index at the right end
    if hot:
        axes.plot([cold / 1e3, hot / 1e3], [row, row], color=engine_style.colour, linewidth=1.5)
        axes.plot([hot / 1e3], [row], engine_style.marker, color=engine_style.colour)
    axes.plot(
        [cold / 1e3],
        [row],
        engine_style.marker,
        color=engine_style.colour,
        markerfacecolor="white",
        markeredgewidth=1.6,
    )
    jain = summary.figure("jain")
    if jain is not None:
        axes.text(1.0, row, f"{jain:.2f}", transform=axes.get_yaxis_transform(), ha="right", va="center", fontsize=9)


def _rows(summaries: dict[str, Summary], name: str) -> list[Summary]:
    """The correct engines whose figure is above 0."""
    return [summary for summary in summaries.values() if summary.status == RIGHT and (summary.figure(name) or 0) > 0]


def _engines(cases: Sequence[Case], table: SummaryTable, name: str) -> list[str]:
    """The engines with this figure in any case, in the order of the tables."""
    engines = dict.fromkeys(summary.engine for case in cases for summary in _rows(table[case], name))
    known_engines = list(STYLES)
    return sorted(
        engines, key=lambda engine: known_engines.index(engine) if engine in known_engines else len(known_engines)
    )


def _name_rows(axes: Axes, engines: Sequence[str]) -> None:
    axes.set_yticks(range(len(engines)), engines)
    axes.set_ylim(len(engines) - 0.4, -0.6)  # the first engine on top, as in the tables
    axes.grid(visible=False, axis="y")


def _legend(figure: Figure, panels: Sequence[Axes]) -> None:
    """One legend for all panels, to the right of them."""
    handles = dict(pair[::-1] for panel in panels for pair in zip(*panel.get_legend_handles_labels(), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside right upper", handlelength=3)


def _png(draw: Callable[[Figure], None], height_in: float) -> bytes:
    """The drawing of ``draw`` as a PNG, without a display and without pyplot's global state."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(SETTINGS):
        figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        draw(figure)
        png = BytesIO()
        figure.savefig(png, format="png", dpi=DPI)
    return png.getvalue()
