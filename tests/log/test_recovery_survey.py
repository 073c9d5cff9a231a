"""Reading after damage: valid batches are found, damage is reported, and garbage does not make it slow."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.format.batch import Batch, encode_batch, frame_record
from callboard.runtime.log.format.errors import Damage
from callboard.runtime.log.reading import search
from callboard.runtime.log.reading.damage_scan import BatchRun, scan_past_damage, scan_runs_past_damage

COUNTS = (1, 3, 1, 2, 4, 1)
"""The numbers of records in the batches of the log under test."""


def batch(offset: int, count: int = 1, value: bytes = b"v" * 30) -> bytes:
    return encode_batch(offset, 1, 1, [frame_record(0, delta, b"k" * 9, value) for delta in range(count)])


def make_batches() -> list[bytes]:
    batches, offset = [], 0
    for count in COUNTS:
        batches.append(batch(offset, count))
        offset += count
    return batches


BATCHES = make_batches()
END_OFFSET = sum(COUNTS)


def survey(
    tmp_path: Path, data: bytes, next_base: int | None = END_OFFSET, base: int = 0
) -> list[tuple[int, int] | Damage]:
    """The result of a survey: the offsets of the valid batches, and the damage."""
    path = tmp_path / "s.log"
    path.write_bytes(data)
    actual = list(scan_past_damage(Disk(), path, base, next_base))
    assert [piece.position for piece in actual] == sorted(piece.position for piece in actual)
    return [(piece.base_offset, piece.last_offset) if isinstance(piece, Batch) else piece for piece in actual]


def offsets_of_batches(actual: list[tuple[int, int] | Damage]) -> list[tuple[int, int]]:
    return [piece for piece in actual if not isinstance(piece, Damage)]


def damage_fields(actual: list[tuple[int, int] | Damage]) -> list[tuple[int, int, int, int | None]]:
    """Position, size, and the offsets before and after."""
    return [(piece[1], piece[2], piece[4], piece[5]) for piece in actual if isinstance(piece, Damage)]


BATCH_OFFSETS = [(0, 0), (1, 3), (4, 4), (5, 6), (7, 10), (11, 11)]


def test_complete_segment_has_no_damage(tmp_path: Path) -> None:
    assert survey(tmp_path, b"".join(BATCHES)) == BATCH_OFFSETS


@pytest.mark.parametrize("mask", [0x01, 0x40, 0x80, 0xFF])
def test_changed_byte_damages_only_its_batch(tmp_path: Path, mask: int) -> None:
    """Any byte, including fields that no checksum covers, and the length, which gives the next batch's position.

    A change of the leader epoch, which is not used, may stay undetected.
    """
    data = b"".join(BATCHES)
    ends = [sum(map(len, BATCHES[: number + 1])) for number in range(len(BATCHES))]
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= mask
        damaged_index = sum(end <= at for end in ends)
        start = ends[damaged_index] - len(BATCHES[damaged_index])
        actual = survey(tmp_path, bytes(damaged))
        if 12 <= at - start < 16:
            assert actual == BATCH_OFFSETS
            continue
        assert offsets_of_batches(actual) == BATCH_OFFSETS[:damaged_index] + BATCH_OFFSETS[damaged_index + 1 :]
        assert damage_fields(actual) == [
            (start, len(BATCHES[damaged_index]), BATCH_OFFSETS[damaged_index][0], BATCH_OFFSETS[damaged_index][1] + 1)
        ]


def test_missing_bytes_are_reported_at_their_position(tmp_path: Path) -> None:
    for number in range(1, len(BATCHES)):
        actual = survey(tmp_path, b"".join(BATCHES[:number] + BATCHES[number + 1 :]))
        assert offsets_of_batches(actual) == BATCH_OFFSETS[:number] + BATCH_OFFSETS[number + 1 :]
    assert damage_fields(survey(tmp_path, b"".join(BATCHES[:-1]))) == [(len(b"".join(BATCHES[:-1])), 0, 11, 12)]


def test_file_truncated_at_any_byte_keeps_complete_batches(tmp_path: Path) -> None:
    data = b"".join(BATCHES)
    for size in range(len(data)):
        actual = survey(tmp_path, data[:size])
        ends = [sum(map(len, BATCHES[: number + 1])) for number in range(len(BATCHES))]
        complete_count = sum(end <= size for end in ends)
        assert offsets_of_batches(actual) == BATCH_OFFSETS[:complete_count]
        start = sum(map(len, BATCHES[:complete_count]))
        assert damage_fields(actual) == [
            (start, size - start, ([*BATCH_OFFSETS, (12, 12)])[complete_count][0], END_OFFSET)
        ]


def has_raised_base_offset(stored_batch: bytes, batch: bytes) -> bool:
    """Whether a batch differs only in what no checksum covers: a larger base offset, and any leader epoch."""
    is_intact = batch[8:12] == stored_batch[8:12] and batch[16:] == stored_batch[16:]
    return is_intact and int.from_bytes(batch[:8], "big", signed=True) > int.from_bytes(stored_batch[:8], "big")


@given(st.lists(st.tuples(st.integers(0, 10**6), st.binary(min_size=1, max_size=90)), max_size=4))
def test_several_damages_never_yield_a_wrong_record(
    tmp_path_factory: pytest.TempPathFactory, overwrites: list[tuple[int, bytes]]
) -> None:
    """Any bytes are overwritten. All records found were written, in order, and all undamaged batches are found.

    This does not hold if two base offsets are raised: ``test_two_raised_base_offsets_skip_batches_below_the_second``.
    """
    data = bytearray(b"".join(BATCHES))
    for at, garbage in overwrites:
        at %= len(data)
        data[at : at + len(garbage)] = garbage[: len(data) - at]
    starts = [sum(map(len, BATCHES[:number])) for number in range(len(BATCHES))]
    batches = [bytes(data[start : start + len(batch)]) for start, batch in zip(starts, BATCHES, strict=True)]
    assume(sum(map(has_raised_base_offset, BATCHES, batches)) < 2)
    actual = survey(tmp_path_factory.mktemp("s"), bytes(data))
    intact = [
        offsets
        for offsets, start, stored_batch in zip(BATCH_OFFSETS, starts, BATCHES, strict=True)
        if data[start : start + len(stored_batch)] == stored_batch
    ]
    assert [offsets for offsets in offsets_of_batches(actual) if offsets in intact] == intact
    assert offsets_of_batches(actual) == sorted(offsets_of_batches(actual))


def test_raised_base_offset_after_a_damaged_length_loses_no_batch_between_them(tmp_path: Path) -> None:
    """The intact batches between the two are a chain of their own, which ends before the raised offset."""
    raised = (10**9).to_bytes(8, "big") + BATCHES[3][8:]
    wrong_length = BATCHES[0][:8] + b"\x01" + BATCHES[0][9:]
    actual = survey(tmp_path, b"".join([wrong_length, *BATCHES[1:3], raised, *BATCHES[4:]]))
    assert offsets_of_batches(actual) == [*BATCH_OFFSETS[1:3], *BATCH_OFFSETS[4:]]
    assert [(first, last) for _, _, first, last in damage_fields(actual)] == [(0, 1), (5, 7)]


def test_two_raised_base_offsets_skip_batches_below_the_second(tmp_path: Path) -> None:
    """No checksum covers base offsets. Two that rise look like a compacted log, so lower ones are damage."""
    first, second = ((10**9 + number).to_bytes(8, "big") + BATCHES[number][8:] for number in (1, 3))
    actual = survey(tmp_path, b"".join([BATCHES[0], first, BATCHES[2], second, *BATCHES[4:]]), None)
    assert offsets_of_batches(actual) == [BATCH_OFFSETS[0], BATCH_OFFSETS[2], *BATCH_OFFSETS[4:]]
    adjacent = b"".join([BATCHES[0], first, (2 * 10**9).to_bytes(8, "big") + BATCHES[2][8:], *BATCHES[3:]])
    assert BATCH_OFFSETS[-1] not in offsets_of_batches(survey(tmp_path, adjacent, None))


def test_raised_base_offset_does_not_discard_later_batches(tmp_path: Path) -> None:
    """No checksum covers the base offset. Kafka's cleaner also leaves gaps, but offsets never decrease."""
    batch_with_raised_offset = (10**9).to_bytes(8, "big") + BATCHES[1][8:]
    actual = survey(tmp_path, b"".join([BATCHES[0], batch_with_raised_offset, *BATCHES[2:]]), None)
    assert offsets_of_batches(actual) == [BATCH_OFFSETS[0], *BATCH_OFFSETS[2:]]
    assert damage_fields(actual) == [(len(BATCHES[0]), len(batch_with_raised_offset), 1, 4)]


