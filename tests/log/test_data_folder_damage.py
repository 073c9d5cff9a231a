"""Every file and folder of a data folder, damaged while no server runs and while one does.

After any damage, the next start does one of three things: it is refused, and the error names the file; it serves every
acknowledged commit; or it reports the loss as damage. It never serves an older commit without a report.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from damage_helpers import (
    GROUPS,
    Damage,
    commit_rounds,
    coordinator_in,
    delete,
    empty,
    end,
    flip_bit,
    halve,
    make_compacted,
    paths_in,
    run,
    start,
)

from callboard.runtime.log.recovery.clean_stop import NOTE_NAME

FLIP = "one bit flipped"
SECOND_PARTITION = "__consumer_offsets-1"
UNDETECTABLE = {("cut in half", ".journal")}
"""After a crash, a truncated journal file looks like one with an incomplete last frame, see docs/log.md."""

KINDS = (
    "callboard.json", "settings.json", "topics.json", "topics.ends", ".lock", ".compaction/manifest/0",
    ".compaction/segments/0", "__consumer_offsets-0/0",
)  # fmt: skip
DAMAGES: Mapping[str, Damage] = {"deleted": delete, "emptied": empty, "cut in half": halve, FLIP: flip_bit}


class Folder(NamedTuple):
    """A data folder of a stopped or killed server, and the last acknowledged offset of each group."""

    path: Path
    acknowledged: Mapping[str, int]


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    path = tmp_path_factory.mktemp("compacted") / "data"
    return Folder(path, run(make_compacted(path)))


@pytest.fixture(scope="module", params=["stopped", "killed"])
def original(request: pytest.FixtureRequest, compacted: Folder, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    path = tmp_path_factory.mktemp(request.param) / "data"
    shutil.copytree(compacted.path, path)

    async def fill() -> dict[str, int]:
        coordinator = coordinator_in(path)
        await coordinator.start()
        acknowledged = await commit_rounds(coordinator, range(10, 13))
        await end(coordinator, request.param)
        return acknowledged

    return Folder(path, run(fill()))


def test_folders_under_test_have_files_of_all_kinds(original: Folder) -> None:
    names = "\n".join(map(str, paths_in(original.path)))
    assert [kind for kind in KINDS if kind not in names] == []
    assert (".clean_shutdown" in names) != (".journal" in names)


@contextmanager
def damaged_copy(folder: Folder, file: Path, damage: str, seed: int, parent: Path) -> Iterator[Path]:
    data = parent / "data"
    shutil.copytree(folder.path, data)
    DAMAGES[damage](data / file, random.Random(f"{file.name[:20]} {seed}"))
    yield data
    shutil.rmtree(data)


@pytest.mark.parametrize(
    ("damage", "seed"),
    [*((damage, 0) for damage in DAMAGES), *(pytest.param(FLIP, seed, marks=pytest.mark.long) for seed in (1, 2))],
)
def test_start_with_damaged_file_reports_each_lost_commit(
    original: Folder, damage: str, seed: int, tmp_path: Path
) -> None:
    faults = []
    paths = [path for path in paths_in(original.path) if damage == "deleted" or (original.path / path).is_file()]
    for path in paths:
        with damaged_copy(original, path, damage, seed, tmp_path) as data:
            fault = start(data).fault(path, original.acknowledged, original.acknowledged)
        is_undetectable = (damage, path.suffix) in UNDETECTABLE
        faults += [f"{path} {damage} (seed {seed}): {fault}"] if fault and not is_undetectable else []
    assert faults == []
    assert len(paths) > 15


async def serve_and_damage(root: Path, pattern: str, damage: Damage, ending: str) -> tuple[Path, dict[str, int]]:
    """Serve, commit, damage a file or folder, commit, end. Returns its path, and the acknowledged offsets."""
    coordinator = coordinator_in(root)
    await coordinator.start()
    await coordinator.loaded()
    acknowledged = await commit_rounds(coordinator, [10, 11])
    assert set(acknowledged) == set(GROUPS)
    path = min(root.glob(pattern))
    damage(path, random.Random(0))
    acknowledged |= await commit_rounds(coordinator, [12, 13])
    await end(coordinator, ending)
    return path.relative_to(root), acknowledged


def patterns_while_running(stopped: Path, damage: Damage) -> list[str]:
    """One for each file and folder that exists while a server runs, whatever it has written by then.

    Of the two partitions, which have the same kinds of files, it is the first one.
    """
    paths = [path for path in paths_in(stopped) if damage is delete or (stopped / path).is_file()]
    paths = [path for path in paths if path.parts[0] != SECOND_PARTITION]
    return [*(str(path) for path in paths if path.name != NOTE_NAME), "journal/*.journal"]


@pytest.mark.parametrize("ending", ["stopped", "killed"])
@pytest.mark.parametrize("damage", ["deleted", "cut in half"])
def test_start_after_damage_while_running_reports_each_lost_commit(
    compacted: Folder, damage: str, ending: str, tmp_path: Path
) -> None:
    """There are commits before and after the damage. Those after it may be refused or acknowledged."""
    faults, kinds = [], set()
    for number, pattern in enumerate(patterns_while_running(compacted.path, DAMAGES[damage])):
        data = tmp_path / f"data-{number}"  # threads of a killed server may still write to the last one
        shutil.copytree(compacted.path, data)
        path, acknowledged = run(serve_and_damage(data, pattern, DAMAGES[damage], ending))
        kinds.add(path.suffix or path.name)
        fault = start(data).fault(path, acknowledged, dict.fromkeys(GROUPS, 13))
        faults += [f"{path} {damage} while running, then {ending}: {fault}"] if fault else []
    assert faults == []
    assert kinds >= {".log", ".json", ".ends", ".journal", ".lock"}
