"""The plots of the report. matplotlib is imported when one is drawn.

Each function gets a question's rows and returns a drawing function and its height, or None if there is nothing to draw.
No plot distinguishes data by colour alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from io import BytesIO
from typing import TYPE_CHECKING, Any

from ...actors.text import printable
from ...runtime.common.errors import StartError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = Mapping[str, Any]
Rows = Sequence[Row]
Draw = Callable[["Figure"], None]

WIDTH_IN, ROW_IN = 10.0, 0.3
MARGIN_IN = 1.0  # above and below the rows of a plot
MAX_ROWS = 15  # more rows are not readable
LABEL_CHARS = 38
LEGEND_FACTOR = 1.2  # of the highest bar, to leave room for a legend above it
DPI = 110
BLUE, ORANGE, GREY, TEXT = "#1450F5", "#D9480F", "#8A8F98", "#222222"

_METADATA = re.compile(r"<metadata>.*?</metadata>\s*", re.DOTALL)

SETTINGS: Any = {  # matplotlib's type for it differs between versions
    "font.size": 10,
    "axes.edgecolor": "#777777",
    "axes.labelcolor": TEXT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#E4E4E4",
    "text.color": TEXT,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
    "legend.frameon": False,
}


def require() -> None:
    """Raise StartError if matplotlib is missing. Called before Spark starts, which may work for minutes."""
    if find_spec("matplotlib") is None:
        raise StartError("the report's plots need matplotlib; install it with: pip install 'callboard[spark]'")


def svg(name: str, draw: Draw, height_in: float) -> str:
    """A plot as SVG to embed in a page. ``name`` makes its element ids unique in the page."""
    text = _render(draw, height_in, "svg", {"svg.hashsalt": name}, {"Date": None}).decode()
    return _METADATA.sub("", text[text.index("<svg") :])  # the metadata contains URLs


def png(draw: Draw, height_in: float) -> bytes:
    return _render(draw, height_in, "png", {}, {})


def growth(rows: Rows) -> tuple[Draw, float] | None:
    """Records by day, with the forecast."""
    if len(rows) < 2:
        return None
    measured = [row for row in rows if not row["is_forecast"]]
    future = [row for row in rows if row["is_forecast"]]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.bar([row["day"] for row in measured], [row["records"] for row in measured], color=BLUE, label="written")
        if future:
            days = [row["day"] for row in future]
            low, high = ([row[name] for row in future] for name in ("low", "high"))
            axes.fill_between(days, low, high, color=ORANGE, alpha=0.18, linewidth=0, label="95 % interval")
            axes.plot(days, [row["records"] for row in future], "--", color=ORANGE, label="forecast")
        axes.set_ylabel("records per day")
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.legend()
        _dates(axes)

    return draw, 3.6


def commits(rows: Rows) -> tuple[Draw, float] | None:
    """The number of commits of the busiest groups, and of those without progress."""
    shown_rows = list(reversed(rows[:MAX_ROWS]))
    if not shown_rows:
        return None

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        counts = [row["commits"] for row in shown_rows]
        idle = [row["commits"] * (row["idle_share"] or 0) for row in shown_rows]
        axes.barh(range(len(shown_rows)), counts, color=BLUE, label="commits")
        axes.barh(range(len(shown_rows)), idle, color=ORANGE, height=0.4, label="without progress")
        _label_rows(axes, [_short(row["group"], LABEL_CHARS) for row in shown_rows])
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_xlabel("commits of single partitions")
        axes.legend(loc="lower right")

    return draw, MARGIN_IN + ROW_IN * len(shown_rows)


def rebalances(rows: Rows) -> tuple[Draw, float] | None:
    """The times of the generations of the groups that have the most."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["group"]] = counts.get(row["group"], 0) + 1
    groups = sorted(counts, key=lambda group: (-counts[group], group))[:MAX_ROWS][::-1]
    if not any(counts[group] > 1 for group in groups):
        return None

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for line, group in enumerate(groups):
            times = [row["timestamp"] for row in rows if row["group"] == group]
            axes.plot(times, [line] * len(times), "|", color=BLUE, markersize=11, markeredgewidth=1.2)
        _label_rows(axes, [f"{_short(group)} ({counts[group]})" for group in groups])
        axes.set_xlabel("each line is a generation; number of generations in brackets", loc="left")
        _dates(axes)

    return draw, MARGIN_IN + ROW_IN * len(groups)