def test_offset_gaps_of_a_compacted_log_are_not_damage(tmp_path: Path) -> None:
    data = batch(5) + batch(9, 2) + batch(50) + batch(10**12)
    assert survey(tmp_path, data, None) == [(5, 5), (9, 10), (50, 50), (10**12, 10**12)]
    assert survey(tmp_path, data, 10**13) == [(5, 5), (9, 10), (50, 50), (10**12, 10**12)]


def test_damage_in_a_compacted_log_loses_only_its_batch(tmp_path: Path) -> None:
    data = bytearray(batch(5) + batch(9, 2) + batch(50) + batch(10**12) + batch(10**12 + 5))
    data[len(batch(5)) + 40] ^= 1
    actual = survey(tmp_path, bytes(data), None)
    assert offsets_of_batches(actual) == [(5, 5), (50, 50), (10**12, 10**12), (10**12 + 5, 10**12 + 5)]


def test_batch_in_bytes_of_a_client_is_not_read(tmp_path: Path) -> None:
    """A value within a damaged batch resembles a batch. The damaged batch's length is intact."""
    client_batch = batch(1)
    damaged_batch = bytearray(batch(0, 1, b"x" + client_batch + b"y"))
    damaged_batch[-3] ^= 1
    actual = survey(tmp_path, bytes(damaged_batch) + batch(1) + batch(2), None)
    assert offsets_of_batches(actual) == [(1, 1), (2, 2)]
    assert damage_fields(actual) == [(0, len(damaged_batch), 0, 1)]


