"""The topic catalogue: names and end offsets survive stops and kills, and ends are never below committed offsets."""

from __future__ import annotations

import errno
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from topics_helpers import (
    SETTINGS,
    create_topics_with_records,
    delete,
    error_code_of,
    open_catalogue,
    open_copy,
    producer_batch,
    topic_snapshots,
)

from callboard.actors.errors import CoordinatorError, ErrorCode
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk
from callboard.runtime.disk.group_commit import immediate_outcome
from callboard.runtime.engine.clock import SystemRandom
from callboard.runtime.settings.table import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from callboard.runtime.topics import files as files_module
from callboard.runtime.topics.catalogue import RAISED_END_MAX, TopicCatalogue
from callboard.runtime.topics.ends import GROW_SLOTS, FreeSlots
from callboard.runtime.topics.ids import transactions_topic_id
from callboard.runtime.topics.producer_ids import PRODUCER_ID_BLOCK
from callboard.runtime.topics.store import NewTopic, TopicRow, TopicsFile, id_text, save_table


@pytest.fixture
def topics(tmp_path: Path) -> Iterator[TopicCatalogue]:
    catalogue = open_catalogue(tmp_path)
    yield catalogue
    catalogue.files.close()


# Names ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "é", "a\n", "x" * 250, "a:b"])
def test_create_with_invalid_name_is_refused(topics: TopicCatalogue, name: str) -> None:
    assert error_code_of(lambda: topics.create(name, 1)) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert topics.get(name) is None


@pytest.mark.parametrize("name", ["a", "...", "-", "x" * 249, "A.b-C_9", "__mine"])
def test_create_with_valid_name_succeeds(topics: TopicCatalogue, name: str) -> None:
    assert topics.create(name, 1) is topics.get(name)


def test_create_with_colliding_metric_name_is_refused(topics: TopicCatalogue) -> None:
    topics.create("my.topic_a", 1)
    assert error_code_of(lambda: topics.create("my_topic.a", 1)) == ErrorCode.INVALID_TOPIC_EXCEPTION
    delete(topics, "my.topic_a")
    topics.create("my_topic.a", 1)


def test_create_with_existing_name_is_refused(topics: TopicCatalogue) -> None:
    topics.create("plays", 1)
    assert error_code_of(lambda: topics.create("plays", 1)) == ErrorCode.TOPIC_ALREADY_EXISTS
    assert error_code_of(lambda: topics.create(OFFSETS_TOPIC, 1)) == ErrorCode.TOPIC_ALREADY_EXISTS
    assert error_code_of(lambda: topics.create("__cluster_metadata", 1)) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("partitions", "code"),
    [(0, ErrorCode.INVALID_PARTITIONS), (-2, ErrorCode.INVALID_PARTITIONS), (2**31 - 1, ErrorCode.POLICY_VIOLATION)],
)
def test_create_with_invalid_partition_count_is_refused(
    topics: TopicCatalogue, partitions: int, code: ErrorCode
) -> None:
    assert error_code_of(lambda: topics.create("plays", partitions)) == code


def test_by_id_returns_topic_and_none_for_zero_id(topics: TopicCatalogue) -> None:
    topic = topics.create("plays", 1)
    assert topics.by_id(topic.topic_id) is topic
    assert topics.by_id(None) is None
    delete(topics, "plays")
    assert topics.by_id(topic.topic_id) is None
    assert topics.create("plays", 1).topic_id != topic.topic_id


def test_new_topic_id_never_begins_with_dash(tmp_path: Path) -> None:
    """Kafka's tools would parse it as an option."""
    drawn = [UUID(int=0xF8 << 120), UUID(int=0xFB << 120 | 1), UUID(int=5), UUID(int=0xFB << 120 | 2), UUID(int=6)]

    class Drawn:
        def uuid(self) -> str:
            return str(drawn.pop(0))

    catalogue = TopicCatalogue(tmp_path, SETTINGS, Drawn())
    assert catalogue.create("plays", 1).topic_id == UUID(int=6)
    assert id_text(UUID(int=0xFB << 120)).startswith("-")
    catalogue.files.close()


