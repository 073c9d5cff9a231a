"""Files created in a data folder: their permissions under any umask; symbolic links are not followed."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
from log_helpers import LazyDisk

from callboard import Coordinator
from callboard.runtime.cli.log.repair import find_repairs, repair_file
from callboard.runtime.cli.log.scan import find_partitions
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk, NotAFile, folder_mode, open_new_file, replace_file
from callboard.runtime.disk.modes import copy_owner_and_mode, disk_like, file_mode_of
from callboard.runtime.engine.clock import wall_clock_ms
from callboard.runtime.log.compaction.history import HistoryMark, write_history_mark
from callboard.runtime.log.compaction.job import CompactionJob, run
from callboard.runtime.log.compaction.swap import CompactionSettings
from callboard.runtime.node.environment import CheckpointTriggers, Environment
from callboard.runtime.settings.file_mode import parse_file_mode
from callboard.runtime.settings.load import load

VICTIM = b"not ours"
LINK_FOUND = "found a symbolic link, expected a file; remove the link, then try again"
GARBAGE = b"\xff" * 70


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def coordinator(data: Path, disk: Disk) -> Coordinator:
    return Coordinator(
        data,
        topics={"jobs": 2},
        environment=Environment(disk=disk, checkpoints=CheckpointTriggers(1024)),
        offsets_topic_num_partitions=1,
        transaction_state_log_num_partitions=1,
        offsets_topic_segment_bytes=300,
        log_cleaner_enable=False,
    )


async def serve(data: Path, disk: Disk) -> None:
    """Run a server: commits, rolled segments, checkpoints, a new topic, a changed setting, a crash, a clean stop."""
    async with coordinator(data, disk) as server:
        for number in range(12):
            await server.reset("group", {("jobs", number % 2): number})
        await server.create_topic("more", 3)
        await server.set(group_max_size=9)
        await server.restart("killed")
        await server.reset("group", {("jobs", 0): 99})
        await server.delete_topic("more")


def compact(data: Path, disk: Disk) -> None:
    settings = CompactionSettings(wall_clock_ms(), "test", min_ratio=-1, delete_retention_ms=0, keys_bytes_max=1 << 20)
    for partition in find_partitions(data):
        run(CompactionJob(partition.folder, settings, 0), disk, lambda: wall_clock_ms() + 10_000)


def repair(data: Path, disk: Disk) -> None:
    for partition in find_partitions(data):
        for file_repair in find_repairs(partition, disk):
            repair_file(file_repair, disk)


def damage(data: Path) -> None:
    """Append a torn batch to the last segment, and write garbage into the middle of the one before it."""
    segments = sorted(path for path in data.glob("__consumer_offsets-*/*.log") if not path.is_symlink())
    segments[-1].write_bytes(segments[-1].read_bytes() + GARBAGE)
    content = segments[-2].read_bytes()
    segments[-2].write_bytes(content[:80] + GARBAGE[:4] + content[84:])


def use_folder(data: Path, disk: Disk) -> None:
    """Serve, damage, repair and compact a data folder, so that each kind of file is created in it."""
    asyncio.run(serve(data, disk))
    damage(data)
    repair(data, disk)
    compact(data, disk)
    write_history_mark(disk, data, HistoryMark("table", "id", {}))
    damage(data)
    asyncio.run(serve(data, disk))
    repair(data, disk)


Callers = tuple[tuple[str, int], ...]
"""The files and lines of a call and of those that led to it, the innermost first."""


def callers() -> Callers:
    frame: FrameType | None = sys._getframe(2)
    found = []
    while frame is not None:
        found.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)


class RecordingDisk(LazyDisk):
    """Records the created names, and where in the code each was created.

    ``at_creation`` is called before each creation with its number and path.
    """

    def __init__(self, at_creation: Callable[[int, Path], None] = lambda number, path: None) -> None:
        super().__init__()
        self.created: list[Path] = []
        self.callers: list[Callers] = []
        self._at_creation = at_creation

    def open(self, path: Path, flags: int) -> int:
        if flags & os.O_CREAT and not os.path.lexists(path):
            self.created.append(path)
            self.callers.append(callers())
            self._at_creation(len(self.created), path)
        return super().open(path, flags)


def kinds_of_names(paths: list[Path]) -> set[str]:
    """The names of the files without digits."""
    return {"".join(letter for letter in path.name if not letter.isdigit()) for path in paths}


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> RecordingDisk:
    """A disk on which ``use_folder`` has created its files."""
    disk = RecordingDisk()
    use_folder(tmp_path_factory.mktemp("folder") / "data", disk)
    return disk


def test_use_folder_creates_every_kind_of_file(used: RecordingDisk) -> None:
    """The tests below cover only the kinds of files that are created here."""
    created = used.created
    kinds = kinds_of_names(created)
    assert {".lock", "callboard.json.new", "topics.json.new", "settings.json.new", ".log", "lock"} <= kinds
    assert any("torn" in kind for kind in kinds) and any("repairing" in kind for kind in kinds)
    assert any(path.parent.name == "journal" for path in created)
    assert any(path.parent.name == "segments" or "segments" in str(path) for path in created)


@pytest.mark.parametrize(("victim_exists", "calls"), [(True, None), (False, 3)])
def test_symlink_at_each_created_name_leaves_its_target_alone(
    used: RecordingDisk, tmp_path: Path, victim_exists: bool, calls: int | None
) -> None:
    """A link is created just before each file, which also covers names that cannot be predicted.

    Of the files that are created by the same ``calls``, the innermost ones or all, it is the first one.
    """
    places = [place[:calls] for place in used.callers]
    for number in sorted(places.index(place) + 1 for place in set(places)):
        folder = tmp_path / str(number)
        victim = folder / "victim"
        folder.mkdir()
        if victim_exists:
            victim.write_bytes(VICTIM)
            victim.chmod(0o644)

        def create_link(creation: int, path: Path, number: int = number, victim: Path = victim) -> None:
            if creation == number:
                path.symlink_to(victim)

        disk, refusal = RecordingDisk(create_link), None
        try:
            use_folder(folder / "data", disk)
        except Exception as error:
            refusal = error
        assert victim.exists() == victim_exists, disk.created[number - 1]
        if victim_exists:
            assert (victim.read_bytes(), mode_of(victim)) == (VICTIM, 0o644), disk.created[number - 1]
        if isinstance(refusal, StartError):
            assert str(disk.created[number - 1].name) in str(refusal)


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_TRUNC])
def test_open_symlink_is_refused_with_its_name(tmp_path: Path, flags: int) -> None:
    victim, link = tmp_path / "victim", tmp_path / "link"
    victim.write_bytes(VICTIM)
    link.symlink_to(victim)
    with pytest.raises(OSError, match=rf"link: {LINK_FOUND}"):
        Disk().open(link, flags)
    assert victim.read_bytes() == VICTIM


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_CREAT])
@pytest.mark.parametrize("kind", ["a FIFO", "a socket"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, flags: int, kind: str) -> None:
    """To open a FIFO waits for somebody who opens its other end."""
    path = tmp_path / "x"
    if kind == "a FIFO":
        os.mkfifo(path)
    else:
        os.mknod(path, stat.S_IFSOCK | 0o600)  # to bind takes a path of at most 107 bytes
    with pytest.raises(NotAFile, match=rf"x: found {kind}, expected a file; remove it, then try again"):
        Disk().open(path, flags)


def test_folder_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    """To read it fails, with an error that does not name it."""
    with pytest.raises(NotAFile, match=r": found a folder, expected a file; remove it, then try again") as refused:
        Disk().open(tmp_path, os.O_RDONLY)
    assert isinstance(refused.value, IsADirectoryError)


def test_device_is_refused() -> None:
    """It has no end."""
    with pytest.raises(NotAFile, match=r"/dev/zero: found a device, expected a file"):
        Disk().open(Path("/dev/zero"), os.O_RDONLY)


def test_start_with_a_fifo_in_the_journal_names_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    asyncio.run(serve(data, LazyDisk()))
    os.mkfifo(data / "journal" / f"{9:020}.journal")
    with pytest.raises(StartError, match=r"^[^:]*\.journal: found a FIFO, expected a file; remove it, then try again$"):
        asyncio.run(serve(data, LazyDisk()))


def test_data_folder_may_be_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "real")
    use_folder(tmp_path / "data", LazyDisk())
    assert (tmp_path / "real" / "callboard.json").exists()


def test_start_with_symlinked_callboard_json_names_the_link(tmp_path: Path) -> None:
    data = tmp_path / "data"
    asyncio.run(serve(data, LazyDisk()))
    (data / "callboard.json").rename(tmp_path / "elsewhere.json")
    (data / "callboard.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(StartError, match=rf"^[^:]*callboard\.json: {LINK_FOUND}$"):
        asyncio.run(serve(data, LazyDisk()))


def test_start_with_symlinked_journal_file_names_the_link(tmp_path: Path) -> None:
    data = tmp_path / "data"
    asyncio.run(serve(data, LazyDisk()))
    (tmp_path / "elsewhere").write_bytes(VICTIM)
    (data / "journal" / f"{9:020}.journal").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StartError, match=rf"^[^:]*\.journal: {LINK_FOUND}$"):
        asyncio.run(serve(data, LazyDisk()))


@pytest.mark.parametrize("leftover", ["file", "link"])
def test_leftover_side_file_of_a_crash_is_replaced(tmp_path: Path, leftover: str) -> None:
    victim, new_file = tmp_path / "victim", tmp_path / "name.json.new"
    victim.write_bytes(VICTIM)
    if leftover == "link":
        new_file.symlink_to(victim)
    else:
        new_file.write_bytes(b"half of")
    replace_file(Disk(), tmp_path / "name.json", b"new")
    assert ((tmp_path / "name.json").read_bytes(), victim.read_bytes()) == (b"new", VICTIM)
    assert not os.path.lexists(new_file)


def test_open_new_file_breaks_a_hard_link(tmp_path: Path) -> None:
    victim, name = tmp_path / "victim", tmp_path / "name"
    victim.write_bytes(VICTIM)
    os.link(victim, name)
    os.close(open_new_file(Disk(), name))
    assert victim.read_bytes() == VICTIM


# Permissions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mask", "file_mode"), [*((mask, 0o640) for mask in (0o000, 0o022, 0o027, 0o077)), (0o000, 0o600), (0o077, 0o660)]
)
def test_modes_of_created_files_do_not_depend_on_the_umask(tmp_path: Path, mask: int, file_mode: int) -> None:
    data = tmp_path / "new" / "data"
    disk = LazyDisk(file_mode)
    with umask(mask):
        use_folder(data, disk)
    modes = {path: mode_of(path) for path in (data, *data.rglob("*"))}
    wrong = {
        path: oct(mode)
        for path, mode in modes.items()
        if mode != (folder_mode(file_mode) if path.is_dir() else file_mode)
    }
    assert wrong == {}


def test_folder_mode_adds_search_permission_to_each_read() -> None:
    assert [folder_mode(mode) for mode in (0o600, 0o640, 0o660, 0o644)] == [0o700, 0o750, 0o770, 0o755]


def test_coordinator_takes_file_mode(tmp_path: Path) -> None:
    async def start() -> None:
        async with Coordinator(tmp_path / "data", file_mode=0o640):
            pass

    asyncio.run(start())
    assert (mode_of(tmp_path / "data"), mode_of(tmp_path / "data" / "callboard.json")) == (0o750, 0o640)
    with pytest.raises(StartError, match="bad file mode '0755'"):
        Coordinator(tmp_path / "data", file_mode=0o755)


def test_existing_folder_and_files_keep_their_modes(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    asyncio.run(serve(data, LazyDisk(0o644)))
    before = {path: mode_of(path) for path in data.rglob("*.log")}
    asyncio.run(serve(data, LazyDisk()))
    assert mode_of(data) == 0o755
    assert {path: mode_of(path) for path in before if path.exists()} == {
        path: mode for path, mode in before.items() if path.exists()
    }


def test_tools_follow_the_mode_of_the_last_server(tmp_path: Path) -> None:
    """They do so too in a folder that an earlier server created with another mode."""
    data = tmp_path / "data"
    for mode in (0o600, 0o640):
        asyncio.run(serve(data, LazyDisk(mode)))
        assert file_mode_of(data) == mode
    compact(data, disk_like(data))
    new_files = [path for path in data.rglob("*") if "segments" in str(path.parent) and path.is_file()]
    assert new_files and {mode_of(path) for path in new_files} == {0o640}


def test_compaction_without_a_disk_follows_the_folder(tmp_path: Path) -> None:
    data = tmp_path / "data"
    asyncio.run(serve(data, LazyDisk(0o640)))
    settings = CompactionSettings(wall_clock_ms(), "test", min_ratio=-1, delete_retention_ms=0)
    with umask(0o077):
        for partition in find_partitions(data):
            run(CompactionJob(partition.folder, settings, 0))
    assert {mode_of(path) for path in data.rglob("*") if path.is_file()} == {0o640}
    assert {mode_of(path) for path in data.rglob("*") if path.is_dir()} == {0o750}


def test_new_folder_keeps_the_setgid_bit_of_the_folder_above(tmp_path: Path) -> None:
    """With setgid, everything in the folder belongs to the group of the folder, whichever user creates it."""
    tmp_path.chmod(0o2750)
    with umask(0o077):
        Disk(0o640).make_folder(tmp_path / "outer" / "inner")
    assert [mode_of(path) for path in (tmp_path / "outer", tmp_path / "outer" / "inner")] == [0o2750, 0o2750]


def test_copy_owner_and_mode(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.touch()
    target.touch()
    source.chmod(0o664)
    if os.geteuid() == 0:
        os.chown(source, 1234, 2345)
    copy_owner_and_mode(source, target)
    expected = source.stat()
    assert (mode_of(target), target.stat().st_uid, target.stat().st_gid) == (0o664, expected.st_uid, expected.st_gid)


@pytest.mark.parametrize(
    ("text", "mode"), [("0600", 0o600), ("640", 0o640), ("0o660", 0o660), ("0644", 0o644), (0o640, 0o640)]
)
def test_parse_file_mode(text: str | int, mode: int) -> None:
    assert parse_file_mode(text) == mode


@pytest.mark.parametrize(
    "text", ["", "rw-r-----", "0755", "0400", "0888", "0620", "06400", "-640", "0", "1e3", "9" * 50, 640, -1, True]
)
def test_bad_file_mode_is_refused(text: str | int) -> None:
    with pytest.raises(StartError, match=r"bad file mode '.*: expected octal permissions .* as in 0600, 0640 or 0660"):
        parse_file_mode(text)


def test_refused_number_as_file_mode_is_named_in_decimal_too(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"bad file mode '1200' \(decimal 640\): expected octal"):
        parse_file_mode(640)
    config = tmp_path / "callboard.toml"
    config.write_text("file_mode = 640\n")
    with pytest.raises(StartError, match=r'bad value 640 for .*: expected a text with octal permissions, as in "0640"'):
        load(config=config)


def test_file_mode_of_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    config = tmp_path / "callboard.toml"
    config.write_text('file_mode = "0640"\n')
    assert load(config=config)[1].file_mode == 0o640
    assert load(config=config, file_mode="0660")[1].file_mode == 0o660
    assert load()[1].file_mode == 0o600
