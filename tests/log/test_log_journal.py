"""The journal file: its frames, and the detection of its end and of damage."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_helpers import SALT, LazyDisk, TraceDisk, journal_file_name, new_journal, scan_journal_file

from callboard.runtime.disk.crc import crc32c
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log import journal
from callboard.runtime.log.format.batch import encode_batch, frame_record
from callboard.runtime.log.journal import (
    POLICY_BY_MAGIC,
    FileHeader,
    SyncPolicy,
    journal_name,
    journal_number,
    journal_salt,
    random_salt,
    read_header,
    read_rounds,
    scan_journal,
)
from callboard.runtime.log.journal_frames import (
    FRAME_HEAD_BYTES,
    SALT_BYTES,
    TaggedFrames,
    content_frame,
    encode_frame,
)
from callboard.runtime.log.partition_counts import PartitionCounts

ROUNDS = [[(0, b"first"), (7, b"second")], [(7, b"third" * 50)], [(3, b"x")]]


Rounds = list[list[tuple[int, bytes]]]
OTHER_SALT = bytes(8)


@pytest.fixture(autouse=True)
def _short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small steps of zeros, because many of these tests read the whole file repeatedly."""
    monkeypatch.setattr(journal, "ZEROS", bytes(1024))


def journal_bytes(root: Path, start_offsets: dict[int, int] | None = None, rounds: Rounds | None = None) -> bytes:
    """The bytes of a journal with these rounds, its zeros included."""
    file = new_journal(LazyDisk(), root, 5, start_offsets or {})
    for batches in ROUNDS if rounds is None else rounds:
        file.write(encode_frame(batches))
    file.close()
    data = file.path.read_bytes()
    file.path.unlink()
    return data


def rounds_in(data: bytes, salt: bytes | None = SALT) -> Rounds:
    rounds = read_rounds(data, scan_journal(data, salt))
    return [[(number, bytes(batch)) for number, batch in batches] for batches in rounds]


def format_2_frame(batches: list[tuple[int, bytes]]) -> bytes:
    """The frame of a round in format 2."""
    return without_tag(encode_frame(batches)[FRAME_HEAD_BYTES:])


def without_tag(journal_bytes: bytes) -> bytes:
    return len(journal_bytes).to_bytes(4, "big") + crc32c(journal_bytes).to_bytes(4, "big") + journal_bytes


def format_2_header(mark: bytes, start_offsets: dict[int, int] | None = None) -> bytes:
    """The first frame of a file of format 2."""
    return without_tag(mark + b"".join(struct.pack(">iq", *start) for start in (start_offsets or {}).items()))


def test_rounds_are_read_in_order(tmp_path: Path) -> None:
    data = journal_bytes(tmp_path)
    assert rounds_in(data) == ROUNDS
    assert scan_journal(data, SALT).torn_bytes == 0


def test_header_has_start_offsets(tmp_path: Path) -> None:
    assert scan_journal(journal_bytes(tmp_path, {0: 12, 49: 2**40}), SALT).start_offsets == {0: 12, 49: 2**40}
    assert scan_journal(journal_bytes(tmp_path, {}), SALT).start_offsets == {}


def test_journal_without_rounds_is_valid(tmp_path: Path) -> None:
    assert rounds_in(journal_bytes(tmp_path, {1: 1}, [])) == []


@pytest.mark.parametrize(
    "data",
    [b"", b"\0" * 100, b"\xff" * 100, encode_frame([(0, b"b")]), *(content_frame(mark) for mark in POLICY_BY_MAGIC)],
)
def test_file_without_header_is_unused(data: bytes) -> None:
    """The process ended while it created the file, which has no round yet."""
    scan = scan_journal(data, SALT)
    assert (scan.start_offsets, scan.valid_bytes, scan.is_used) == (None, 0, False)
    assert list(read_rounds(data, scan)) == []


