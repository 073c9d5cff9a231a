"""Reading on behind damage: what is good is found, what is not is named, and garbage cannot make it slow."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.format.batch import Batch, encode_batch, frame_record
from callboard.runtime.log.format.errors import Damage
from callboard.runtime.log.reading import search
from callboard.runtime.log.reading.damage_scan import BatchRun, scan_past_damage, scan_runs_past_damage

COUNTS = (1, 3, 1, 2, 4, 1)
"""How many records the batches of the log have that these tests damage."""


def batch(offset: int, count: int = 1, value: bytes = b"v" * 30) -> bytes:
    return encode_batch(offset, 1, 1, [frame_record(0, delta, b"k" * 9, value) for delta in range(count)])


def whole() -> list[bytes]:
    made, offset = [], 0
    for count in COUNTS:
        made.append(batch(offset, count))
        offset += count
    return made


BATCHES = whole()
END_OFFSET = sum(COUNTS)


def pieces(
    tmp_path: Path, data: bytes, next_base: int | None = END_OFFSET, base: int = 0
) -> list[tuple[int, int] | Damage]:
    """What is found: the offsets of the good batches, and the damages."""
    path = tmp_path / "s.log"
    path.write_bytes(data)
    found = list(scan_past_damage(Disk(), path, base, next_base))
    assert [piece.position for piece in found] == sorted(piece.position for piece in found)
    return [(piece.base_offset, piece.last_offset) if isinstance(piece, Batch) else piece for piece in found]


def good(found: list[tuple[int, int] | Damage]) -> list[tuple[int, int]]:
    return [piece for piece in found if not isinstance(piece, Damage)]


def damages(found: list[tuple[int, int] | Damage]) -> list[tuple[int, int, int, int | None]]:
    """Position, size and the offsets round them."""
    return [(piece[1], piece[2], piece[4], piece[5]) for piece in found if isinstance(piece, Damage)]


ALL = [(0, 0), (1, 3), (4, 4), (5, 6), (7, 10), (11, 11)]


def test_a_whole_segment_has_no_damage(tmp_path: Path) -> None:
    assert pieces(tmp_path, b"".join(BATCHES)) == ALL


@pytest.mark.parametrize("mask", [0x01, 0x40, 0x80, 0xFF])
def test_a_changed_byte_costs_its_batch_and_no_other(tmp_path: Path, mask: int) -> None:
    """Wherever it is: also in the fields that no checksum covers, and in the length, which says where the next begins.

    The leader's epoch is no data, so a change there may stay unnoticed.
    """
    data = b"".join(BATCHES)
    ends = [sum(map(len, BATCHES[: number + 1])) for number in range(len(BATCHES))]
    for at in range(len(data)):
        bad = bytearray(data)
        bad[at] ^= mask
        hit = sum(end <= at for end in ends)
        start = ends[hit] - len(BATCHES[hit])
        found = pieces(tmp_path, bytes(bad))
        if 12 <= at - start < 16:
            assert found == ALL
            continue
        assert good(found) == ALL[:hit] + ALL[hit + 1 :]
        assert damages(found) == [(start, len(BATCHES[hit]), ALL[hit][0], ALL[hit][1] + 1)]


def test_a_missing_stretch_is_named_where_it_was(tmp_path: Path) -> None:
    for number in range(1, len(BATCHES)):
        found = pieces(tmp_path, b"".join(BATCHES[:number] + BATCHES[number + 1 :]))
        assert good(found) == ALL[:number] + ALL[number + 1 :]
    assert damages(pieces(tmp_path, b"".join(BATCHES[:-1]))) == [(len(b"".join(BATCHES[:-1])), 0, 11, 12)]


def test_a_file_that_is_cut_anywhere_keeps_what_is_whole(tmp_path: Path) -> None:
    data = b"".join(BATCHES)
    for size in range(len(data)):
        found = pieces(tmp_path, data[:size])
        ends = [sum(map(len, BATCHES[: number + 1])) for number in range(len(BATCHES))]
        kept = sum(end <= size for end in ends)
        assert good(found) == ALL[:kept]
        start = sum(map(len, BATCHES[:kept]))
        assert damages(found) == [(start, size - start, ([*ALL, (12, 12)])[kept][0], END_OFFSET)]


@given(st.lists(st.tuples(st.integers(0, 10**6), st.binary(min_size=1, max_size=90)), max_size=4))
def test_several_damages_never_invent_a_record(
    tmp_path_factory: pytest.TempPathFactory, hits: list[tuple[int, bytes]]
) -> None:
    """Bytes are overwritten at will. What is found was written, in order, and every batch that was not hit is found."""
    data = bytearray(b"".join(BATCHES))
    for at, garbage in hits:
        at %= len(data)
        data[at : at + len(garbage)] = garbage[: len(data) - at]
    found = pieces(tmp_path_factory.mktemp("s"), bytes(data))
    starts = [sum(map(len, BATCHES[:number])) for number in range(len(BATCHES))]
    untouched = [
        offsets
        for offsets, start, each in zip(ALL, starts, BATCHES, strict=True)
        if data[start : start + len(each)] == each
    ]
    assert [offsets for offsets in good(found) if offsets in untouched] == untouched
    assert good(found) == sorted(good(found))


def test_a_base_offset_that_was_raised_does_not_condemn_what_follows(tmp_path: Path) -> None:
    """No checksum covers it. Kafka's cleaner leaves jumps too, but never back."""
    raised = (10**9).to_bytes(8, "big") + BATCHES[1][8:]
    found = pieces(tmp_path, b"".join([BATCHES[0], raised, *BATCHES[2:]]), None)
    assert good(found) == [ALL[0], *ALL[2:]]
    assert damages(found) == [(len(BATCHES[0]), len(raised), 1, 4)]


