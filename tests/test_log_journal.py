"""The journal file: frames that check out, and an end that is found whatever stands behind it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_helpers import LazyDisk, TraceDisk

from callboard.runtime.log import journal
from callboard.runtime.log.journal import (
    MARK,
    Journal,
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
    "data", [b"", b"\0" * 100, b"\xff" * 100, b"\0\0\0\4\0\0\0\0" + MARK, encode_frame([(0, b"b")])]
)
def test_what_does_not_begin_like_a_journal_was_never_used(data: bytes) -> None:
    """The process died while the file was made; no round was in it yet."""
    extent = measure(data)
    assert (extent.starts, extent.good_bytes) == (None, 0)
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


def test_every_flipped_bit_ends_the_journal_before_its_frame(tmp_path: Path) -> None:
    """And nothing behind it is believed, though it may be whole: offsets would have a hole."""
    data = content(tmp_path)
    extent = measure(data)
    ends = [extent.rounds_at]
    for batches in ROUNDS:
        ends.append(ends[-1] + len(encode_frame(batches)))
    for bit in range(extent.rounds_at * 8, extent.good_bytes * 8):
        bad = bytearray(data)
        bad[bit // 8] ^= 1 << bit % 8
        assert rounds_in(bytes(bad)) == ROUNDS[: sum(end <= bit // 8 for end in ends[1:])]


@given(st.binary(max_size=200))
def test_any_bytes_have_an_end(data: bytes) -> None:
    extent = measure(data)
    assert 0 <= extent.rounds_at <= extent.good_bytes <= len(data)


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
