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
    """Requests a second of one workload: against the number of groups, or a row an engine when there is but one."""
    return _against_groups(cases, table) if len(cases) > 1 else _rates(table[cases[0]])


def ccdf(cases: Sequence[Case], table: SummaryTable) -> bytes | None:
    """The share of requests that were slower than a latency, one panel a number of groups; None without curves."""
    cases = [case for case in cases if any(each.ccdf for each in table[case].values())]
    if not cases:
        return None

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, len(cases), sharey=True, squeeze=False)[0]
        for panel, case in zip(panels, cases, strict=True):
            for each in table[case].values():
                if each.ccdf:
                    _line(panel, each.engine, [us / 1e3 for us, _ in each.ccdf], [share for _, share in each.ccdf])
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
            for each in _rows(table[case], "bytes_a_group"):
                _bar(
                    panel,
                    engines.index(each.engine),
                    each.engine,
                    (each.figure("bytes_a_group") or 0) / 1e3,
                    significant,
                )
            panel.set_xlabel("kB per group")
            panel.set_xlim(left=0)
            panel.set_title(count(case.groups, "group"))
            _name_rows(panel, engines)

    return _png(draw, 1.1 + ROW_IN * len(engines))


def fairness(cases: Sequence[Case], table: SummaryTable) -> bytes | None:
    """The 99th percentile of hot and of cold groups, joined by a line, and Jain's index; None when it is not known."""
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
            for each in _rows(table[case], "cold_p99_us"):
                _dumbbell(panel, engines.index(each.engine), each)
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
            own = [table[case][engine] for case in cases if engine in table[case] and table[case][engine].rounds]
            if own:
                _ranges(axes, engine, own)
        sizes = [case.groups for case in cases]
        axes.set(xscale="log", yscale="log", xlabel="groups", ylabel="requests per second")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.minorticks_off()
        _few(axes.yaxis, rate)
        _legend(figure, [axes])

    return _png(draw, 4.2)


def _ranges(axes: Axes, engine: str, own: Sequence[Summary]) -> None:
    """An engine's medians as a line, and a bar from its slowest round to its fastest."""
    sizes = [each.case.groups for each in own]
    middles = [each.throughput.median for each in own if each.throughput]
    _line(axes, engine, sizes, middles, marked=True)
    for each in own:
        axes.plot([each.case.groups] * 2, _span(each), color=style(engine).colour, linewidth=1, alpha=0.6)


def _span(summary: Summary) -> tuple[float, float]:
    return min(summary.rounds.values()), max(summary.rounds.values())


def _tens(axis: Axis, write: Callable[[float], str], between: Sequence[int] = (1,)) -> None:
    """A logarithmic axis with its powers of ten as numbers that people read, and perhaps some between them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=between))
    axis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))
    axis.set_minor_formatter(NullFormatter())


def _few(axis: Axis, write: Callable[[float], str]) -> None:
    """As ``_tens``, for an axis of few powers."""
    _tens(axis, write, (1, 2, 5))


def _rates(own: dict[str, Summary]) -> bytes:
    right = [each for each in own.values() if each.rounds]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for row, each in enumerate(right):
            assert each.throughput is not None
            _bar(axes, row, each.engine, each.throughput.median, rate)
            axes.plot(_span(each), [row + 0.34] * 2, color="#555555", linewidth=1.2)
        axes.set_xlabel("requests per second (thin line: from the slowest round to the fastest)")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_xlim(left=0)
        _name_rows(axes, [each.engine for each in right])

    return _png(draw, 1.1 + ROW_IN * max(len(right), 1))


def _line(axes: Axes, engine: str, x: Sequence[float], y: Sequence[float], marked: bool = False) -> None:
    look = style(engine)
    width = 2.4 if engine == BASE else None
    each = None if marked else max(len(x) // 6, 1)  # a curve of 120 points has a marker here and there
    axes.plot(x, y, look.dash, color=look.colour, marker=look.marker, markevery=each, linewidth=width, label=engine)


def _bar(axes: Axes, row: int, engine: str, value: float, write: Callable[[float], str]) -> None:
    axes.barh(row, value, height=0.6, color=style(engine).colour)
    axes.margins(x=0.14)  # for the numbers
    axes.annotate(write(value), (value, row), xytext=(5, 0), textcoords="offset points", va="center", fontsize=9)


def _dumbbell(axes: Axes, row: int, each: Summary) -> None:
    """Hollow: the groups that are not hot; filled: the hottest 1 %."""
    cold, hot = each.figure("cold_p99_us"), each.figure("hot_p99_us")
    look = style(each.engine)
    assert cold is not None
    axes.margins(x=0.18)  # for Jain's index at the right end
    if hot:
        axes.plot([cold / 1e3, hot / 1e3], [row, row], color=look.colour, linewidth=1.5)
        axes.plot([hot / 1e3], [row], look.marker, color=look.colour)
    axes.plot([cold / 1e3], [row], look.marker, color=look.colour, markerfacecolor="white", markeredgewidth=1.6)
    jain = each.figure("jain")
    if jain is not None:
        axes.text(1.0, row, f"{jain:.2f}", transform=axes.get_yaxis_transform(), ha="right", va="center", fontsize=9)


def _rows(own: dict[str, Summary], name: str) -> list[Summary]:
    """The engines that are right and have this figure above 0."""
    return [each for each in own.values() if each.status == RIGHT and (each.figure(name) or 0) > 0]


def _engines(cases: Sequence[Case], table: SummaryTable, name: str) -> list[str]:
    """Those that have this figure on any case, in the order of the tables."""
    found = dict.fromkeys(each.engine for case in cases for each in _rows(table[case], name))
    known = list(STYLES)
    return sorted(found, key=lambda engine: known.index(engine) if engine in known else len(known))


def _name_rows(axes: Axes, engines: Sequence[str]) -> None:
    axes.set_yticks(range(len(engines)), engines)
    axes.set_ylim(len(engines) - 0.4, -0.6)  # the first on top, as in the tables
    axes.grid(visible=False, axis="y")


def _legend(figure: Figure, panels: Sequence[Axes]) -> None:
    """One legend for all panels, beside them."""
    found = dict(pair[::-1] for panel in panels for pair in zip(*panel.get_legend_handles_labels(), strict=True))
    figure.legend(found.values(), found.keys(), loc="outside right upper", handlelength=3)


def _png(draw: Callable[[Figure], None], height_in: float) -> bytes:
    """What ``draw`` draws, as the bytes of a PNG. No display, no global state of pyplot."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(SETTINGS):
        figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        draw(figure)
        out = BytesIO()
        figure.savefig(out, format="png", dpi=DPI)
    return out.getvalue()
