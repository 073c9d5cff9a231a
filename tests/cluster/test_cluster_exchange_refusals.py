"""What ``callboard cluster import`` and ``export`` refuse, and what they leave behind then."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from callboard.runtime.cluster.engines import open_store
from callboard.runtime.cluster.imports import first_epoch_after, first_version
from callboard.runtime.cluster.keys import REGISTER
from callboard.runtime.cluster.register_log import RegisterLog, newest_register
from callboard.runtime.cluster.session_environment import SessionEnvironment
from callboard.runtime.cluster.session_producer_ids import IDS_PER_SESSION, SessionProducerIds
from callboard.runtime.cluster.store import Store
from callboard.runtime.cluster.topic_leadership import OFFSETS_PER_EPOCH
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.folder import DataFolder, lock_folder
from callboard.runtime.log.format.batch import encode_batch, frame_record
from callboard.runtime.log.partition_counts import PartitionCounts
from callboard.runtime.log.recovery.clean_stop import EMPTY_NOTE, write_note

from .command_helpers import Run, runner
from .node_thread import node_thread

COUNTS = PartitionCounts(4, 2)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], store: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("CALLBOARD_CLUSTER", store)
    return runner(capsys)


@pytest.fixture
def store(tmp_path: Path) -> str:
    (tmp_path / "shared").mkdir()
    return (tmp_path / "shared").as_uri()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder after a clean stop, with one batch that no reader interprets."""
    root = tmp_path / "data"
    DataFolder(root, *COUNTS).close()
    partition = root / "__consumer_offsets-3"
    partition.mkdir()
    batch = encode_batch(0, 0, 0, [frame_record(0, 0, b"\x00\x63key", b"value")])
    (partition / "00000000000000000000.log").write_bytes(batch)
    write_note(Disk(), root, EMPTY_NOTE)
    return root


def on_store(url: str, work: object) -> None:
    async def body() -> None:
        opened = open_store(url, "test")
        try:
            await work(opened)  # type: ignore[operator]
        finally:
            await opened.close()

    asyncio.run(body())


def test_import_into_a_store_with_a_cluster_is_refused(data: Path, store: str, run: Run) -> None:
    with node_thread(store) as thread:
        thread.start("a")
    result = run("import", str(data))
    assert (result.code, result.out) == (1, "")
    assert "the store has cluster/0000000000 already, expected an empty one" in result.err


def test_import_of_a_folder_in_use_is_refused(data: Path, run: Run) -> None:
    lock = lock_folder(Disk(), data)
    try:
        result = run("import", str(data))
    finally:
        lock.close()
    assert result.code == 2
    assert f"{data}: in use by process" in result.err


def test_import_of_a_folder_that_was_not_stopped_cleanly_is_refused(data: Path, run: Run) -> None:
    (data / "journal").mkdir()
    (data / "journal" / f"{1:020d}-0123456789abcdef.journal").touch()
    assert "found a journal, expected a folder after a clean stop" in run("import", str(data)).err


def test_import_of_a_damaged_folder_is_refused(data: Path, run: Run) -> None:
    path = data / "__consumer_offsets-3" / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content + content)
    result = run("import", str(data))
    assert result.code == 1
    assert "see callboard log verify" in result.err


def test_import_of_something_else_is_refused(tmp_path: Path, run: Run) -> None:
    assert "expected a data folder of Callboard" in run("import", str(tmp_path)).err


def test_node_with_other_numbers_of_partitions_is_refused(data: Path, store: str, run: Run) -> None:
    assert run("import", str(data)).code == 0

    async def start(opened: Store) -> None:
        log = RegisterLog(opened, SessionEnvironment())
        with pytest.raises(StartError, match="the cluster has 4 and 2 partitions, expected 50 and 50 partitions"):
            await log.create(PartitionCounts(50, 50))
        register = await log.create(COUNTS)
        assert register.version == 0

    on_store(store, start)


def test_interrupted_import_is_no_cluster(data: Path, store: str, run: Run) -> None:
    run("import", str(data))

    async def interrupt(opened: Store) -> None:
        await opened.delete(await opened.list(REGISTER))
        with pytest.raises(StartError, match="an import runs, or was interrupted"):
            await RegisterLog(opened, SessionEnvironment()).create(COUNTS)
        assert await newest_register(opened) is None

    on_store(store, interrupt)
    assert "the store has topics/0000000000 already" in run("import", str(data)).err


def test_export_needs_a_cluster_and_an_empty_place(data: Path, tmp_path: Path, run: Run) -> None:
    assert "found a folder that is not empty" in run("export", str(data)).err
    assert "has no cluster" in run("export", str(tmp_path / "new")).err
    assert not (tmp_path / "new").exists()


def test_records_that_are_not_interpreted_are_kept(data: Path, tmp_path: Path, run: Run) -> None:
    run("import", str(data))
    assert run("export", str(tmp_path / "back")).code == 0
    name = "__consumer_offsets-3/00000000000000000000.log"
    assert (tmp_path / "back" / name).read_bytes() == (data / name).read_bytes()


@pytest.mark.parametrize("producer_id", [-1, 0, IDS_PER_SESSION - 1, IDS_PER_SESSION, 7 * IDS_PER_SESSION + 5])
def test_producer_ids_of_the_cluster_follow_those_of_the_import(producer_id: int) -> None:
    ids = SessionProducerIds()
    ids.start_session(first_version(producer_id) + 1)  # the first session joins by the version after it
    assert ids.allocate() > producer_id


@pytest.mark.parametrize("end", [0, 1, OFFSETS_PER_EPOCH - 1, OFFSETS_PER_EPOCH, 3 * OFFSETS_PER_EPOCH + 7])
def test_topics_begin_after_the_offsets_that_they_had(end: int) -> None:
    first_leader_epoch = 1
    assert (first_leader_epoch - first_epoch_after(end)) * OFFSETS_PER_EPOCH > end
