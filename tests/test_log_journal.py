"""The journal file: frames that check out, and an end that is found whatever stands behind it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_helpers import LazyDisk, TraceDisk

from callboard.runtime.log import journal
from callboard.runtime.log.batch import encode_batch, frame_record
from callboard.runtime.log.journal import (
    MARKS,
    Journal,
    SyncPolicy,
    encode_frame,
    journal_name,
    journal_number,
    measure,
    read_rounds,
)

ROUNDS = [[(0, b"first"), (7, b"second")], [(7, b"third" * 50)], [(3, b"x")]]


Rounds = list[list[tuple[int, bytes]]]


@pytest.fixture(autouse=True)
def _short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small steps of zeros: many of these tests read the whole file again and again."""
    monkeypatch.setattr(journal, "ZEROS", bytes(1024))


def content(root: Path, starts: dict[int, int] | None = None, rounds: Rounds | None = None) -> bytes:
    """The bytes of a journal with these rounds, its zeros included."""
    file = Journal(LazyDisk(), root, 5, starts or {})
    for batches in ROUNDS if rounds is None else rounds:
        file.write(encode_frame(batches))
    file.close()
    data = file.path.read_bytes()
    file.path.unlink()
    return data


def rounds_in(data: bytes) -> Rounds:
    return [[(number, bytes(batch)) for number, batch in batches] for batches in read_rounds(data, measure(data))]


def test_rounds_come_back_in_order(tmp_path: Path) -> None:
    data = content(tmp_path)
    assert rounds_in(data) == ROUNDS
    assert measure(data).torn_bytes == 0


def test_a_journal_says_from_where_it_speaks(tmp_path: Path) -> None:
    assert measure(content(tmp_path, {0: 12, 49: 2**40})).starts == {0: 12, 49: 2**40}
    assert measure(content(tmp_path, {})).starts == {}


def test_a_journal_without_rounds_is_a_journal(tmp_path: Path) -> None:
    assert rounds_in(content(tmp_path, {1: 1}, [])) == []


@pytest.mark.parametrize(
    "data",
    [b"", b"\0" * 100, b"\xff" * 100, encode_frame([(0, b"b")]), *(b"\0\0\0\4\0\0\0\0" + mark for mark in MARKS)],
)
def test_what_does_not_begin_like_a_journal_was_never_used(data: bytes) -> None:
    """The process died while the file was made; no round was in it yet."""
    extent = measure(data)
    assert (extent.starts, extent.good_bytes, extent.is_used) == (None, 0, False)
    assert list(read_rounds(data, extent)) == []


def test_a_frame_that_is_cut_off_anywhere_ends_the_journal(tmp_path: Path) -> None:
    data = content(tmp_path)
    good = measure(data).good_bytes
    last = len(encode_frame(ROUNDS[-1]))
    for size in range(good - last, good):
        cut = data[:size] + b"\0" * (len(data) - size)
        extent = measure(cut)
        assert rounds_in(cut) == ROUNDS[:-1]
        assert extent.good_bytes == good - last
        assert extent.torn_bytes == len(data[good - last : size].rstrip(b"\0"))


def real_batch(offset: int, key: bytes = b"k") -> bytes:
    return encode_batch(offset, 1, 1, [frame_record(0, 0, key, b"v" * 20)])


