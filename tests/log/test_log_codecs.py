"""Reading of compressed batches that another implementation built, and the errors for invalid ones."""

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
    """A batch of aiokafka's builder. Snappy is framed as in Java, in more than one block."""
    records = importlib.import_module("aiokafka.record.default_records")
    builder = records.DefaultRecordBatchBuilder(
        magic=2, compression_type=codec, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=10_000_000,
    )  # fmt: skip
    for delta, timestamp_ms, key, value in ROWS:
        assert builder.append(delta, timestamp_ms, key, value, []) is not None
    return bytes(builder.build())


@pytest.mark.parametrize("codec", READABLE, ids=CODECS[1:5])
def test_compressed_batch_has_the_same_records_as_uncompressed(codec: int) -> None:
    data = compressed(codec)
    (batch,) = read_batches(data, "file")
    assert batch.attributes & 7 == codec
    assert len(data) < len(compressed(0)) / 2
    assert list(batch.records()) == ROWS


@pytest.mark.parametrize("codec", READABLE, ids=CODECS[1:5])
def test_inflated_batch_is_a_valid_batch(codec: int) -> None:
    """It has the same offsets, times, producer and position, and a correct checksum of its own."""
    (batch,) = read_batches(compressed(codec), "file")
    inflated = inflate(batch._replace(position=77))
    assert inflated[3:4] + inflated[5:8] == batch[3:4] + batch[5:8]
    assert (inflated.attributes, inflated.position, inflated.source) == (0, 77, "file")
    (inflated_batch,) = read_batches(bytes(inflated.data))
    assert list(inflated_batch.records()) == ROWS


def test_inflate_of_uncompressed_batch_returns_it() -> None:
    (batch,) = read_batches(compressed(0))
    assert inflate(batch) is batch


def test_inflate_buffer_returns_all_batches_uncompressed() -> None:
    stored_batches = [compressed(codec) for codec in (0, 1, 0, 4)]
    starts = [sum(map(len, stored_batches[:index])) for index in range(len(stored_batches))]
    data, begin = inflate_buffer(b"".join(stored_batches), starts, "file")
    batches = list(read_batches(data))
    assert [batch.position for batch in batches] == begin
    assert [list(batch.records()) for batch in batches] == [ROWS] * 4


def test_gzip_with_several_members_is_decompressed() -> None:
    import gzip

    first_record, second_record = frame_record(0, 0, b"a", b"1"), frame_record(0, 1, b"b", b"2")
    uncompressed = encode_batch(0, TIME_MS, TIME_MS, [first_record, second_record])
    data = gzip.compress(first_record) + gzip.compress(second_record)
    (batch,) = read_batches(encode_like(uncompressed, 1, data))
    assert [(key, value) for _, _, key, value in batch.records()] == [(b"a", b"1"), (b"b", b"2")]


def encode_like(uncompressed: bytes, codec: int, data: bytes) -> bytes:
    from callboard.runtime.log.format.batch import with_records

    (batch,) = read_batches(uncompressed)
    return with_records(batch, codec, data)


@pytest.mark.parametrize("codec", READABLE, ids=CODECS[1:5])
@pytest.mark.parametrize("damage", [lambda data: b"nonsense", lambda data: data[:-9], lambda data: b""])
def test_invalid_compressed_bytes_are_damage(codec: int, damage: Callable[[bytes], bytes]) -> None:
    """The checksum is correct, so the disk returned the bytes that were written."""
    (batch,) = read_batches(compressed(codec))
    (damaged_batch,) = read_batches(encode_like(compressed(codec), codec, damage(bytes(batch.data[61:]))), "file")
    with pytest.raises(DamagedBatch, match="file: damaged batch at byte 0: "):
        list(damaged_batch.records())


@pytest.mark.parametrize("codec", range(5, 8))
def test_unknown_codec_is_refused_with_its_name(codec: int) -> None:
    uncompressed = compressed(0)
    (batch,) = read_batches(with_attributes(uncompressed, codec), "file")
    with pytest.raises(UnsupportedCompression, match=f"file: batch at byte 0 .* {CODECS[codec]},"):
        next(batch.records())


def test_codec_without_its_package_is_refused_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    really = builtins.__import__

    def import_without_package(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "cramjam":
            raise ImportError(name)
        return really(name, *args, **kwargs)

    (batch,) = read_batches(compressed(4))
    monkeypatch.setattr(builtins, "__import__", import_without_package)
    with pytest.raises(UnsupportedCompression, match=r"pip install 'callboard\[compression\]'"):
        list(batch.records())


def xerial(*blocks: bytes) -> bytes:
    return (
        b"\x82SNAPPY\0" + bytes([0, 0, 0, 1]) * 2 + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)
    )


def bombs(size: int) -> dict[str, tuple[int, bytes]]:
    """``size`` zero bytes, compressed by each codec and in each framing."""
    cramjam, half_data = importlib.import_module("cramjam"), bytes(size // 2)
    snappy_block = bytes(cramjam.snappy.compress_raw(half_data))
    return {
        "gzip": (1, gzip.compress(half_data + half_data)),
        "gzip, two members": (1, gzip.compress(half_data) + gzip.compress(half_data)),
        "snappy": (2, bytes(cramjam.snappy.compress_raw(half_data + half_data))),
        "snappy of Java, two blocks": (2, xerial(snappy_block, snappy_block)),
        "lz4": (3, bytes(cramjam.lz4.compress(half_data + half_data))),
        "zstd": (4, bytes(cramjam.zstd.compress(half_data + half_data))),
    }


@pytest.mark.parametrize("kind", bombs(2))
def test_records_that_inflate_beyond_the_limit_are_damage(kind: str) -> None:
    """A batch of some kilobytes may state gigabytes; only memory up to the limit is allocated."""
    size = 3_000_000
    codec, data = bombs(size)[kind]
    assert codecs._DECOMPRESS[codec](data, size) == bytes(size)
    (batch,) = read_batches(compressed(0))
    (bomb,) = read_batches(with_records(batch, codec, data))
    with pytest.raises(DamagedBatch, match=f"its records are not valid {CODECS[codec]}: "):
        inflate(bomb, size - 1)


def test_snappy_block_that_states_gigabytes_allocates_no_memory() -> None:
    """The length comes first and may be wrong."""
    with pytest.raises(ValueError, match="more than 268435456 bytes"):
        codecs._unsnap(b"\xff\xff\xff\xff\x0f" + b"\0" * 8, codecs.INFLATED_MAX)