@pytest.mark.parametrize(("name", "partitions"), [(OFFSETS_TOPIC, 3), (TRANSACTIONS_TOPIC, 50)])
def test_internal_topics_are_listed_and_cannot_be_changed(topics: TopicCatalogue, name: str, partitions: int) -> None:
    topic = topics.get(name)
    assert topic is not None
    assert topic.is_internal
    assert len(topic.partitions) == partitions
    assert topics.by_id(topic.topic_id) is topic
    assert error_code_of(lambda: delete(topics, name)) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert error_code_of(lambda: topics.create(name, 1)) == ErrorCode.TOPIC_ALREADY_EXISTS
    topics.create("gone", 1)
    gone = topics.get("gone")
    assert gone is not None
    delete(topics, "gone")
    [refusal] = immediate_outcome(partial(topics.delete_many, [gone]))
    assert refusal is not None
    assert refusal.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_internal_topics_keep_ids_after_restart(tmp_path: Path) -> None:
    def ids() -> list[UUID]:
        catalogue = open_catalogue(tmp_path)
        internal_topics = [catalogue.get(name) for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)]
        catalogue.files.close()
        return [topic.topic_id for topic in internal_topics if topic is not None]

    first = ids()
    assert len(set(first)) == 2
    assert ids() == first
    assert not any(id_text(transactions_topic_id(UUID(int=number))).startswith("-") for number in range(500))


def test_internal_topics_have_partition_counts_of_data_folder(tmp_path: Path) -> None:
    """The data folder was created with other settings; its own counts are used."""
    catalogue = TopicCatalogue(tmp_path, SETTINGS, SystemRandom(), (7, 9))
    for name, partitions in ((OFFSETS_TOPIC, 7), (TRANSACTIONS_TOPIC, 9)):
        topic = catalogue.get(name)
        assert topic is not None
        assert len(topic.partitions) == partitions
    catalogue.files.close()


def test_client_topic_named_transaction_state_is_kept_after_upgrade(tmp_path: Path) -> None:
    """Older versions allowed clients to create it."""
    row = TopicRow(TRANSACTIONS_TOPIC, UUID(int=5), 2, 1)
    open_catalogue(tmp_path).files.close()
    save_table(tmp_path / "topics.json", TopicsFile(UUID(int=1), 0, (row,)), Disk())
    catalogue = open_catalogue(tmp_path)
    topic = catalogue.get(TRANSACTIONS_TOPIC)
    assert topic is not None
    assert (topic.topic_id, len(topic.partitions)) == (UUID(int=5), 2)
    delete(catalogue, TRANSACTIONS_TOPIC)
    catalogue.files.close()


def test_create_many_returns_outcome_for_each_topic(topics: TopicCatalogue) -> None:
    made, again, bad, other = immediate_outcome(
        partial(topics.create_many, [NewTopic("a.b", 1), NewTopic("a_b", 1), NewTopic("", 1), NewTopic("c", 2)])
    )
    assert made is topics.get("a.b")
    assert isinstance(again, CoordinatorError)
    assert isinstance(bad, CoordinatorError)
    assert other is topics.get("c")


# Restarts ------------------------------------------------------------------------------------------------------------


def test_restart_after_stop_keeps_topics_and_ends_without_records(tmp_path: Path) -> None:
    catalogue = open_catalogue(tmp_path)
    create_topics_with_records(catalogue)
    delete(catalogue, "props")
    before = topic_snapshots(catalogue)
    catalogue.files.close()
    again = open_catalogue(tmp_path)
    assert topic_snapshots(again) == before
    plays = again.get("plays")
    assert plays is not None
    assert [(log.start_offset, log.size_bytes) for log in plays.partitions] == [(0, 0), (5, 0)]
    assert plays.append(1, producer_batch()) == 5
    again.files.close()
    last = open_catalogue(tmp_path)
    assert topic_snapshots(last)["plays"].ends == [0, 6]
    last.files.close()


def test_restart_after_kill_keeps_topics_and_ends(tmp_path: Path, topics: TopicCatalogue) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    create_topics_with_records(topics)
    again = open_copy(tmp_path, copy)
    assert topic_snapshots(again) == topic_snapshots(topics)
    again.files.close()


