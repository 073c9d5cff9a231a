"""Every file of a data folder, deleted, emptied, cut in half, or with one bit flipped, while the server is stopped.

Whatever the damage, a start does one of three things: it is refused, and the error names the file; it serves every
acknowledged commit; or it names what is missing as damage. It never serves an older commit in silence.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from structlog.testing import capture_logs

from callboard import Coordinator, StartError
from callboard.actors.errors import CoordinatorError
from callboard.runtime.log.compaction.swap import Settings, compact, wall_clock_ms
from callboard.runtime.log.disk import Disk

GROUPS = [f"group-{number}" for number in range(40)]
SETTINGS: dict[str, Any] = {
    "offsets_topic_num_partitions": 4,
    "transaction_state_log_num_partitions": 2,
    "offsets_topic_segment_bytes": 1000,
    "log_cleaner_enable": False,
}
DEADLINE_S = 120.0
REFUSED = -1

Damage = Callable[[Path, random.Random], None]


class Folder(NamedTuple):
    """A data folder and the last acknowledged offset of each group, and how its server ended."""

    path: Path
    acknowledged: Mapping[str, int]
    ended: str


class Start(NamedTuple):
    """What a start on a folder did: the text of the refusal, or the offsets served and the damage that was named."""

    refusal: str
    offsets: Mapping[str, int | None]
    named: tuple[str, ...]


def delete(path: Path, _random: random.Random) -> None:
    path.unlink()


def empty(path: Path, _random: random.Random) -> None:
    path.write_bytes(b"")


def halve(path: Path, _random: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def flip_bit(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    used = len(data.rstrip(b"\0"))
    if used:
        data[chance.randrange(used)] ^= 1 << chance.randrange(8)
    path.write_bytes(bytes(data))


DAMAGES: Mapping[str, Damage] = {"deleted": delete, "emptied": empty, "cut in half": halve, "one bit flipped": flip_bit}


async def commit_rounds(coordinator: Coordinator, rounds: range) -> dict[str, int]:
    for value in rounds:
        for group in GROUPS:
            await coordinator.reset(group, {("jobs", 0): value})
    return dict.fromkeys(GROUPS, rounds[-1])


def compact_all(path: Path) -> None:
    for folder in sorted(path.glob("__consumer_offsets-*")):
        compact(Disk(), folder, Settings(now_ms=wall_clock_ms(), owner="test", min_ratio=-1.0))


async def fill(path: Path, ended: str) -> dict[str, int]:
    """Several segments, some of them compacted, a topic, a changed setting; commits after the last compaction."""
    async with Coordinator(path, topics={"jobs": 3}, **SETTINGS) as coordinator:
        await commit_rounds(coordinator, range(1, 6))
        await coordinator.set(group_max_size=1000)
    compact_all(path)
    coordinator = Coordinator(path, **SETTINGS)
    await coordinator.start()
    acknowledged = await commit_rounds(coordinator, range(6, 9))
    if ended == "stopped":
        await coordinator.stop()
    else:
        coordinator.node.halt()
    return acknowledged


@pytest.fixture(scope="module", params=["stopped", "killed"])
def original(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    path = tmp_path_factory.mktemp(request.param) / "data"
    return Folder(path, asyncio.run(asyncio.wait_for(fill(path, request.param), DEADLINE_S)), request.param)


async def _serve(path: Path) -> Start:
    try:
        async with Coordinator(path, **SETTINGS) as coordinator:
            await coordinator.loaded()
            log = coordinator.node.offsets_log
            assert log is not None
            offsets = {group: await committed(coordinator, group) for group in GROUPS}
            return Start("", offsets, tuple(str(damage) for damage in log.quarantined()))
    except StartError as error:
        return Start(str(error), {}, ())


async def committed(coordinator: Coordinator, group: str) -> int | None:
    """The offset that is served; None when there is none, REFUSED when the group answers with an error."""
    try:
        offsets = await coordinator.offsets(group)
    except CoordinatorError:
        return REFUSED
    offset = offsets.get(("jobs", 0))
    return None if offset is None else offset.offset


def start(path: Path) -> Start:
    with capture_logs() as lines:
        result = asyncio.run(asyncio.wait_for(_serve(path), DEADLINE_S))
    errors = tuple(str(line) for line in lines if line["log_level"] in ("error", "critical"))
    return result._replace(named=result.named + errors)


def copies(folder: Folder, file: Path, damage: str, where: Path, count: int) -> Iterator[Path]:
    """Copies of the folder in which that file is damaged, each in another way where chance has a part in it."""
    for number in range(count if damage == "one bit flipped" else 1):
        copy = where / f"{number}-{damage.replace(' ', '-')}"
        shutil.copytree(folder.path, copy)
        DAMAGES[damage](copy / file, random.Random(f"{file} {number}"))
        yield copy


def files_of(folder: Folder) -> list[Path]:
    return sorted(path.relative_to(folder.path) for path in folder.path.rglob("*") if path.is_file())


@pytest.mark.parametrize("damage", DAMAGES)
def test_start_on_a_damaged_file_loses_no_acknowledged_commit_in_silence(
    original: Folder, damage: str, tmp_path: Path
) -> None:
    wrong: list[str] = []
    for number, file in enumerate(files_of(original)):
        for copy in copies(original, file, damage, tmp_path / str(number), 6):
            found = start(copy)
            stale = {group for group, offset in found.offsets.items() if offset != original.acknowledged[group]}
            if found.refusal and file.name not in found.refusal and str(file.parent) not in found.refusal:
                wrong.append(f"{file} {damage}: the refusal does not name it: {found.refusal}")
            elif stale and not found.named:
                wrong.append(f"{file} {damage}: {len(stale)} commits lost without a word")
            shutil.rmtree(copy)
    assert wrong == []


def test_files_of_the_original_folder_are_all_kinds(original: Folder) -> None:
    names = {str(file) for file in files_of(original)}
    parts = {"callboard.json", "topics.json", "topics.ends", "settings.json", "journal/", ".compaction/manifest/"}
    parts |= {".compaction/segments/", "__consumer_offsets-0/0"}
    parts |= {".clean_shutdown"} if original.ended == "stopped" else set()
    assert {part for part in parts if not any(part in name for name in names)} == (
        {"journal/"} if original.ended == "stopped" else set()
    )