@pytest.mark.parametrize("chunk_bytes", [61, 100, 150, 1000])
def test_survey_result_is_independent_of_chunk_size(tmp_path: Path, chunk_bytes: int) -> None:
    path = tmp_path / "s.log"
    data = bytearray(b"".join([*BATCHES, batch(12, 1, b"large" * 100), batch(13)]))
    data[150] ^= 1
    path.write_bytes(data)
    expected = list(scan_past_damage(Disk(), path))
    actual = list(scan_runs_past_damage(Disk(), path, chunk_bytes=chunk_bytes))
    flat: list[Batch | Damage] = []
    for piece in actual:
        if isinstance(piece, BatchRun):
            assert piece.data == data[piece.position : piece.position + len(piece.data)]
            assert sum(stored_batch.size for stored_batch in piece.batches) == len(piece.data)
            flat += piece.batches
        else:
            flat.append(piece)
    assert flat == expected


def test_survey_of_any_range_equals_that_part(tmp_path: Path) -> None:
    path = tmp_path / "s.log"
    path.write_bytes(b"".join(BATCHES))
    position, size = len(BATCHES[0]), sum(map(len, BATCHES[:3]))
    actual = list(scan_past_damage(Disk(), path, 1, position=position, size=size))
    assert [piece.base_offset for piece in actual if isinstance(piece, Batch)] == [1, 4]
    assert len(actual) == 2


def repeated_headers(count: int) -> bytes:
    """Many repeated headers of large batches."""
    return (batch(0)[:8] + (500_000).to_bytes(4, "big") + batch(0)[12:61]) * count


class _CountingDisk(Disk):
    read_bytes = 0

    def read(self, fd: int, size: int, position: int) -> bytes:
        data = super().read(fd, size, position)
        self.read_bytes += len(data)
        return data


@pytest.mark.parametrize("garbage", [b"\2", b"\2\0\0\0\0\0", b"\0\0\0\2", bytes(range(256)), b"\2....\0"])
def test_search_in_garbage_with_many_magics_is_linear(tmp_path: Path, garbage: bytes) -> None:
    """The test counts the bytes that are read."""
    path = tmp_path / "s.log"
    read_bytes = []
    for size in (6_000, 12_000):
        path.write_bytes((garbage * size)[:size] + batch(7))
        disk = _CountingDisk()
        actual = list(scan_past_damage(disk, path))
        assert [piece.base_offset for piece in actual if isinstance(piece, Batch)] == [7]
        read_bytes.append(disk.read_bytes)
    assert read_bytes[1] < 2.2 * read_bytes[0]


