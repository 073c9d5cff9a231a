"""A data folder of format 2, written by version aad3093 until a ``kill -9``: it is upgraded once and loses nothing.

``folders/format-2`` has the folder and what its clients received: acknowledged commits and the last ones sent, members
with their assignments, and three transactions (one committed, one aborted, one open).
"""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from archives import extract
from consumer_requests import consumer_heartbeat_values
from crash_helpers import FETCH_VERSION, ClientReport, wrong_commits, wrong_members
from log_helpers import LazyDisk
from peers.server import TEST_SETTINGS, ServerProcess
from peers.wire import Wire
from project_paths import TESTS_FOLDER
from structlog.testing import capture_logs

from callboard.actors.records import Record
from callboard.runtime.cli.exchange import export
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk, read_file, write_all
from callboard.runtime.disk.threads import InlineThreads
from callboard.runtime.log.folder import FORMAT, INFO_NAME, DataFolder, parse_info
from callboard.runtime.log.journal import journal_names, journal_salt
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.testing.disk.faulty import FaultyDisk, PowerLoss

STORED_FOLDER = TESTS_FOLDER / "folders" / "format-2"
ROOT = Path("/data")
NEVER_EXPIRES: Mapping[str, object] = {
    **TEST_SETTINGS,
    "offsets_retention_minutes": 2_000_000_000,
    "transactional_id_expiration_ms": 2_000_000_000,
}
Content = dict[int, list[tuple[int, int, Record]]]


def unpack_folder(folder: Path) -> Path:
    """The data folder of format 2."""
    with tarfile.open(STORED_FOLDER / "folder.tar.xz") as archive:
        extract(archive, folder)
    return folder / "data"


def client_report_values() -> dict[str, Any]:
    report: dict[str, Any] = json.loads((STORED_FOLDER / "acknowledged.json").read_text())
    return report


def report_of(report_values: dict[str, Any]) -> ClientReport:
    return ClientReport(
        {
            (group, partition): (sent_offset, acknowledged_offset)
            for group, partition, sent_offset, acknowledged_offset in report_values["commits"]
        },
        [tuple(member) for member in report_values["members"]],
        [],
    )


def committed_in_transactions(server: ServerProcess, groups: list[str]) -> dict[str, int]:
    with Wire(server.host, server.port) as client:
        group_requests = [{"group_id": group, "topics": None} for group in groups]
        response = client.ask("offset_fetch", FETCH_VERSION, groups=group_requests, require_stable=False)
    return {
        group["group_id"]: partition["committed_offset"]
        for group in response["groups"]
        for topic in group["topics"]
        for partition in topic["partitions"]
        if partition["committed_offset"] >= 0
    }


def test_start_on_killed_folder_of_format_2_serves_all_and_upgrades_once(tmp_path: Path) -> None:
    data, report_values = unpack_folder(tmp_path), client_report_values()
    report = report_of(report_values)
    assert len(report.commits) == 30 and len(report.members) == 5
    with ServerProcess(tmp_path, settings=NEVER_EXPIRES) as server:
        for expected_upgrades in (1, 0):  # the second start is after a kill of the new version
            assert wrong_commits(server, report) == {}
            assert wrong_members(server, report) == []
            assert committed_in_transactions(server, ["paid", "unpaid", "waiting"]) == {"paid": 77}
            assert server.log().count("data folder upgraded") == 1
            assert json.loads((data / INFO_NAME).read_text())["format"] == FORMAT == 3
            names = journal_names(name.name for name in (data / "journal").iterdir())
            assert names and all(journal_salt(name) is not None for name in names)
            if expected_upgrades:
                server.kill()
                server.start()


def test_groups_of_an_older_log_go_on_with_the_consumer_protocol(tmp_path: Path) -> None:
    """A group that has only offsets keeps them, and its members survive a kill."""
    unpack_folder(tmp_path)
    group = "paid"
    joining = {"group_id": group, "rebalance_timeout": 60_000, "subscribed_topic_names": ["absent"]}
    with ServerProcess(tmp_path, settings=NEVER_EXPIRES) as server:
        with Wire(server.host, server.port) as wire:
            values = consumer_heartbeat_values("a", 0, **{**joining, "topic_partitions": []})
            joined = wire.ask("consumer_group_heartbeat", 1, **values)
            assert (joined["error_code"], joined["member_id"]) == ("NONE", "a")
        server.kill()
        server.start()
        with Wire(server.host, server.port) as wire:
            values = consumer_heartbeat_values("a", joined["member_epoch"], group_id=group)
            assert wire.ask("consumer_group_heartbeat", 1, **values)["error_code"] == "NONE"
        assert committed_in_transactions(server, [group]) == {group: 77}