def test_every_flipped_bit_costs_its_frame_and_no_other(tmp_path: Path) -> None:
    """What is behind it is found, though nothing says any more where it begins."""
    rounds = [[(0, real_batch(0)), (7, real_batch(3))], [(7, real_batch(4))], [(3, real_batch(9))]]
    data = content(tmp_path, {7: 3}, rounds)
    ends = [end for _, end in measure(data).rounds]
    starts = [0, *(start - 8 for start, _ in measure(data).rounds)]
    for bit in range(ends[-1] * 8):
        bad = bytearray(data)
        bad[bit // 8] ^= 1 << bit % 8
        hit = sum(start <= bit // 8 for start in starts) - 1  # 0 is the first frame, which is no round
        extent = measure(bytes(bad))
        assert (extent.starts is None) == (hit == 0)
        assert rounds_in(bytes(bad)) == [each for number, each in enumerate(rounds, 1) if number != hit]
        assert [stretch.position for stretch in extent.damaged] == ([starts[hit]] if hit < 3 else [])
        assert (extent.torn_bytes > 0) == (hit == 3)


def test_what_a_client_wrote_is_no_frame(tmp_path: Path) -> None:
    """A torn round holds bytes that look like a whole one. Its head says that it goes on beyond them."""
    inner = encode_frame([(7, real_batch(4))])
    torn = encode_frame([(0, real_batch(0, inner + b"z" * 50))])
    data = content(tmp_path, {}, [[(7, real_batch(3))]])
    end = measure(data).good_bytes
    for size in range(len(torn) - 50 - 23, len(torn) - 1):  # its last byte is zero, as those behind it are
        cut = data[:end] + torn[:size] + bytes(300)
        assert rounds_in(cut) == [[(7, real_batch(3))]]
        assert measure(cut).damaged == []
    hit = bytearray(data[:end] + torn + encode_frame([(3, real_batch(1))]) + bytes(50))
    hit[end + len(torn) - 30] ^= 1
    assert rounds_in(bytes(hit)) == [[(7, real_batch(3))], [(3, real_batch(1))]]


def test_a_hole_of_zeros_does_not_end_a_journal(tmp_path: Path) -> None:
    """A block that the disk has lost, though its sync has ended well."""
    rounds = [[(0, real_batch(number))] for number in range(5)]
    data = content(tmp_path, {}, rounds)
    _, (start, end), *_ = measure(data).rounds
    hole = data[: start - 8] + bytes(end - start + 8) + data[end:]
    assert rounds_in(hole) == [rounds[0], *rounds[2:]]


@pytest.mark.parametrize("sync", ["interval", "none"])
def test_what_was_not_synced_ends_at_its_first_flaw(tmp_path: Path, sync: SyncPolicy) -> None:
    """A later block was written before an earlier one: what was answered first is lost, so what came then must be."""
    file = Journal(LazyDisk(), tmp_path, 5, {0: 3}, sync)
    rounds = [[(0, real_batch(3 + number))] for number in range(5)]
    ends = []
    for batches in rounds:
        file.write(encode_frame(batches))
        ends.append(file.position)
    file.close()
    data = file.path.read_bytes()
    assert measure(data, True) == measure(data)._replace(late=sync)
    hole = data[: ends[0]] + bytes(ends[2] - ends[0]) + data[ends[2] :]
    extent = measure(hole, True)
    assert [[(0, bytes(batch)) for _, batch in batches] for batches in read_rounds(hole, extent)] == rounds[:1]
    assert (extent.starts, extent.damaged, extent.late_rounds) == ({0: 3}, [], 2)
    assert (extent.good_bytes, extent.good_bytes + extent.torn_bytes) == (ends[0], ends[-1])
    assert rounds_in(hole) == [rounds[0], *rounds[3:]], "a later file was begun, before which this one was synced"


@given(st.binary(max_size=200))
def test_any_bytes_have_an_end(data: bytes) -> None:
    extent = measure(data)
    assert 0 <= extent.good_bytes <= extent.good_bytes + extent.torn_bytes <= len(data)


def test_it_is_durable_before_it_is_used(tmp_path: Path) -> None:
    disk = TraceDisk()
    file = Journal(disk, tmp_path, 3, {})
    name = journal_name(3)
    assert disk.trace == [
        ("create", name), ("write", name), ("write", name), ("sync", name), ("sync_folder", tmp_path.name),
    ]  # fmt: skip
    file.close()


def test_one_round_is_one_write(tmp_path: Path) -> None:
    disk = TraceDisk()
    file = Journal(disk, tmp_path, 0, {})
    disk.trace.clear()
    file.write(encode_frame(ROUNDS[0]))
    file.sync()
    file.close()
    assert disk.trace == [("write", journal_name(0)), ("sync", journal_name(0))]


def test_the_file_is_filled_with_zeros_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when one frame is larger than a step."""
    monkeypatch.setattr(journal, "ZEROS", bytes(100))
    large = [(1, b"y" * 250)]
    data = content(tmp_path, {}, [*ROUNDS, large, ROUNDS[0]])
    assert len(data) % 100 == 0
    assert rounds_in(data) == [*ROUNDS, large, ROUNDS[0]]


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "ZEROS", bytes(100))
    disk = TraceDisk()
    disk.most_bytes = 7
    file = Journal(disk, tmp_path, 0, {2: 2})
    file.write(encode_frame(ROUNDS[1]))
    file.close()
    assert rounds_in(file.path.read_bytes()) == [ROUNDS[1]]


def test_a_journal_never_takes_the_place_of_another(tmp_path: Path) -> None:
    Journal(LazyDisk(), tmp_path, 4, {}).close()
    with pytest.raises(FileExistsError):
        Journal(LazyDisk(), tmp_path, 4, {})


def test_a_second_close_does_nothing(tmp_path: Path) -> None:
    file = Journal(LazyDisk(), tmp_path, 0, {})
    file.close()
    file.close()


def test_names_of_journals() -> None:
    assert journal_number(journal_name(12)) == 12
    assert journal_number("12.journal") is None
