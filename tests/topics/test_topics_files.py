"""Missing, damaged, truncated and old ``topics.json`` and ``topics.ends``, at start and while serving."""

from __future__ import annotations

import errno
import json
import os
import random
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import async_test, running_node
from topics_helpers import (
    TopicSnapshot,
    create_topics_with_records,
    delete,
    open_catalogue,
    open_copy,
    producer_batch,
    topic_snapshots,
)

from callboard.actors.errors import CoordinatorError, ErrorCode
from callboard.runtime.common.errors import StartError
from callboard.runtime.engine.clock import SystemRandom
from callboard.runtime.node.environment import MEMORY
from callboard.runtime.settings.table import Settings
from callboard.runtime.testing.disk.faulty import Fault, FaultyDisk
from callboard.runtime.topics.catalogue import TopicCatalogue
from callboard.runtime.topics.end_slots import OLD_HEADER, SLOT_BYTES

# Damage at a start ---------------------------------------------------------------------------------------------------


def edit(folder: Path, **changes: object) -> None:
    """Write ``topics.json`` in format 1, which has no checksum, or with another version."""
    path = folder / "topics.json"
    fields = json.loads(path.read_text())
    del fields["checksum"]
    path.write_text(json.dumps(fields | {"version": 1} | changes))


ROW = {"name": "plays", "id": "A" * 22, "partitions": 2, "first_slot": 1}
DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no json": (lambda folder: (folder / "topics.json").write_text("{"), "damaged"),
    "empty": (lambda folder: (folder / "topics.json").write_text(""), "damaged"),
    "not utf-8": (lambda folder: (folder / "topics.json").write_bytes(b"\xff\xfe{"), "damaged"),
    "nested too deeply": (lambda folder: (folder / "topics.json").write_text("[" * 100_000), "damaged"),
    "a list": (lambda folder: (folder / "topics.json").write_text("[]"), "damaged"),
    "a later version": (lambda folder: edit(folder, version=3), "version 3: expected at most 2"),
    "no checksum": (lambda folder: edit(folder, version=2), "no checksum"),
    "no version": (lambda folder: edit(folder, version=None), "damaged"),
    "an illegal name": (lambda folder: edit(folder, topics=[ROW | {"name": "a/b"}]), "a/b"),
    "no partitions": (lambda folder: edit(folder, topics=[ROW | {"partitions": 0}]), "damaged"),
    "a bad id": (lambda folder: edit(folder, topics=[ROW | {"id": "x"}]), "damaged"),
    "twice": (lambda folder: edit(folder, topics=[ROW, ROW]), "twice"),
    "shared slots": (lambda folder: edit(folder, topics=[ROW, ROW | {"name": "b", "first_slot": 2}]), "same slots"),
    "slots beyond the file": (lambda folder: edit(folder, topics=[ROW | {"first_slot": 10**6}]), "plays-0"),
    "table gone": (lambda folder: (folder / "topics.json").unlink(), "topics.json"),
    "ends gone": (lambda folder: (folder / "topics.ends").unlink(), "topics.ends"),
    "ends empty": (lambda folder: (folder / "topics.ends").write_bytes(b""), "begin with b''"),
    "ends cut": (lambda folder: os.truncate(folder / "topics.ends", 2 * SLOT_BYTES), "partition plays-1"),
    "ends of something else": (lambda folder: (folder / "topics.ends").write_bytes(b"x" * 4096), "begin with"),
    "zeros in the ends": (lambda folder: overwrite(folder / "topics.ends", SLOT_BYTES, bytes(512)), "plays-0"),
}


def overwrite(path: Path, at: int, content: bytes) -> None:
    content_before = path.read_bytes()
    path.write_bytes(content_before[:at] + content + content_before[at + len(content) :])