def gaps(rows: Rows) -> tuple[Draw, float] | None:
    """The longest times without a commit."""
    by_time: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        by_time.setdefault((row["group"], row["topic"], row["since"], row["until"]), []).append(row)
    gap_groups = list(by_time.values())[:MAX_ROWS][::-1]
    shown_gaps = [max(gap_group, key=lambda row: row["moved"]) for gap_group in gap_groups]
    if not shown_gaps:
        return None

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for line, row in enumerate(shown_gaps):
            style: Any = {"color": ORANGE if row["moved"] else GREY, "linestyle": "-" if row["moved"] else ":"}
            axes.plot([row["since"], row["until"]], [line, line], linewidth=5, solid_capstyle="butt", **style)
        counts = [f" ({len(same)})" if len(same) > 1 else f"-{same[0]['partition']}" for same in gap_groups]
        names = [f"{_short(row['group'], 24)} {_short(row['topic'], 18)}" for row in shown_gaps]
        _label_rows(axes, [name + count for name, count in zip(names, counts, strict=True)])
        axes.set_xlabel("between two commits; in brackets: number of partitions; dotted: no progress", loc="left")
        _dates(axes)

    return draw, MARGIN_IN + ROW_IN * len(shown_gaps)


def skew(rows: Rows) -> tuple[Draw, float] | None:
    """The slowest, the median and the fastest partition of each group and topic."""
    shown_rows = [row for row in rows if row["fastest_moved"] > 0][:MAX_ROWS][::-1]
    if not shown_rows:
        return None

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        lines = range(len(shown_rows))
        low, median, high = ([row[f"{name}_moved"] for row in shown_rows] for name in ("slowest", "median", "fastest"))
        axes.hlines(lines, low, high, color=GREY, linewidth=1.5)
        axes.plot(low, lines, "<", color=ORANGE, label="slowest")
        axes.plot(median, lines, "|", color=TEXT, markersize=11, label="median")
        axes.plot(high, lines, ">", color=BLUE, label="fastest")
        _label_rows(axes, [f"{_short(row['group'], 24)} {_short(row['topic'], 18)}" for row in shown_rows])
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_xlabel("offsets that a partition progressed")
        axes.legend(loc="lower right")

    return draw, MARGIN_IN + ROW_IN * len(shown_rows)


def expiring(rows: Rows) -> tuple[Draw, float] | None:
    """The number of offsets that expire on each of the next days."""
    if not rows:
        return None
    from matplotlib.ticker import MaxNLocator

    kinds = sorted({row["why"] for row in rows})
    days = [max(int(row["days_left"] // 1), -1) for row in rows]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        ticks, bottom = range(min(days), max(days) + 1), [0] * (max(days) - min(days) + 1)
        for kind, colour, hatch in zip(kinds, (BLUE, ORANGE, GREY, TEXT), ("", "//", "..", "xx"), strict=False):
            counts = [
                sum(row["why"] == kind and day == tick for row, day in zip(rows, days, strict=True)) for tick in ticks
            ]
            axes.bar(ticks, counts, bottom=bottom, color=colour, hatch=hatch, edgecolor="white", label=kind)
            bottom = [height + count for height, count in zip(bottom, counts, strict=True)]
        axes.set_xticks(ticks, ["overdue" if tick < 0 else "today" if not tick else f"{tick} d" for tick in ticks])
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylim(top=max(bottom) * LEGEND_FACTOR)
        axes.set_ylabel("offsets")
        axes.legend(ncols=len(kinds))

    return draw, 3.2


def _render(draw: Draw, height_in: float, kind: str, settings: Any, metadata: Any) -> bytes:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({**SETTINGS, **settings}):
        figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        draw(figure)
        file = BytesIO()
        figure.savefig(file, format=kind, dpi=DPI, metadata=metadata)
    return file.getvalue()


def _label_rows(axes: Axes, names: Sequence[str]) -> None:
    """Label the rows of a plot."""
    axes.set_yticks(range(len(names)), list(names))
    axes.set_ylim(-0.7, len(names) - 0.3)
    axes.grid(visible=False, axis="y")


def _short(name: str, chars: int = 30) -> str:
    """A shortened name. ``$`` is escaped, since matplotlib would typeset it as mathematics."""
    printable_name = printable(name)  # control characters are not allowed in XML
    return (printable_name if len(printable_name) <= chars else printable_name[: chars - 3] + "...").replace("$", r"\$")


def _dates(axes: Axes) -> None:
    import matplotlib.dates

    dates: Any = matplotlib.dates  # its type annotations differ between versions
    locator = dates.AutoDateLocator(minticks=3, maxticks=9)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
