"""Samples of call stacks: their reading, shares of the time, and the flame graph as SVG. All pure.

A stack is a tuple of functions, the outermost first, as py-spy names them: ``name (path)``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import NamedTuple

Stack = tuple[str, ...]
Samples = Mapping[Stack, int]

OUTERMOST = ("Runner.run (asyncio/runners.py)", "Thread.run (threading.py)")
"""The frames up to these are the same in all stacks."""
ELSEWHERE = "libraries"
"""The package of a function that is not in one of Callboard's."""
OWN_FOLDERS = ("actors/", "runtime/")

WIDTH, ROW, MARGIN, TITLE_HEIGHT = 1200, 17, 10, 34
CHARACTER = 6.6  # the width of one, in pixels
LEAST_WIDTH = 6.0  # of a box, in pixels: narrow stacks are deep, since they are those of imports
TEXT_WIDTH = 25.0  # below that a box has no text
COLOURS = {"actors": "#7FA7F7", "runtime": "#F5B971", ELSEWHERE: "#C9C9C9"}


class Box(NamedTuple):
    """A function at one place in the graph. ``start`` and ``samples`` are its position and width."""

    function: str
    depth: int
    start: int
    samples: int


def parse_samples(text: str) -> dict[Stack, int]:
    """Parse lines ``outer;inner;innermost COUNT``, without the frames that all have. Raises ValueError.

    A module of an installed package has the same name as one of the source tree.
    """
    samples: Counter[Stack] = Counter()
    for line in text.replace("(callboard/", "(").splitlines():
        stack, _, count = line.rpartition(" ")
        samples[_without_outer_frames(tuple(stack.split(";")))] += int(count)
    return dict(samples)


def _without_outer_frames(stack: Stack) -> Stack:
    inner = max((index + 1 for index, function in enumerate(stack) if function in OUTERMOST), default=0)
    return stack[inner:] or stack[-1:]


def package(function: str) -> str:
    """``runtime/kafka/codec`` of a function in a module of that folder."""
    path = function.rpartition(" (")[2].rstrip(")")
    return path.rpartition("/")[0] if path.startswith(OWN_FOLDERS) else ELSEWHERE


def shares(samples: Samples, name: Callable[[str], str]) -> list[tuple[str, float]]:
    """The share of the samples whose innermost function has a name, the largest first."""
    counts: Counter[str] = Counter()
    for stack, count in samples.items():
        counts[name(stack[-1])] += count
    total = sum(counts.values())
    return [(each, count / total) for each, count in counts.most_common()]


def boxes(samples: Samples, depth: int = 0, start: int = 0) -> Iterator[Box]:
    """A box for each function and the functions that have called it, callers first, in the order of their names."""
    children: dict[str, dict[Stack, int]] = {}
    for (function, *inner), count in samples.items():
        children.setdefault(function, {})[tuple(inner)] = count
    for function in sorted(children):
        total = sum(children[function].values())
        yield Box(function, depth, start, total)
        yield from boxes({stack: count for stack, count in children[function].items() if stack}, depth + 1, start)
        start += total


def flame_graph(samples: Samples, title: str) -> str:
    """An SVG without scripts: the outermost functions at the top, a function's share of the samples as its width."""
    found, total = list(boxes(samples)), sum(samples.values())
    scale = (WIDTH - 2 * MARGIN) / total
    wide = [box for box in found if box.samples * scale >= LEAST_WIDTH]
    height = TITLE_HEIGHT + ROW * (1 + max((box.depth for box in wide), default=0)) + MARGIN
    drawn = [_draw(box, scale, total) for box in wide]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="monospace" '
            'font-size="11">',
            f'<rect width="{WIDTH}" height="{height}" fill="#FFFFFF"/>',
            f'<text x="{MARGIN}" y="20" font-size="13">{escape(title)}</text>',
            *drawn,
            "</svg>\n",
        ]
    )


def _draw(box: Box, scale: float, total: int) -> str:
    x, y, width = MARGIN + box.start * scale, TITLE_HEIGHT + ROW * box.depth, box.samples * scale
    name = box.function.partition(" (")[0]
    label = name if len(name) * CHARACTER < width else name[: int(width / CHARACTER) - 1] + "…"
    text = f'<text x="{x + 2:.1f}" y="{y + 12}">{escape(label)}</text>' if width > TEXT_WIDTH else ""
    return (
        f"<g><title>{escape(box.function)}: {box.samples / total:.1%}</title>"
        f'<rect x="{x:.1f}" y="{y}" width="{max(width - 0.5, 0.5):.1f}" height="{ROW - 1}" '
        f'fill="{COLOURS[package(box.function).partition("/")[0]]}"/>{text}</g>'
    )
