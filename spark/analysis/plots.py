"""The plots of the report. matplotlib is loaded when one is drawn.

Each takes a question's rows and returns a way to draw them, or None when there is nothing to see. No plot leans on
colour alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from io import BytesIO
from typing import TYPE_CHECKING, Any

from ...runtime.common.errors import StartError
from ...runtime.common.printing import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = Mapping[str, Any]
Rows = Sequence[Row]
Draw = Callable[["Figure"], None]

WIDTH_IN, LINE_IN = 10.0, 0.3
MARGIN_IN = 1.0  # above and below what a plot of lines shows
SHOWN = 15  # of groups; more nobody can read
LABEL_CHARS = 38
LEGEND_ROOM = 1.2  # of a bar's height, for a legend above it
DPI = 110
BLUE, ORANGE, GREY, TEXT = "#1450F5", "#D9480F", "#8A8F98", "#222222"

_METADATA = re.compile(r"<metadata>.*?</metadata>\s*", re.DOTALL)

SETTINGS: Any = {  # matplotlib's own type of it changes from version to version
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
    """StartError when matplotlib is missing: better before Spark starts than after minutes of its work."""
    if find_spec("matplotlib") is None:
        raise StartError("the report's plots need matplotlib; install it with: pip install 'callboard[spark]'")


def svg(name: str, draw: Draw, height_in: float) -> str:
    """A plot as SVG that can stand in a page. ``name`` keeps the ids in it apart from those of others."""
    text = _saved(draw, height_in, "svg", {"svg.hashsalt": name}, {"Date": None}).decode()
    return _METADATA.sub("", text[text.index("<svg") :])  # which names vocabularies by their addresses


def png(draw: Draw, height_in: float) -> bytes:
    return _saved(draw, height_in, "png", {}, {})


def growth(rows: Rows) -> tuple[Draw, float] | None:
    """Records a day, as they were and as they are to be expected."""
    if len(rows) < 2:
        return None
    known = [row for row in rows if not row["is_forecast"]]
    expected = [row for row in rows if row["is_forecast"]]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.bar([row["day"] for row in known], [row["records"] for row in known], color=BLUE, label="written")
        if expected:
            days = [row["day"] for row in expected]
            low, high = ([row[name] for row in expected] for name in ("low", "high"))
            axes.fill_between(days, low, high, color=ORANGE, alpha=0.18, linewidth=0, label="in 95 % of cases")
            axes.plot(days, [row["records"] for row in expected], "--", color=ORANGE, label="if it goes on so")
        axes.set_ylabel("records a day")
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.legend()
        _dates(axes)

    return draw, 3.6


def commits(rows: Rows) -> tuple[Draw, float] | None:
    """How many commits the busiest groups made, and how many of those changed nothing."""
    shown = list(reversed(rows[:SHOWN]))
    if not shown:
        return None

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        counts = [row["commits"] for row in shown]
        idle = [row["commits"] * (row["idle_share"] or 0) for row in shown]
        axes.barh(range(len(shown)), counts, color=BLUE, label="commits")
        axes.barh(range(len(shown)), idle, color=ORANGE, height=0.4, label="of which changed nothing")
        _lines(axes, [_short(row["group"], LABEL_CHARS) for row in shown])
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_xlabel("commits of single partitions")
        axes.legend(loc="lower right")

    return draw, MARGIN_IN + LINE_IN * len(shown)


def rebalances(rows: Rows) -> tuple[Draw, float] | None:
    """When the groups with the most generations had them."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["group"]] = counts.get(row["group"], 0) + 1
    groups = sorted(counts, key=lambda group: (-counts[group], group))[:SHOWN][::-1]
    if not any(counts[group] > 1 for group in groups):
        return None

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for line, group in enumerate(groups):
            times = [row["timestamp"] for row in rows if row["group"] == group]
            axes.plot(times, [line] * len(times), "|", color=BLUE, markersize=11, markeredgewidth=1.2)
        _lines(axes, [f"{_short(group)} ({counts[group]})" for group in groups])
        axes.set_xlabel("a line is a generation; in brackets how many there were", loc="left")
        _dates(axes)

    return draw, MARGIN_IN + LINE_IN * len(groups)