def test_export_of_killed_folder_of_format_2_has_all_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, report = unpack_folder(tmp_path), report_of(client_report_values())
    files_before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    with pytest.raises(SystemExit) as exit_info:
        export.main(["--data", str(data)])
    assert not exit_info.value.code
    lines = [line.split(",") for line in capsys.readouterr().out.splitlines()[1:]]
    actual = {(group, int(partition)): int(offset) for group, _, partition, offset, *_ in lines}
    for key, (sent_offset, acknowledged_offset) in report.commits.items():
        assert acknowledged_offset <= actual[key] <= sent_offset
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == files_before


def open_folder_and_log(disk: Disk, root: Path) -> tuple[DataFolder, OffsetsLog]:
    folder = DataFolder(root, disk=disk)
    log = OffsetsLog(
        root,
        folder.offsets_partitions,
        transactions_partitions=folder.transactions_partitions,
        disk=disk,
        threads=InlineThreads(),
        new_salt=lambda: bytes(8),
    )
    try:
        log.open()
    except BaseException:
        folder.close()
        raise
    return folder, log


def content(disk: Disk, root: Path) -> Content:
    """All records, by partition."""
    folder, log = open_folder_and_log(disk, root)
    actual = {
        number: list(log.read(number)) for number in range(folder.offsets_partitions + folder.transactions_partitions)
    }
    assert log.damages() == []
    log.halt()
    folder.close()
    return actual


def on_faulty_disk(data: Path, seed: int) -> FaultyDisk:
    """The folder, all of it durable, on a disk that can simulate power loss."""
    disk = FaultyDisk(seed)
    for path in sorted(data.rglob("*")):
        target = ROOT / path.relative_to(data)
        disk.make_folder(target if path.is_dir() else target.parent)
        if path.is_file():
            fd = disk.open(target, os.O_RDWR | os.O_CREAT)
            write_all(disk, fd, path.read_bytes(), 0)
            disk.sync(fd)
            disk.close(fd)
        disk.sync_folder(target.parent)
    disk.sync_folder(ROOT.parent)
    return disk


def crashed_upgrades(data: Path) -> Iterator[FaultyDisk]:
    """The folder after a start with a power loss at its first change, its second, and so on, until it completes."""
    for change in range(1, 10_000):
        disk = on_faulty_disk(data, change)
        disk.faults.crash_at(change)
        try:
            _, log = open_folder_and_log(disk, ROOT)
        except PowerLoss:
            yield disk.crash()
            continue
        log.halt()
        yield disk.crash()
        return


def test_upgrade_interrupted_by_power_loss_loses_nothing(tmp_path: Path) -> None:
    data = unpack_folder(tmp_path)
    with capture_logs():
        expected = content(LazyDisk(), unpack_folder(tmp_path / "copy"))
        assert sum(map(len, expected.values())) > 1000
        formats = set()
        for disk in crashed_upgrades(data):
            info = parse_info(ROOT / INFO_NAME, read_file(disk, ROOT / INFO_NAME))
            formats.add(info.format)
            salts = [journal_salt(name) for name in journal_names(disk.names(ROOT / "journal"))]
            assert info.format == FORMAT or not any(salts), "the previous version would misread files with salts"
            assert content(disk, ROOT) == expected
    assert formats == {2, 3}


def test_folder_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    """Older versions refuse format 3 by the same rule."""
    data = unpack_folder(tmp_path)
    info = json.loads((data / INFO_NAME).read_text())
    (data / INFO_NAME).write_text(json.dumps({**info, "format": FORMAT + 1}))
    with pytest.raises(StartError, match=f"found format {FORMAT + 1}, expected at most {FORMAT}; a newer version"):
        DataFolder(data)