def test_frame_truncated_at_any_byte_ends_the_journal(tmp_path: Path) -> None:
    data = journal_bytes(tmp_path)
    valid_bytes = scan_journal(data, SALT).valid_bytes
    last_frame_bytes = len(encode_frame(ROUNDS[-1]))
    for size in range(valid_bytes - last_frame_bytes, valid_bytes):
        truncated = data[:size] + b"\0" * (len(data) - size)
        scan = scan_journal(truncated, SALT)
        assert rounds_in(truncated) == ROUNDS[:-1]
        assert scan.valid_bytes == valid_bytes - last_frame_bytes
        assert scan.torn_bytes == len(data[valid_bytes - last_frame_bytes : size].rstrip(b"\0"))


def real_batch(offset: int, key: bytes = b"k") -> bytes:
    return encode_batch(offset, 1, 1, [frame_record(0, 0, key, b"v" * 20)])


def test_flipped_bit_damages_only_its_frame(tmp_path: Path) -> None:
    """Later frames are found, although their positions are unknown."""
    rounds = [[(0, real_batch(0)), (7, real_batch(3))], [(7, real_batch(4))], [(3, real_batch(9))]]
    data = journal_bytes(tmp_path, {7: 3}, rounds)
    ends = [end for _, end in scan_journal(data, SALT).rounds]
    start_offsets = [0, *(start - FRAME_HEAD_BYTES for start, _ in scan_journal(data, SALT).rounds)]
    for bit in range(ends[-1] * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        frame = sum(start <= bit // 8 for start in start_offsets) - 1  # 0 is the first frame, which is not a round
        scan = scan_journal(bytes(flipped), SALT)
        assert (scan.start_offsets is None) == (frame == 0)
        assert rounds_in(bytes(flipped)) == [round_ for number, round_ in enumerate(rounds, 1) if number != frame]
        assert [gap.position for gap in scan.damaged] == ([start_offsets[frame]] if frame < 3 else [])
        assert (scan.torn_bytes > 0) == (frame == 3)


PAGE_BYTES = 64


def hostile_frames(valid_frame: bytes, position: int) -> dict[str, bytes]:
    """Bytes of a client that resemble a frame, by the difference from a valid one."""
    frame = encode_frame([(7, real_batch(4))])
    return {
        "no tag": frame,
        "the frame of an older format": format_2_frame([(7, real_batch(4))]),
        "a frame of this file, from another position": valid_frame,
        "the tag of another position": TaggedFrames(SALT).tagged(frame, position + 1),
        "the tag of another file": TaggedFrames(OTHER_SALT).tagged(frame, position),
    }


@pytest.mark.parametrize("kind", hostile_frames(b"", 0))
def test_frame_within_a_record_is_never_taken_for_a_frame(tmp_path: Path, kind: str) -> None:
    """The pages of a round reach the disk in any order. The unacknowledged round is lost, and no other appears."""
    rounds: Rounds = [[(7, real_batch(3))]]
    data = journal_bytes(tmp_path, {}, rounds)
    scan = scan_journal(data, SALT)
    start, end = scan.rounds[0][0] - FRAME_HEAD_BYTES, scan.valid_bytes
    frame = encode_frame([(7, real_batch(4))])
    position = end + encode_frame([(0, real_batch(0, frame * 2 + b"z" * 50))]).index(frame)
    client_frame = hostile_frames(data[start:end], position)[kind]
    round_frame = TaggedFrames(SALT).tagged(encode_frame([(0, real_batch(0, client_frame * 2 + b"z" * 50))]), end)
    pages = range(end // PAGE_BYTES, (end + len(round_frame)) // PAGE_BYTES + 1)
    for first_page in pages:
        for last_page in pages:
            torn = bytearray(data[:end] + round_frame + bytes(300))
            torn[max(end, first_page * PAGE_BYTES) : (last_page + 1) * PAGE_BYTES] = bytes(
                max(0, (last_page + 1) * PAGE_BYTES - max(end, first_page * PAGE_BYTES))
            )
            if torn[end : end + len(round_frame)] != round_frame:
                assert rounds_in(bytes(torn)) == rounds
                assert scan_journal(bytes(torn), SALT).damaged == []


def test_damaged_round_with_frames_of_a_client_loses_only_itself(tmp_path: Path) -> None:
    """The round's head contains its end, even if the bytes at its end resemble another frame."""
    client_frame = encode_frame([(7, real_batch(4))])
    rounds: Rounds = [[(7, real_batch(3))], [(0, real_batch(0, client_frame + b"z" * 50))], [(3, real_batch(1))]]
    data = journal_bytes(tmp_path, {}, rounds)
    start, end = scan_journal(data, SALT).rounds[1]
    for at in range(start - FRAME_HEAD_BYTES, end):
        damaged = bytearray(data)
        damaged[at] ^= 1
        assert rounds_in(bytes(damaged)) == [rounds[0], rounds[2]]


def test_damaged_round_of_format_2_with_frames_of_a_client_loses_only_itself() -> None:
    """Only the round's length shows that the bytes within it are not a frame."""
    client_frame = format_2_frame([(7, real_batch(4))])
    torn = format_2_frame([(0, real_batch(0, client_frame + b"z" * 50))])
    data = format_2_header(b"CBJ1") + format_2_frame([(7, real_batch(3))])
    for size in range(len(torn) - 50 - 23, len(torn) - 1):  # the frame's last byte is zero, like the bytes after it
        truncated = data + torn[:size] + bytes(300)
        assert rounds_in(truncated, None) == [[(7, real_batch(3))]]
        assert scan_journal(truncated, None).damaged == []
    damaged = bytearray(data + torn + format_2_frame([(3, real_batch(1))]) + bytes(50))
    damaged[len(data) + len(torn) - 30] ^= 1
    assert rounds_in(bytes(damaged), None) == [[(7, real_batch(3))], [(3, real_batch(1))]]


def test_file_of_format_2_is_read_without_tags(tmp_path: Path) -> None:
    data = format_2_header(b"CBJi", {3: 8}) + b"".join(format_2_frame(batches) for batches in ROUNDS) + bytes(100)
    assert rounds_in(data, None) == ROUNDS
    scan = scan_journal(data, None, is_newest=True)
    assert (scan.start_offsets, scan.counts, scan.unsynced_policy) == ({3: 8}, None, "interval")
    assert scan_journal(data, SALT).is_used is False
    path = tmp_path / journal_name(3, None)
    path.write_bytes(data)
    assert read_header(Disk(), path) == FileHeader({3: 8}, "interval", None)


def test_header_has_partition_counts(tmp_path: Path) -> None:
    file = new_journal(LazyDisk(), tmp_path, 1, {4: 9}, "none", PartitionCounts(50, 7))
    file.close()
    assert scan_journal_file(file.path).counts == PartitionCounts(50, 7)
    assert read_header(Disk(), file.path) == FileHeader({4: 9}, "none", PartitionCounts(50, 7))


def test_salts_of_files_differ() -> None:
    assert len({random_salt() for _ in range(100)}) == 100
    assert {len(random_salt()) for _ in range(100)} == {SALT_BYTES}


def test_range_of_zeros_does_not_end_a_synced_journal(tmp_path: Path) -> None:
    """A block that the disk lost after a successful sync."""
    rounds = [[(0, real_batch(number))] for number in range(5)]
    data = journal_bytes(tmp_path, {}, rounds)
    _, (start, end), *_ = scan_journal(data, SALT).rounds
    data_with_hole = data[: start - FRAME_HEAD_BYTES] + bytes(end - start + FRAME_HEAD_BYTES) + data[end:]
    assert rounds_in(data_with_hole) == [rounds[0], *rounds[2:]]


@pytest.mark.parametrize("sync", ["interval", "none"])
def test_unsynced_journal_ends_at_its_first_flaw(tmp_path: Path, sync: SyncPolicy) -> None:
    """A later block was written before an earlier one: the earlier round is lost, so the later one must be dropped."""
    file = new_journal(LazyDisk(), tmp_path, 5, {0: 3}, sync)
    rounds = [[(0, real_batch(3 + number))] for number in range(5)]
    ends = []
    for batches in rounds:
        file.write(encode_frame(batches))
        ends.append(file.position)
    file.close()
    data = file.path.read_bytes()
    assert scan_journal(data, SALT, True) == scan_journal(data, SALT)._replace(unsynced_policy=sync)
    data_with_hole = data[: ends[0]] + bytes(ends[2] - ends[0]) + data[ends[2] :]
    scan = scan_journal(data_with_hole, SALT, True)
    assert [[(0, bytes(batch)) for _, batch in batches] for batches in read_rounds(data_with_hole, scan)] == rounds[:1]
    assert (scan.start_offsets, scan.damaged, scan.unsynced_rounds) == ({0: 3}, [], 2)
    assert (scan.valid_bytes, scan.valid_bytes + scan.torn_bytes) == (ends[0], ends[-1])
    assert rounds_in(data_with_hole) == [rounds[0], *rounds[3:]], (
        "a later file exists, and this file was synced before it was created"
    )


@given(st.binary(max_size=200))
def test_scan_of_arbitrary_bytes_ends(data: bytes) -> None:
    scan = scan_journal(data, SALT)
    assert 0 <= scan.valid_bytes <= scan.valid_bytes + scan.torn_bytes <= len(data)


def test_new_journal_is_durable(tmp_path: Path) -> None:
    disk = TraceDisk()
    file = new_journal(disk, tmp_path, 3, {})
    name = journal_file_name(3)
    assert disk.trace == [
        ("create", name), ("write", name), ("write", name), ("sync", name), ("sync_folder", tmp_path.name),
    ]  # fmt: skip
    file.close()


def test_each_round_is_one_write(tmp_path: Path) -> None:
    disk = TraceDisk()
    file = new_journal(disk, tmp_path, 0, {})
    disk.trace.clear()
    file.write(encode_frame(ROUNDS[0]))
    file.sync()
    file.close()
    assert disk.trace == [("write", journal_file_name(0)), ("sync", journal_file_name(0))]


def test_journal_is_filled_with_zeros_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This includes a frame that is larger than a step."""
    monkeypatch.setattr(journal, "ZEROS", bytes(100))
    large_round = [(1, b"y" * 250)]
    data = journal_bytes(tmp_path, {}, [*ROUNDS, large_round, ROUNDS[0]])
    assert len(data) % 100 == 0
    assert rounds_in(data) == [*ROUNDS, large_round, ROUNDS[0]]


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "ZEROS", bytes(100))
    disk = TraceDisk()
    disk.most_bytes = 7
    file = new_journal(disk, tmp_path, 0, {2: 2})
    file.write(encode_frame(ROUNDS[1]))
    file.close()
    assert rounds_in(file.path.read_bytes()) == [ROUNDS[1]]


def test_journal_with_existing_name_is_refused(tmp_path: Path) -> None:
    new_journal(LazyDisk(), tmp_path, 4, {}).close()
    with pytest.raises(FileExistsError):
        new_journal(LazyDisk(), tmp_path, 4, {})


def test_second_close_does_nothing(tmp_path: Path) -> None:
    file = new_journal(LazyDisk(), tmp_path, 0, {})
    file.close()
    file.close()


def test_journal_names_are_parsed() -> None:
    salt = bytes.fromhex("00f1e2d3c4b5a697")
    assert journal_name(12, salt) == "00000000000000000012-00f1e2d3c4b5a697.journal"
    assert journal_number(journal_name(12, salt)) == journal_number(journal_name(12, None)) == 12
    assert journal_salt(journal_name(12, salt)) == salt
    assert journal_salt(journal_name(12, None)) is None
    assert [journal_number(name) for name in ("12.journal", journal_name(12, b"short"))] == [None, None]