@pytest.mark.parametrize(("damage", "words"), DAMAGE.values(), ids=DAMAGE)
def test_start_with_damaged_topics_is_refused_with_one_line_message(
    tmp_path: Path, damage: Callable[[Path], object], words: str
) -> None:
    catalogue = open_catalogue(tmp_path)
    create_topics_with_records(catalogue)
    catalogue.files.close()
    damage(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(StartError) as caught:
        open_catalogue(tmp_path)
    text = str(caught.value)
    assert words in text
    assert str(tmp_path) in text
    assert "\n" not in text
    assert contents(tmp_path) == before


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("name", ["topics.json", "topics.ends"])
def test_start_with_any_flipped_bit_is_refused_or_loses_nothing(tmp_path: Path, name: str) -> None:
    catalogue = open_catalogue(tmp_path)
    create_topics_with_records(catalogue)
    before = topic_snapshots(catalogue)
    catalogue.files.close()
    content_before = (tmp_path / name).read_bytes()
    used = len(content_before) if name == "topics.json" else 8 * SLOT_BYTES
    for bit in range(used * 8):
        overwrite(tmp_path / name, bit // 8, bytes([content_before[bit // 8] ^ 1 << bit % 8]))
        assert snapshots_or_none_if_refused(tmp_path) in (before, None), f"bit {bit} of {name}"
        (tmp_path / name).write_bytes(content_before)


def snapshots_or_none_if_refused(folder: Path) -> dict[str, TopicSnapshot] | None:
    try:
        catalogue = open_catalogue(folder)
    except StartError:
        return None
    catalogue.files.close()
    return topic_snapshots(catalogue)


def test_start_with_journal_and_without_topics_files_is_refused(tmp_path: Path) -> None:
    """A folder that was served has a journal; one copied from Kafka, or imported, has none."""
    open_catalogue(tmp_path).files.close()
    (tmp_path / "journal").mkdir()
    (tmp_path / "topics.json").unlink()
    (tmp_path / "topics.ends").unlink()
    with pytest.raises(
        StartError, match=r"found journal in .*no '.*topics\.json'.*put it back, or put {} into topics\.json"
    ):
        open_catalogue(tmp_path)
    (tmp_path / "topics.json").write_text("{}")
    catalogue = open_catalogue(tmp_path)
    catalogue.create("plays", 1)
    catalogue.files.close()
    again = open_catalogue(tmp_path)
    assert "plays" in again.names()
    again.files.close()


def test_start_with_braces_in_topics_json_drops_all_topics(tmp_path: Path) -> None:
    catalogue = open_catalogue(tmp_path)
    create_topics_with_records(catalogue)
    catalogue.files.close()
    (tmp_path / "topics.json").write_text("{}\n")
    again = open_catalogue(tmp_path)
    assert "plays" not in again.names()
    assert again.create("plays", 2).append(1, producer_batch(1)) == 0
    again.files.close()


def test_start_after_interrupted_first_start_succeeds(tmp_path: Path) -> None:
    """``topics.json`` is written first, and has no topics yet."""
    open_catalogue(tmp_path).files.close()
    (tmp_path / "topics.ends").unlink()
    (tmp_path / "topics.ends.new").write_bytes(b"half")
    catalogue = open_catalogue(tmp_path)
    catalogue.create("plays", 1)
    catalogue.files.close()
    again = open_catalogue(tmp_path)
    assert "plays" in again.names()
    again.files.close()


@pytest.mark.parametrize("seed", range(30))
def test_start_after_power_cut_in_first_start_succeeds(seed: int) -> None:
    disk = FaultyDisk(seed)
    disk.make_folder(MEMORY)
    disk.sync_folder(Path("/"))
    disk.faults.crash_at(1 + seed % 12)
    try:
        TopicCatalogue(MEMORY, Settings(), SystemRandom(), disk=disk)
    except BaseException as error:
        assert type(error).__name__ == "PowerLoss"
    catalogue = TopicCatalogue(MEMORY, Settings(), SystemRandom(), disk=disk.crash())
    catalogue.create("plays", 1)
    catalogue.files.close()


@async_test
async def test_start_of_used_folder_without_topics_files_is_refused(tmp_path: Path) -> None:
    async with running_node(tmp_path):
        pass
    (tmp_path / "topics.json").unlink()
    (tmp_path / "topics.ends").unlink()
    with pytest.raises(StartError, match=r"found journal.*no '.*topics\.json'"):
        async with running_node(tmp_path):
            pass
    (tmp_path / "topics.json").write_text("{}")
    async with running_node(tmp_path) as harness:
        assert "t" in harness.node.topics.names()


# Salvage -------------------------------------------------------------------------------------------------------------


def test_start_with_ends_file_renamed_to_damaged_keeps_valid_slots(tmp_path: Path) -> None:
    catalogue = open_catalogue(tmp_path)
    create_topics_with_records(catalogue)
    catalogue.files.close()
    overwrite(tmp_path / "topics.ends", 2 * SLOT_BYTES, b"\x40")  # the end of plays-1
    (tmp_path / "topics.ends").rename(tmp_path / "topics.ends.damaged")
    again = open_catalogue(tmp_path)
    assert {
        name: topic.ends for name, topic in topic_snapshots(again).items() if name in ("plays", "props", "empty")
    } == {
        "plays": [0, 0],
        "props": [2],
        "empty": [0, 0, 0],
    }
    again.raise_end("plays", 1, 4)  # as loading does for each committed offset
    again.files.close()
    assert (tmp_path / "topics.ends.salvaged").exists()
    assert not (tmp_path / "topics.ends.damaged").exists()
    last = open_catalogue(tmp_path)
    assert topic_snapshots(last)["plays"].ends == [0, 4]
    last.files.close()


def test_start_without_ends_and_with_empty_damaged_file_begins_at_zero(tmp_path: Path) -> None:
    catalogue = open_catalogue(tmp_path)
    create_topics_with_records(catalogue)
    catalogue.files.close()
    (tmp_path / "topics.ends").rename(tmp_path / "elsewhere")
    (tmp_path / "topics.ends.damaged").write_bytes(b"")
    again = open_catalogue(tmp_path)
    assert topic_snapshots(again)["plays"].ends == [0, 0]
    again.files.close()


# Format 1 ------------------------------------------------------------------------------------------------------------


def test_start_with_files_of_format_1_converts_them(tmp_path: Path) -> None:
    catalogue = open_catalogue(tmp_path)
    create_topics_with_records(catalogue)
    before = topic_snapshots(catalogue)
    first_slots = {
        row["name"]: row["first_slot"] for row in json.loads((tmp_path / "topics.json").read_text())["topics"]
    }
    catalogue.files.close()
    edit(tmp_path)
    slots = [0] * 511
    for name, first in first_slots.items():
        slots[first - 1 : first - 1 + len(before[name].ends)] = before[name].ends
    (tmp_path / "topics.ends").write_bytes(OLD_HEADER + struct.pack("=511q", *slots))
    assert sys.byteorder == "big" or OLD_HEADER == b"10SDNEBC"
    for _ in range(2):
        again = open_catalogue(tmp_path)
        assert topic_snapshots(again) == before
        again.files.close()
    assert json.loads((tmp_path / "topics.json").read_text())["version"] == 2
    assert (tmp_path / "topics.ends").read_bytes().startswith(b"CBENDS02")


def test_start_with_negative_end_in_format_1_is_refused(tmp_path: Path) -> None:
    catalogue = open_catalogue(tmp_path)
    create_topics_with_records(catalogue)
    catalogue.files.close()
    (tmp_path / "topics.ends").write_bytes(OLD_HEADER + b"\xff" * 4088)
    with pytest.raises(StartError, match="plays-0"):
        open_catalogue(tmp_path)


# While serving -------------------------------------------------------------------------------------------------------


def remove(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).unlink()


@pytest.mark.parametrize("name", ["topics.json", "topics.ends"])
def test_file_that_cannot_be_rewritten_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """Checks come once a second. When the disk was full, each one logged two errors."""
    caplog.set_level("INFO")
    catalogue = open_catalogue(tmp_path)
    create_topics_with_records(catalogue)
    for _ in range(2):
        caplog.clear()
        (tmp_path / name).unlink()
        (tmp_path / f"{name}.new").mkdir()
        for _ in range(3):
            catalogue.files.check()
        assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"], caplog.text
        (tmp_path / f"{name}.new").rmdir()
        for _ in range(2):
            catalogue.files.check()
        assert "a file was rewritten" in caplog.text


HARM: dict[str, Callable[[Path], object]] = {
    "ends cut to nothing": lambda folder: os.truncate(folder / "topics.ends", 0),
    "ends cut in a slot": lambda folder: os.truncate(folder / "topics.ends", SLOT_BYTES + 3),
    "ends removed": lambda folder: (folder / "topics.ends").unlink(),
    "ends replaced": lambda folder: (folder / "topics.ends.new").replace(folder / "topics.ends"),
    "table removed": lambda folder: (folder / "topics.json").unlink(),
    "table cut": lambda folder: os.truncate(folder / "topics.json", 10),
    "both removed": lambda folder: remove(folder, "topics.json", "topics.ends"),
}


@pytest.mark.parametrize("harm", HARM.values(), ids=HARM)
def test_truncated_or_removed_file_is_rewritten_while_serving(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, harm: Callable[[Path], object]
) -> None:
    catalogue = open_catalogue(tmp_path)
    create_topics_with_records(catalogue)
    (tmp_path / "topics.ends.new").write_bytes(b"x" * 8192)
    harm(tmp_path)
    plays = catalogue.get("plays")
    assert plays is not None
    assert plays.append(1, producer_batch(3)) == 5  # nothing is killed
    catalogue.files.check()
    assert "is rewritten" in caplog.text
    plays.append(0, producer_batch(1))
    copy = tmp_path / "copy"
    copy.mkdir()
    again = open_copy(tmp_path, copy)
    assert topic_snapshots(again) == topic_snapshots(catalogue)
    assert topic_snapshots(again)["plays"].ends == [1, 8]
    again.files.close()
    caplog.clear()
    catalogue.files.check()
    assert not caplog.records
    catalogue.files.close()


def test_truncated_ends_with_new_topic_are_rewritten(tmp_path: Path) -> None:
    """The new topic's slots are after the truncation, so the size of the file must not hide it."""
    catalogue = open_catalogue(tmp_path)
    create_topics_with_records(catalogue)
    os.truncate(tmp_path / "topics.ends", 0)
    with pytest.raises(CoordinatorError) as caught:
        catalogue.create("wide", 1000)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    catalogue.files.check()
    catalogue.create("wide", 1000)
    copy = tmp_path / "copy"
    copy.mkdir()
    again = open_copy(tmp_path, copy)
    assert topic_snapshots(again) == topic_snapshots(catalogue)
    again.files.close()
    catalogue.files.close()


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_ends_are_rewritten_after_failed_write(operation: str) -> None:
    disk = FaultyDisk(1)
    disk.make_folder(MEMORY)
    catalogue = TopicCatalogue(MEMORY, Settings(), SystemRandom(), disk=disk)
    topic = catalogue.create("plays", 1)
    topic.append(0, producer_batch(1))
    disk.faults.fail(Fault(operation, errno.EIO, "*/topics.ends"))
    if operation == "write":
        with pytest.raises(CoordinatorError) as caught:
            topic.append(0, producer_batch(1))
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    else:
        topic.append(0, producer_batch(1))
        catalogue.files.check()
    disk.sync_folder(Path("/"))
    catalogue.files.check()
    again = TopicCatalogue(MEMORY, Settings(), SystemRandom(), disk=disk.crash())
    assert topic_snapshots(again)["plays"].ends == [2]
    again.files.close()


def test_grow_moves_ends_of_topic(tmp_path: Path) -> None:
    catalogue = open_catalogue(tmp_path)
    create_topics_with_records(catalogue)
    plays = catalogue.get("plays")
    assert plays is not None
    outcomes: list[CoordinatorError | None] = []
    catalogue.grow(plays, 300, outcomes.append)
    assert outcomes == [None]
    plays.append(299, producer_batch(7))
    plays.append(0, producer_batch(1))
    copy = tmp_path / "copy"
    copy.mkdir()
    again = open_copy(tmp_path, copy)
    assert topic_snapshots(again)["plays"].ends == [1, 5, *[0] * 297, 7]
    again.files.close()
    delete(catalogue, "plays")
    catalogue.files.close()


@pytest.mark.parametrize("seed", range(40))
def test_power_cut_at_any_change_leaves_valid_files(seed: int) -> None:
    """Acknowledged changes are there, and synced end offsets too."""
    disk = FaultyDisk(seed)
    disk.make_folder(MEMORY)
    disk.sync_folder(Path("/"))
    catalogue = TopicCatalogue(MEMORY, Settings(), SystemRandom(), disk=disk)
    disk.faults.crash_at(random.Random(seed).randint(1, 120))
    durable: dict[str, int] = {}
    try:
        for number in range(12):
            topic = catalogue.create(f"t{number % 5}-{number}", 1 + number * 20)
            durable[topic.name] = 0
            topic.append(number, producer_batch(number + 1))
            catalogue.files.check()
            durable[topic.name] = number + 1
            if number % 3 == 2:
                durable.pop(f"t{(number - 1) % 5}-{number - 1}")
                delete(catalogue, f"t{(number - 1) % 5}-{number - 1}")
    except BaseException as error:
        assert type(error).__name__ == "PowerLoss"
    again = TopicCatalogue(MEMORY, Settings(), SystemRandom(), disk=disk.crash())
    for name, end in durable.items():
        assert max(topic_snapshots(again)[name].ends) >= end
    again.files.close()
