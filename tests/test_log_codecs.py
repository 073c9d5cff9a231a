"""Compressed batches, made by somebody else's builder, read as what they were; and what is wrong with them, named."""

from __future__ import annotations

import builtins
import gzip
import importlib
from collections.abc import Callable
from typing import Any

import pytest
from log_helpers import with_attributes

from callboard.runtime.log.format import codecs
from callboard.runtime.log.format.batch import (
    encode_batch,
    frame_record,
    inflate,
    inflate_buffer,
    read_batches,
    with_records,
)
from callboard.runtime.log.format.codecs import CODECS
from callboard.runtime.log.format.errors import DamagedBatch, UnsupportedCompression

TIME_MS = 1700000000000
ROWS = [(delta, TIME_MS + delta, b"key %d" % delta, b"value " * delta) for delta in range(300)]
READABLE = range(1, 5)


def compressed(codec: int) -> bytes:
    """What a client of aiokafka's would send. Snappy is framed as Java frames it, in more than one block."""
    records = importlib.import_module("aiokafka.record.default_records")
    builder = records.DefaultRecordBatchBuilder(
        magic=2, compression_type=codec, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=10_000_000,
    )  # fmt: skip
    for delta, timestamp_ms, key, value in ROWS:
        assert builder.append(delta, timestamp_ms, key, value, []) is not None
    return bytes(builder.build())


@pytest.mark.parametrize("codec", READABLE, ids=CODECS[1:5])
def test_a_compressed_batch_is_read_as_what_it_was(codec: int) -> None:
    data = compressed(codec)
    (batch,) = read_batches(data, "file")
    assert batch.attributes & 7 == codec
    assert len(data) < len(compressed(0)) / 2
    assert list(batch.records()) == ROWS


@pytest.mark.parametrize("codec", READABLE, ids=CODECS[1:5])
def test_what_is_inflated_is_a_batch_of_its_own(codec: int) -> None:
    """Same offsets, times and producer; another checksum, which is right; and the place where it really lies."""
    (batch,) = read_batches(compressed(codec), "file")
    inflated = inflate(batch._replace(position=77))
    assert inflated[3:4] + inflated[5:8] == batch[3:4] + batch[5:8]
    assert (inflated.attributes, inflated.position, inflated.source) == (0, 77, "file")
    (again,) = read_batches(bytes(inflated.data))
    assert list(again.records()) == ROWS


def test_a_batch_without_codec_is_itself() -> None:
    (batch,) = read_batches(compressed(0))
    assert inflate(batch) is batch


def test_a_buffer_is_inflated_batch_by_batch() -> None:
    parts = [compressed(codec) for codec in (0, 1, 0, 4)]
    starts = [sum(map(len, parts[:index])) for index in range(len(parts))]
    data, begin = inflate_buffer(b"".join(parts), starts, "file")
    batches = list(read_batches(data))
    assert [batch.position for batch in batches] == begin
    assert [list(batch.records()) for batch in batches] == [ROWS] * 4


def test_several_members_of_gzip_are_one_stream() -> None:
    import gzip

    first, second = frame_record(0, 0, b"a", b"1"), frame_record(0, 1, b"b", b"2")
    plain = encode_batch(0, TIME_MS, TIME_MS, [first, second])
    data = gzip.compress(first) + gzip.compress(second)
    (batch,) = read_batches(encode_like(plain, 1, data))
    assert [(key, value) for _, _, key, value in batch.records()] == [(b"a", b"1"), (b"b", b"2")]


def encode_like(plain: bytes, codec: int, data: bytes) -> bytes:
    from callboard.runtime.log.format.batch import with_records

    (batch,) = read_batches(plain)
    return with_records(batch, codec, data)


@pytest.mark.parametrize("codec", READABLE, ids=CODECS[1:5])
@pytest.mark.parametrize("damage", [lambda data: b"nonsense", lambda data: data[:-9], lambda data: b""])
def test_records_that_their_codec_did_not_make_are_damage(codec: int, damage: Callable[[bytes], bytes]) -> None:
    """The checksum is right: somebody has written it so."""
    (batch,) = read_batches(compressed(codec))
    (broken,) = read_batches(encode_like(compressed(codec), codec, damage(bytes(batch.data[61:]))), "file")
    with pytest.raises(DamagedBatch, match="file: damaged batch at byte 0: "):
        list(broken.records())


@pytest.mark.parametrize("codec", range(5, 8))
def test_a_codec_that_nobody_knows_is_refused_by_name(codec: int) -> None:
    plain = compressed(0)
    (batch,) = read_batches(with_attributes(plain, codec), "file")
    with pytest.raises(UnsupportedCompression, match=f"file: batch at byte 0 .* {CODECS[codec]},"):
        next(batch.records())


def test_without_its_package_a_codec_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    really = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "cramjam":
            raise ImportError(name)
        return really(name, *args, **kwargs)

    (batch,) = read_batches(compressed(4))
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UnsupportedCompression, match=r"pip install 'callboard\[compression\]'"):
        list(batch.records())


def xerial(*blocks: bytes) -> bytes:
    return b"\x82SNAPPY\0" + bytes([0, 0, 0, 1]) * 2 + b"".join(len(one).to_bytes(4, "big") + one for one in blocks)


def bombs(size: int) -> dict[str, tuple[int, bytes]]:
    """So many zero bytes, by each codec and in each framing."""
    cramjam, half = importlib.import_module("cramjam"), bytes(size // 2)
    raw = bytes(cramjam.snappy.compress_raw(half))
    return {
        "gzip": (1, gzip.compress(half + half)),
        "gzip, two members": (1, gzip.compress(half) + gzip.compress(half)),
        "snappy": (2, bytes(cramjam.snappy.compress_raw(half + half))),
        "snappy of Java, two blocks": (2, xerial(raw, raw)),
        "lz4": (3, bytes(cramjam.lz4.compress(half + half))),
        "zstd": (4, bytes(cramjam.zstd.compress(half + half))),
    }


@pytest.mark.parametrize("kind", bombs(2))
def test_records_that_become_too_large_are_damage(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A batch of some kilobytes may claim gigabytes; memory is taken for no more than the limit."""
    size = 3_000_000
    codec, data = bombs(size)[kind]
    monkeypatch.setattr(codecs, "INFLATED_MAX", size)
    assert codecs._DECOMPRESS[codec](data) == bytes(size)
    monkeypatch.setattr(codecs, "INFLATED_MAX", size - 1)
    (batch,) = read_batches(compressed(0))
    (bomb,) = read_batches(with_records(batch, codec, data))
    with pytest.raises(DamagedBatch, match=f"its records are no {CODECS[codec]}: "):
        inflate(bomb)


def test_snappy_that_claims_gigabytes_takes_no_memory() -> None:
    """The length stands first, and nothing behind it needs to be true."""
    with pytest.raises(ValueError, match="more than 268435456 bytes"):
        codecs._unsnap(b"\xff\xff\xff\xff\x0f" + b"\0" * 8)
