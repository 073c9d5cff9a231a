"""The table of the bars: as ``python -m faults report`` prints it, and as a page of the documentation has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from .bars import BARS, MISSED, QUIET_LOAD_PER_PROCESSOR, Judgement, judge
from .measured import ROOT, Run

PAGE = ROOT / "docs" / "cluster-measured.md"
BEGIN, END = "<!-- bars -->\n", "<!-- end of bars -->\n"
HEAD = (
    "| bar | value | measured | verdict | runs | load average | measured by `make soak PROOFS=` | commit |",
    "|---|---|---|---|---|---|---|---|",
)


def judgements(
    runs: Sequence[Run], commits: Sequence[str] = (), quiet: float = QUIET_LOAD_PER_PROCESSOR
) -> list[Judgement]:
    """See ``judge``."""
    return [judge(bar, runs, commits, quiet) for bar in BARS]


def table(judged: Sequence[Judgement]) -> str:
    return "\n".join([*HEAD, *map(_row, judged)]) + "\n"


def missed(judged: Sequence[Judgement]) -> list[str]:
    lines = [each for each in judged if each.verdict == MISSED]
    return [f"{each.bar.what}: {_measured(each)}, expected {each.bar.goal}" for each in lines]


def write(text: str, page: Path = PAGE) -> None:
    """Put the table in its place in the page."""
    before, _, rest = page.read_text().partition(BEGIN)
    page.write_text(f"{before}{BEGIN}{text}{END}{rest.partition(END)[2]}")


def written(page: Path = PAGE) -> str:
    """The table that the page has."""
    return page.read_text().partition(BEGIN)[2].partition(END)[0]


def _row(each: Judgement) -> str:
    what = f"{each.bar.what} ({each.store})" if each.store else each.bar.what
    cells = (what, each.bar.goal, _measured(each), each.verdict, ", ".join(_counts(each)) or "none")
    loads = "" if each.loads is None else f"{each.loads[0]:g} to {each.loads[1]:g}"
    return f"| {' | '.join(cells)} | {loads} | `{each.bar.proof}` | {each.commit} |"


def _measured(each: Judgement) -> str:
    """Values that were measured under load stand in brackets."""
    quiet = [] if each.value is None else [_number(each.value, each.bar.unit)]
    loaded = [] if each.other_value is None else [f"({_number(each.other_value, each.bar.unit)})"]
    return " ".join([*quiet, *loaded])


def _number(value: float, unit: str) -> str:
    return f"{value:g}{unit}" if value == int(value) else f"{value:.2f}{unit}"


def _counts(each: Judgement) -> Iterator[str]:
    if each.counted or each.others:
        yield f"{each.counted} of {each.bar.values}"
    if each.others:
        yield f"({each.others} under load)"