def gaps(rows: Rows) -> tuple[Draw, float] | None:
    """The longest times without a commit."""
    alike: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        alike.setdefault((row["group"], row["topic"], row["since"], row["until"]), []).append(row)
    stretches = list(alike.values())[:SHOWN][::-1]
    shown = [max(stretch, key=lambda row: row["moved"]) for stretch in stretches]
    if not shown:
        return None

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for line, row in enumerate(shown):
            style: Any = {"color": ORANGE if row["moved"] else GREY, "linestyle": "-" if row["moved"] else ":"}
            axes.plot([row["since"], row["until"]], [line, line], linewidth=5, solid_capstyle="butt", **style)
        counts = [f" ({len(stretch)})" if len(stretch) > 1 else f"-{stretch[0]['partition']}" for stretch in stretches]
        names = [f"{_short(row['group'], 24)} {_short(row['topic'], 18)}" for row in shown]
        _lines(axes, [name + count for name, count in zip(names, counts, strict=True)])
        axes.set_xlabel("from one commit to the next; in brackets: partitions alike; dotted: nothing moved", loc="left")
        _dates(axes)

    return draw, MARGIN_IN + LINE_IN * len(shown)


def skew(rows: Rows) -> tuple[Draw, float] | None:
    """The slowest, the middle and the fastest partition of each group and topic."""
    shown = [row for row in rows if row["fastest_moved"] > 0][:SHOWN][::-1]
    if not shown:
        return None

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        lines = range(len(shown))
        low, middle, high = ([row[f"{name}_moved"] for row in shown] for name in ("slowest", "median", "fastest"))
        axes.hlines(lines, low, high, color=GREY, linewidth=1.5)
        axes.plot(low, lines, "<", color=ORANGE, label="slowest")
        axes.plot(middle, lines, "|", color=TEXT, markersize=11, label="median")
        axes.plot(high, lines, ">", color=BLUE, label="fastest")
        _lines(axes, [f"{_short(row['group'], 24)} {_short(row['topic'], 18)}" for row in shown])
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_xlabel("offsets that a partition went forward")
        axes.legend(loc="lower right")

    return draw, MARGIN_IN + LINE_IN * len(shown)


def expiring(rows: Rows) -> tuple[Draw, float] | None:
    """How many offsets expire on which of the next days."""
    if not rows:
        return None
    from matplotlib.ticker import MaxNLocator

    kinds = sorted({row["why"] for row in rows})
    days = [max(int(row["days_left"] // 1), -1) for row in rows]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        places, bottom = range(min(days), max(days) + 1), [0] * (max(days) - min(days) + 1)
        for kind, colour, hatch in zip(kinds, (BLUE, ORANGE, GREY, TEXT), ("", "//", "..", "xx"), strict=False):
            counts = [
                sum(row["why"] == kind and day == place for row, day in zip(rows, days, strict=True))
                for place in places
            ]
            axes.bar(places, counts, bottom=bottom, color=colour, hatch=hatch, edgecolor="white", label=kind)
            bottom = [one + other for one, other in zip(bottom, counts, strict=True)]
        axes.set_xticks(
            places, ["overdue" if place < 0 else "today" if not place else f"{place} d" for place in places]
        )
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylim(top=max(bottom) * LEGEND_ROOM)
        axes.set_ylabel("offsets")
        axes.legend(ncols=len(kinds))

    return draw, 3.2


def _saved(draw: Draw, height_in: float, kind: str, settings: Any, metadata: Any) -> bytes:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({**SETTINGS, **settings}):
        figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        draw(figure)
        file = BytesIO()
        figure.savefig(file, format=kind, dpi=DPI, metadata=metadata)
    return file.getvalue()


def _lines(axes: Axes, names: Sequence[str]) -> None:
    """A name at each line of a plot."""
    axes.set_yticks(range(len(names)), list(names))
    axes.set_ylim(-0.7, len(names) - 0.3)
    axes.grid(visible=False, axis="y")


def _short(name: str, chars: int = 30) -> str:
    """A name that fits; what matplotlib would take for mathematics is plain text."""
    shown = printable(name)  # an SVG with control characters is no XML
    return (shown if len(shown) <= chars else shown[: chars - 3] + "...").replace("$", r"\$")


def _dates(axes: Axes) -> None:
    import matplotlib.dates

    dates: Any = matplotlib.dates  # its types come and go with the version
    locator = dates.AutoDateLocator(minticks=3, maxticks=9)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