def test_jumps_of_a_compacted_log_are_no_damage(tmp_path: Path) -> None:
    data = batch(5) + batch(9, 2) + batch(50) + batch(10**12)
    assert pieces(tmp_path, data, None) == [(5, 5), (9, 10), (50, 50), (10**12, 10**12)]
    assert pieces(tmp_path, data, 10**13) == [(5, 5), (9, 10), (50, 50), (10**12, 10**12)]


def test_damage_in_a_compacted_log_costs_its_batch_alone(tmp_path: Path) -> None:
    data = bytearray(batch(5) + batch(9, 2) + batch(50) + batch(10**12) + batch(10**12 + 5))
    data[len(batch(5)) + 40] ^= 1
    found = pieces(tmp_path, bytes(data), None)
    assert good(found) == [(5, 5), (50, 50), (10**12, 10**12), (10**12 + 5, 10**12 + 5)]


def test_what_a_client_wrote_is_no_batch(tmp_path: Path) -> None:
    """A value that looks like a batch, in a batch that is damaged but still knows its length."""
    inner = batch(1)
    outer = bytearray(batch(0, 1, b"x" + inner + b"y"))
    outer[-3] ^= 1
    found = pieces(tmp_path, bytes(outer) + batch(1) + batch(2), None)
    assert good(found) == [(1, 1), (2, 2)]
    assert damages(found) == [(0, len(outer), 0, 1)]


@pytest.mark.parametrize("chunk_bytes", [61, 100, 150, 1000])
def test_chunks_make_no_difference(tmp_path: Path, chunk_bytes: int) -> None:
    path = tmp_path / "s.log"
    data = bytearray(b"".join([*BATCHES, batch(12, 1, b"large" * 100), batch(13)]))
    data[150] ^= 1
    path.write_bytes(data)
    expected = list(scan_past_damage(Disk(), path))
    found = list(scan_runs_past_damage(Disk(), path, chunk_bytes=chunk_bytes))
    flat: list[Batch | Damage] = []
    for piece in found:
        if isinstance(piece, BatchRun):
            assert piece.data == data[piece.position : piece.position + len(piece.data)]
            assert sum(each.size for each in piece.batches) == len(piece.data)
            flat += piece.batches
        else:
            flat.append(piece)
    assert flat == expected


def test_reading_may_begin_and_end_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "s.log"
    path.write_bytes(b"".join(BATCHES))
    position, size = len(BATCHES[0]), sum(map(len, BATCHES[:3]))
    found = list(scan_past_damage(Disk(), path, 1, position=position, size=size))
    assert [piece.base_offset for piece in found if isinstance(piece, Batch)] == [1, 4]
    assert len(found) == 2


def heads(count: int) -> bytes:
    """What looks like the head of a large batch, again and again."""
    return (batch(0)[:8] + (500_000).to_bytes(4, "big") + batch(0)[12:61]) * count


class _CountingDisk(Disk):
    read_bytes = 0

    def read(self, fd: int, size: int, position: int) -> bytes:
        data = super().read(fd, size, position)
        self.read_bytes += len(data)
        return data


@pytest.mark.parametrize("garbage", [b"\2", b"\2\0\0\0\0\0", b"\0\0\0\2", bytes(range(256)), b"\2....\0"])
def test_garbage_full_of_magic_is_searched_in_linear_time(tmp_path: Path, garbage: bytes) -> None:
    """Counted in bytes that are read, which is what would explode."""
    path = tmp_path / "s.log"
    read_bytes = []
    for size in (6_000, 12_000):
        path.write_bytes((garbage * size)[:size] + batch(7))
        disk = _CountingDisk()
        found = list(scan_past_damage(disk, path))
        assert [piece.base_offset for piece in found if isinstance(piece, Batch)] == [7]
        read_bytes.append(disk.read_bytes)
    assert read_bytes[1] < 2.2 * read_bytes[0]