def test_too_expensive_search_is_given_up_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The damage is marked as uncertain, so that it is not cut."""
    monkeypatch.setattr(search, "SEARCH_COST_MIN_BYTES", 10**6)
    monkeypatch.setattr(search, "SEARCH_COST_FACTOR", 1)
    path = tmp_path / "s.log"
    path.write_bytes(repeated_headers(1000) + bytes(600_000))
    [damage] = scan_past_damage(Disk(), path)
    assert isinstance(damage, Damage)
    assert not damage.is_certain
    assert "given up" in damage.reason
    assert (damage.position, damage.size) == (0, path.stat().st_size)


class _BadDisk(Disk):
    """A disk that cannot read after a position."""

    def __init__(self, failing_from: int, short: bool) -> None:
        self._bad_from = failing_from
        self._short = short

    def read(self, fd: int, size: int, position: int) -> bytes:
        if position + size > self._bad_from:
            if self._short:
                return super().read(fd, max(0, self._bad_from - position), position)
            raise OSError(5, "Input/output error")
        return super().read(fd, size, position)


@pytest.mark.parametrize("short", [True, False])
def test_read_error_is_raised_and_not_damage(tmp_path: Path, short: bool) -> None:
    """A failing disk may be readable later, so the content is unknown."""
    path = tmp_path / "s.log"
    path.write_bytes(b"".join(BATCHES))
    with pytest.raises(OSError, match=rf"{path}: .* at byte \d+"):
        list(scan_past_damage(_BadDisk(250, short), path, chunk_bytes=200))


# Batches of a client -------------------------------------------------------------------------------------------------

FORGED = b"forged"


def forged(offset: int, count: int = 1) -> bytes:
    return encode_batch(offset, 1, 1, [frame_record(0, delta, b"k", FORGED) for delta in range(count)])


def is_forged(piece: Batch | Damage) -> bool:
    return isinstance(piece, Batch) and any(value == FORGED for *_, value in piece.records())


def scan_data(tmp_path: Path, data: bytes, next_base: int | None = None) -> list[Batch | Damage]:
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
def test_batch_in_a_record_of_a_damaged_batch_with_intact_length_is_not_read(
    tmp_path: Path, inner: bytes, count: int, is_last: bool
) -> None:
    """Any other byte of the outer batch may be damaged; later batches are used."""
    earlier, outer_batch = b"".join(BATCHES[:2]), batch(4, count, inner)
    later = b"" if is_last else batch(4 + count) + batch(5 + count, 3)
    # bytes that no checksum covers; for some of them adjacent batches show the damage
    unchecked_positions = {*range(16)} if is_last else {*range(8, 12)}
    for at in {*range(len(outer_batch))} - unchecked_positions:
        damaged = bytearray(earlier + outer_batch + later)
        damaged[len(earlier) + at] ^= 0x11
        actual = scan_data(tmp_path, bytes(damaged))
        assert not any(map(is_forged, actual))
        offsets = [piece.base_offset for piece in actual if isinstance(piece, Batch)]
        assert [offset for offset in offsets if offset != 4] == ([0, 1] if is_last else [0, 1, 4 + count, 5 + count])


@pytest.mark.parametrize("inner", INNER.values(), ids=INNER)
@pytest.mark.parametrize("count", [1, 2])
def test_batch_in_a_record_of_a_batch_without_head_is_not_read(tmp_path: Path, inner: bytes, count: int) -> None:
    """The batch's first page is missing, so its length is unknown."""
    earlier, outer_batch = b"".join(BATCHES[:2]), batch(4, count, inner)
    later = b"".join(batch(offset) for offset in range(4 + count, 20 + count))
    lost_bytes = outer_batch.index(inner)
    actual = scan_data(tmp_path, earlier + bytes(lost_bytes) + outer_batch[lost_bytes:] + later)
    assert not any(map(is_forged, actual))
    assert [piece.base_offset for piece in actual if isinstance(piece, Batch)] == [0, 1, *range(4 + count, 20 + count)]


@pytest.mark.parametrize("inner", INNER.values(), ids=INNER)
@pytest.mark.parametrize("count", [1, 3])
def test_batch_in_a_record_is_not_read_from_a_file_cut_off_at_any_byte(
    tmp_path: Path, inner: bytes, count: int
) -> None:
    """Some cuts are exactly at the end of the inner batch, which then looks like the last one of the log."""
    earlier, outer_batch = b"".join(BATCHES[:2]), batch(4, count, b"before" + inner + b"after")
    for size in range(1, len(outer_batch)):
        *batches, damage = scan_data(tmp_path, earlier + outer_batch[:size])
        assert [piece.base_offset for piece in batches if isinstance(piece, Batch)] == [0, 1], size
        assert isinstance(damage, Damage) and len(batches) == 2
        assert (damage.position, damage.size, damage.is_certain) == (len(earlier), size, True)


@pytest.mark.parametrize("count", [1, 3])
def test_batches_after_one_with_too_large_a_length_are_read(tmp_path: Path, count: int) -> None:
    """Its length says that the file cuts it off, but its records end before the next batch."""
    later = b"".join(batch(offset) for offset in range(4 + count, 8 + count))
    outer_batch = batch(4, count, forged(20))
    for bit in range(31):
        length = int.from_bytes(outer_batch[8:12], "big") | 1 << bit
        damaged = outer_batch[:8] + length.to_bytes(4, "big") + outer_batch[12:]
        if damaged != outer_batch:
            actual = scan_data(tmp_path, b"".join(BATCHES[:2]) + damaged + later)
            offsets = [piece.base_offset for piece in actual if isinstance(piece, Batch)]
            assert [offset for offset in offsets if offset < 20] == [0, 1, *range(4 + count, 8 + count)], bit


def test_valid_batches_between_two_damaged_ones_are_read(tmp_path: Path) -> None:
    """The lengths of the damaged batches are unknown."""
    stored = [
        bytes(len(stored_batch)) if number in (1, 4) else stored_batch for number, stored_batch in enumerate(BATCHES)
    ]
    assert offsets_of_batches(survey(tmp_path, b"".join(stored))) == [
        BATCH_OFFSETS[0],
        BATCH_OFFSETS[2],
        BATCH_OFFSETS[3],
        BATCH_OFFSETS[5],
    ]
