"""Data folders of a Coordinator for tests of damage, and the outcome of a start on one."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from structlog.testing import capture_logs

from callboard import Coordinator, StartError
from callboard.actors.errors import CoordinatorError
from callboard.runtime.disk.disk import Disk
from callboard.runtime.engine.clock import wall_clock_ms
from callboard.runtime.log.compaction.swap import CompactionSettings, compact

GROUPS = [f"group-{number}" for number in range(12)]
SETTINGS: Mapping[str, Any] = {
    "offsets_topic_num_partitions": 2,
    "transaction_state_log_num_partitions": 1,
    "offsets_topic_segment_bytes": 2000,
    "log_cleaner_enable": False,
}
DEADLINE_S = 120.0
REFUSED = -1

Damage = Callable[[Path, random.Random], None]


class Start(NamedTuple):
    """The outcome of a start: the text of the refusal, or the served offsets and the reported damage."""

    refusal: str
    offsets: Mapping[str, int | None]
    named: tuple[str, ...]

    def fault(self, file: Path, acknowledged: Mapping[str, int], sent: Mapping[str, int]) -> str:
        """The error in the outcome after ``file``, a path in the folder, was damaged; empty if it is correct."""
        if self.refusal:
            is_named = file.name in self.refusal or str(file.parent) in self.refusal
            return "" if is_named else f"the refusal does not name it: {self.refusal}"
        lost = [group for group in GROUPS if not _is_between(acknowledged[group], self.offsets[group], sent[group])]
        folder = file.parts[0]
        if lost and not any(folder in text for text in self.named):
            return f"{len(lost)} commits lost and {folder} not named, only {self.named}"
        return ""


def _is_between(acknowledged: int, offset: int | None, sent: int) -> bool:
    return offset is not None and acknowledged <= offset <= sent


def delete(path: Path, _random: random.Random) -> None:
    """A folder is renamed first: a server that uses it may add a file while the others are removed."""
    if path.is_dir():
        shutil.rmtree(path.rename(path.with_name(f"{path.name}.deleted")))
    else:
        path.unlink()


def empty(path: Path, _random: random.Random) -> None:
    path.write_bytes(b"")


def halve(path: Path, _random: random.Random) -> None:
    """Truncate to half of the used bytes: a journal file ends in zeros."""
    used = len(path.read_bytes().rstrip(b"\0"))
    with path.open("r+b") as file:
        file.truncate(used // 2)


def flip_bit(path: Path, generator: random.Random) -> None:
    """Not at the end of a journal file: a damaged last frame looks like an incomplete one."""
    data = bytearray(path.read_bytes())
    used = len(data.rstrip(b"\0")) * (9 if path.suffix == ".journal" else 10) // 10
    if used:
        data[generator.randrange(used)] ^= 1 << generator.randrange(8)
    path.write_bytes(bytes(data))


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, DEADLINE_S))


def coordinator_in(path: Path, **more: Any) -> Coordinator:
    return Coordinator(path, **more, **SETTINGS)


async def commit_rounds(coordinator: Coordinator, rounds: Sequence[int]) -> dict[str, int]:
    """Commit each value for all groups; return the last acknowledged value by group."""
    acknowledged: dict[str, int] = {}
    for value in rounds:
        for group in GROUPS:
            try:
                await coordinator.reset(group, {("jobs", 0): value})
            except CoordinatorError:
                continue
            acknowledged[group] = value
    return acknowledged


async def make_compacted(path: Path) -> dict[str, int]:
    """A stopped folder: several segments, compacted ones, a topic, a changed setting. The last acknowledged offsets."""
    async with coordinator_in(path, topics={"jobs": 3}) as coordinator:
        acknowledged = await commit_rounds(coordinator, range(1, 10))
        await coordinator.set(group_max_size=1000)
    for folder in sorted(path.glob("__consumer_offsets-*")):
        compact(Disk(), folder, CompactionSettings(now_ms=wall_clock_ms(), owner="test", min_ratio=-1.0))
    return acknowledged


async def end(coordinator: Coordinator, how: str) -> None:
    if how == "stopped":
        await coordinator.stop()
    else:
        coordinator.node.halt()


def start(path: Path) -> Start:
    with capture_logs() as lines:
        result: Start = run(_serve(path))
    errors = tuple(str(line) for line in lines if line["log_level"] in ("error", "critical"))
    return result._replace(named=result.named + errors)


async def _serve(path: Path) -> Start:
    try:
        async with coordinator_in(path) as coordinator:
            await coordinator.loaded()
            log = coordinator.node.offsets_log
            assert log is not None
            offsets = {group: await _committed(coordinator, group) for group in GROUPS}
            return Start("", offsets, tuple(str(damage) for damage in log.damages()))
    except StartError as error:
        return Start(str(error), {}, ())


async def _committed(coordinator: Coordinator, group: str) -> int | None:
    """The served offset; None when there is none, REFUSED when the request fails."""
    try:
        offsets = await coordinator.offsets(group)
    except CoordinatorError:
        return REFUSED
    offset = offsets.get(("jobs", 0))
    return None if offset is None else offset.offset


def paths_in(root: Path) -> list[Path]:
    """All files and folders of a data folder, relative to it."""
    return sorted(path.relative_to(root) for path in root.rglob("*"))