def test_a_search_that_costs_too_much_is_given_up_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says "not known", and whoever asked cuts nothing then."""
    monkeypatch.setattr(search, "SEARCH_COST_MIN_BYTES", 10**6)
    monkeypatch.setattr(search, "SEARCH_COST_FACTOR", 1)
    path = tmp_path / "s.log"
    path.write_bytes(heads(1000) + bytes(600_000))
    [damage] = scan_past_damage(Disk(), path)
    assert isinstance(damage, Damage)
    assert not damage.is_certain
    assert "given up" in damage.reason
    assert (damage.position, damage.size) == (0, path.stat().st_size)


class _BadDisk(Disk):
    """Cannot read behind a place."""

    def __init__(self, bad_from: int, short: bool) -> None:
        self._bad_from = bad_from
        self._short = short

    def read(self, fd: int, size: int, position: int) -> bytes:
        if position + size > self._bad_from:
            if self._short:
                return super().read(fd, max(0, self._bad_from - position), position)
            raise OSError(5, "Input/output error")
        return super().read(fd, size, position)


@pytest.mark.parametrize("short", [True, False])
def test_what_cannot_be_read_is_named_and_is_not_damage(tmp_path: Path, short: bool) -> None:
    """A disk that fails now may be read tomorrow; nothing is known about the bytes."""
    path = tmp_path / "s.log"
    path.write_bytes(b"".join(BATCHES))
    with pytest.raises(OSError, match=rf"{path}: .* at byte \d+"):
        list(scan_past_damage(_BadDisk(250, short), path, chunk_bytes=200))


# Batches of a client --------------------------------------------------------------------------------------------------

FORGED = b"forged"


def forged(offset: int, count: int = 1) -> bytes:
    return encode_batch(offset, 1, 1, [frame_record(0, delta, b"k", FORGED) for delta in range(count)])


def is_forged(piece: Batch | Damage) -> bool:
    return isinstance(piece, Batch) and any(value == FORGED for *_, value in piece.records())


def found_in(tmp_path: Path, data: bytes, next_base: int | None = None) -> list[Batch | Damage]:
    path = tmp_path / "s.log"
    path.write_bytes(data)
    return list(scan_past_damage(Disk(), path, 0, next_base))


INNER = {
    "the offset of the outer batch": forged(4),
    "the offset that follows": forged(5),
    "several": forged(4) + forged(5) + forged(6),
    "several from the offset that follows on": forged(5) + forged(6),
    "more offsets than the outer batch has": forged(5, 40),
    "a later offset": forged(9),
}


@pytest.mark.parametrize("inner", INNER.values(), ids=INNER)
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("is_last", [False, True])
def test_batch_within_a_record_of_a_damaged_batch_whose_length_is_intact_is_no_batch(
    tmp_path: Path, inner: bytes, count: int, is_last: bool
) -> None:
    """Whichever other byte of the outer batch is wrong; what lies behind it counts."""
    before, outer = b"".join(BATCHES[:2]), batch(4, count, inner)
    after = b"" if is_last else batch(4 + count) + batch(5 + count, 3)
    unchecked = {*range(16)} if is_last else {*range(8, 12)}  # by a checksum; the neighbours tell, if there are any
    for at in {*range(len(outer))} - unchecked:
        hit = bytearray(before + outer + after)
        hit[len(before) + at] ^= 0x11
        found = found_in(tmp_path, bytes(hit))
        assert not any(map(is_forged, found))
        offsets = [piece.base_offset for piece in found if isinstance(piece, Batch)]
        assert [offset for offset in offsets if offset != 4] == ([0, 1] if is_last else [0, 1, 4 + count, 5 + count])


@pytest.mark.parametrize("inner", INNER.values(), ids=INNER)
@pytest.mark.parametrize("count", [1, 2])
def test_batch_within_a_record_of_a_batch_without_its_head_is_no_batch(
    tmp_path: Path, inner: bytes, count: int
) -> None:
    """Its first page is missing; so nothing says how long it was."""
    before, outer = b"".join(BATCHES[:2]), batch(4, count, inner)
    after = b"".join(batch(offset) for offset in range(4 + count, 20 + count))
    lost = outer.index(inner)
    found = found_in(tmp_path, before + bytes(lost) + outer[lost:] + after)
    assert not any(map(is_forged, found))
    assert [piece.base_offset for piece in found if isinstance(piece, Batch)] == [0, 1, *range(4 + count, 20 + count)]


def test_good_batches_between_two_damaged_ones_count(tmp_path: Path) -> None:
    """Though nothing says how long the damaged ones were."""
    lost = [bytes(len(each)) if number in (1, 4) else each for number, each in enumerate(BATCHES)]
    assert good(pieces(tmp_path, b"".join(lost))) == [ALL[0], ALL[2], ALL[3], ALL[5]]