APPENDS = """
import sys
from pathlib import Path
from callboard.runtime.engine.clock import SystemRandom
from callboard.runtime.settings.table import Settings
from callboard.runtime.topics.catalogue import TopicCatalogue

topic = TopicCatalogue(Path(sys.argv[1]), Settings(), SystemRandom()).create("plays", 1)
batch = bytes.fromhex(sys.argv[2])
while True:
    print(topic.append(0, batch), flush=True)
"""


def test_restart_after_sigkill_has_every_acknowledged_end(tmp_path: Path) -> None:
    """SIGKILL during appends: the next process begins at the last acknowledged end, or one append later."""
    command = [sys.executable, "-c", APPENDS, str(tmp_path), producer_batch(3).hex()]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2000)]
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.read().splitlines()  # often none: the kill may come before the next line
        acknowledged_end = int(lines[-1])
    again = open_catalogue(tmp_path)
    [end] = topic_snapshots(again)["plays"].ends
    again.files.close()
    assert end in (acknowledged_end + 3, acknowledged_end + 6)


def test_create_in_slots_of_deleted_topic_begins_at_zero(tmp_path: Path, topics: TopicCatalogue) -> None:
    create_topics_with_records(topics)
    delete(topics, "plays")
    topics.create("masks", 2)
    copy = tmp_path / "copy"
    copy.mkdir()
    again = open_copy(tmp_path, copy)
    assert topic_snapshots(again)["masks"].ends == [0, 0]
    assert topic_snapshots(again)["props"].ends == [2]
    again.files.close()


def test_ends_file_growth_keeps_stored_ends(tmp_path: Path, topics: TopicCatalogue) -> None:
    first = topics.create("first", 1)
    first.append(0, producer_batch(4))
    wide = topics.create("wide", 3 * GROW_SLOTS)
    first.append(0, producer_batch(1))
    wide.append(3 * GROW_SLOTS - 1, producer_batch(2))
    copy = tmp_path / "copy"
    copy.mkdir()
    again = open_copy(tmp_path, copy)
    assert topic_snapshots(again)["first"].ends == [5]
    assert topic_snapshots(again)["wide"].ends[-1] == 2
    again.files.close()


@given(st.lists(st.integers(1, 5)), st.sets(st.integers(0, 20)), st.integers(1, 6))
def test_free_slots_never_overlap_used_slots(sizes: list[int], freed: set[int], count: int) -> None:
    spans: list[tuple[int, int]] = []
    for size in sizes:
        spans.append((FreeSlots(spans).allocate(size), size))
    used_spans = [span for index, span in enumerate(spans) if index not in freed]
    free = FreeSlots(used_spans)
    used_spans += [(free.allocate(count), count), (free.allocate(1), 1)]
    slots = [slot for first, size in used_spans for slot in range(first, first + size)]
    assert len(slots) == len(set(slots))
    assert min(slots) >= 1


def test_free_slots_allocate_uses_gap_of_exact_size() -> None:
    assert FreeSlots([(1, 2), (5, 1)]).allocate(2) == 3
    assert FreeSlots([(1, 2), (5, 1)]).allocate(3) == 6


# Commits and ends ----------------------------------------------------------------------------------------------------


def test_raise_end_at_start_raises_ends_to_committed_offsets(tmp_path: Path) -> None:
    """A power loss may lose an end offset that a consumer has already committed."""
    before = open_catalogue(tmp_path)
    create_topics_with_records(before)
    before.files.close()
    again = open_catalogue(tmp_path)
    again.raise_end("plays", 0, 12)
    again.raise_end("plays", 1, 3)
    again.raise_end("nobody", 0, 3)
    again.raise_end("plays", 9, 3)
    again.raise_end(OFFSETS_TOPIC, 0, 3)
    again.raise_end("empty", 0, RAISED_END_MAX + 1)
    assert topic_snapshots(again)["plays"].ends == [12, 5]
    assert topic_snapshots(again)["empty"].ends == [0, 0, 0]
    again.files.close()
    last = open_catalogue(tmp_path)
    plays = last.get("plays")
    assert plays is not None
    assert plays.append(0, producer_batch()) == 12
    last.files.close()


