"""The picture of a rebalance in README.md: who owns which shard while workers start, stop and die.

    python examples/rebalance_picture.py docs/rebalance.svg

Three workers start one after another and share six shards of a coordinator in this process. Then one of them stops.
The times are measured.
"""

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import callboard

SHARDS = 6
SESSION_MS = 1_000
COLOURS = {
    "worker 1": "#4477aa",
    "worker 2": "#ee6677",
    "worker 3": "#228833",
}  # also distinct for colour-blind readers
LEFT, TOP, ROW, BAR, SCALE = 70, 46, 26, 18, 150  # pixels; SCALE: pixels per second


class Period(NamedTuple):
    """One worker owns one shard from ``begin_s`` to ``end_s``, seconds since the start."""

    worker: str
    shard: int
    begin_s: float
    end_s: float


class Recorder:
    """Notes when workers get and lose shards, and what happens to the workers."""

    def __init__(self) -> None:
        self.periods: list[Period] = []
        self.events: list[tuple[float, str]] = []
        self._started_s = time.monotonic()

    @property
    def now_s(self) -> float:
        return time.monotonic() - self._started_s

    def note(self, text: str) -> None:
        self.events.append((self.now_s, text))

    async def own(self, worker: str, shard: callboard.Shard) -> None:
        """The handler of a worker: own the shard until it is revoked or lost."""
        begin_s = self.now_s
        try:
            await asyncio.sleep(3600)
        finally:
            self.periods.append(Period(worker, int(shard.name), begin_s, self.now_s))


async def work(coordinator: callboard.Coordinator, recorder: Recorder, worker: str) -> None:
    async def handler(shard: callboard.Shard) -> None:
        await recorder.own(worker, shard)

    recorder.note(f"{worker} starts")
    async with coordinator.member("pictures", resources={"shards": SHARDS}, session_timeout_ms=SESSION_MS) as member:
        await member.run(handler)


async def record() -> Recorder:
    async with callboard.Coordinator(group_min_session_timeout_ms=SESSION_MS) as coordinator:
        recorder, workers = Recorder(), {}
        for worker in COLOURS:
            workers[worker] = asyncio.create_task(work(coordinator, recorder, worker))
            await asyncio.sleep(1)
        recorder.note("worker 2 stops")
        workers["worker 2"].cancel()
        await asyncio.sleep(1)
        for task in workers.values():
            task.cancel()
        await asyncio.gather(*workers.values(), return_exceptions=True)
    return recorder


def svg(recorder: Recorder) -> str:
    """The picture: a row for each shard, a bar for each period."""
    end_s = max(period.end_s for period in recorder.periods)
    width, height = LEFT + end_s * SCALE + 20, TOP + SHARDS * ROW + 40
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" font-family="sans-serif"'
            ' font-size="12">',
            f'<rect width="{width:.0f}" height="{height}" fill="white"/>',
            *_rows(),
            *(_bar(period) for period in sorted(recorder.periods)),
            *_events(recorder.events),
            *_legend(height),
            "</svg>\n",
        ]
    )


def _rows() -> Iterator[str]:
    for shard in range(SHARDS):
        yield f'<text x="{LEFT - 8}" y="{TOP + shard * ROW + 14}" text-anchor="end">shard {shard}</text>'


def _bar(period: Period) -> str:
    x, width = LEFT + period.begin_s * SCALE, max(1.0, (period.end_s - period.begin_s) * SCALE - 1)
    return (
        f'<rect x="{x:.1f}" y="{TOP + period.shard * ROW}" width="{width:.1f}" height="{BAR}" rx="3"'
        f' fill="{COLOURS[period.worker]}"><title>{period.worker}, {period.begin_s:.2f} s to {period.end_s:.2f} s'
        "</title></rect>"
    )


def _events(events: list[tuple[float, str]]) -> Iterator[str]:
    for at_s, text in events:
        x, bottom = LEFT + at_s * SCALE, TOP + SHARDS * ROW
        yield f'<path d="M {x:.1f} 30 V {bottom}" stroke="#999" stroke-dasharray="3 3"/>'
        yield f'<text x="{x + 3:.1f}" y="26" fill="#333">{text}, {at_s:.1f} s</text>'


def _legend(height: int) -> Iterator[str]:
    for number, (worker, colour) in enumerate(COLOURS.items()):
        x, y = LEFT + number * 100, height - 18
        yield f'<rect x="{x}" y="{y - 11}" width="14" height="14" rx="3" fill="{colour}"/>'
        yield f'<text x="{x + 20}" y="{y}">{worker}</text>'


def main() -> None:
    Path(sys.argv[1]).write_text(svg(asyncio.run(record())), encoding="utf-8")


if __name__ == "__main__":
    main()