def test_close_waits_for_sync_of_ends_in_another_thread(tmp_path: Path) -> None:
    catalogue = open_catalogue(tmp_path)
    topic = catalogue.create("plays", 1)
    stop = threading.Event()
    ends = catalogue._ends
    problems: set[str] = set()

    def sync() -> None:
        while not stop.is_set():
            problems.add(ends.sync())

    thread = threading.Thread(target=sync)
    thread.start()
    for _ in range(200):
        topic.append(0, producer_batch())
    catalogue.create("wide", GROW_SLOTS)
    catalogue.files.close()
    stop.set()
    thread.join()
    problems.add(ends.sync())
    assert problems == {""}
    again = open_catalogue(tmp_path)
    assert topic_snapshots(again)["plays"].ends == [200]
    again.files.close()


# Producer ids --------------------------------------------------------------------------------------------------------


def test_producer_ids_are_unique_across_kills_and_restarts(tmp_path: Path, topics: TopicCatalogue) -> None:
    given_out = [topics.new_producer_id() for _ in range(PRODUCER_ID_BLOCK + 1)]
    copy = tmp_path / "copy"
    copy.mkdir()
    again = open_copy(tmp_path, copy)
    given_out += [again.new_producer_id() for _ in range(3)]
    again.files.close()
    assert given_out[: PRODUCER_ID_BLOCK + 1] == list(range(PRODUCER_ID_BLOCK + 1))
    assert len(set(given_out)) == len(given_out)


# A disk that fails ---------------------------------------------------------------------------------------------------


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_create_and_delete_with_full_disk_change_nothing(
    topics: TopicCatalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topics_with_records(topics)
    before = topic_snapshots(topics)
    with monkeypatch.context() as patch:
        patch.setattr(files_module, "replace_file", full_disk)
        assert error_code_of(lambda: topics.create("more", 1)) == ErrorCode.KAFKA_STORAGE_ERROR
        assert error_code_of(lambda: delete(topics, "plays")) == ErrorCode.KAFKA_STORAGE_ERROR
        assert error_code_of(topics.new_producer_id) == ErrorCode.KAFKA_STORAGE_ERROR
        assert topic_snapshots(topics) == before
    topics.create("more", 1)
    delete(topics, "plays")


def test_new_producer_id_before_block_is_durable_is_refused(
    tmp_path: Path, topics: TopicCatalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(files_module, "replace_file", full_disk)
        assert error_code_of(topics.new_producer_id) == ErrorCode.KAFKA_STORAGE_ERROR
    first = topics.new_producer_id()
    copy = tmp_path / "copy"
    copy.mkdir()
    again = open_copy(tmp_path, copy)
    assert again.new_producer_id() > first
    again.files.close()


def test_topics_json_is_replaced_not_overwritten(tmp_path: Path, topics: TopicCatalogue) -> None:
    """A reader of the old file keeps reading the old content, as a start after a crash during the change does."""
    with (tmp_path / "topics.json").open() as old:
        topics.create("plays", 1)
        assert json.load(old)["topics"] == []


def test_start_without_data_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="cannot write"):
        open_catalogue(tmp_path / "nowhere")


class RenameCounter(Disk):
    def __init__(self) -> None:
        super().__init__()
        self.renames = 0

    def rename(self, source: Path, target: Path) -> None:
        self.renames += 1
        super().rename(source, target)


def test_topics_of_a_start_are_created_with_one_change(tmp_path: Path) -> None:
    """One change for each rewrote the table for each: 3,000 topics took minutes, while the event loop stood still."""
    disk = RenameCounter()
    catalogue = TopicCatalogue(tmp_path, SETTINGS, SystemRandom(), disk=disk)
    before = disk.renames
    catalogue.ensure([(f"topic-{number}", 1) for number in range(50)])
    assert disk.renames - before <= 2
    catalogue.ensure([(f"topic-{number}", 1) for number in range(50)])
    assert disk.renames - before <= 2
    catalogue.files.close()
    assert open_catalogue(tmp_path).names() == catalogue.names()
    with pytest.raises(StartError, match=f"--topic large:{SETTINGS.max_partitions}: "):
        catalogue.ensure([("small", 1), ("large", SETTINGS.max_partitions)])
