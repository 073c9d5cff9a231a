"""Frames are the same however their bytes are split, and sizes out of range are refused."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.runtime.kafka.connections.framing import HEADER_BYTES, MIN_FRAME_BYTES, BadRequest, FrameSplitter

MAX_BYTES = 60
HEADER = struct.Struct(">hhih")

Parsed = tuple[int, int, bytes, bytes]  # route key, correlation id, client id, body


def frame(key: int, version: int, correlation_id: int, client_id: bytes | None, body: bytes) -> bytes:
    id_length = -1 if client_id is None else len(client_id)
    rest = HEADER.pack(key, version, correlation_id, id_length) + (client_id or b"") + body
    return len(rest).to_bytes(4, "big") + rest


def feed(splitter: FrameSplitter, *pieces: bytes) -> tuple[list[Parsed], str]:
    """The frames in the pieces, and the error at their end."""
    parsed: list[Parsed] = []
    try:
        for piece in pieces:
            for data, route_key, correlation_id, start, body_start, end in splitter.feed(piece, MAX_BYTES):
                client_id, body = data[start + HEADER_BYTES : body_start], data[body_start:end]
                assert int.from_bytes(data[start : start + 4], "big") == end - start - 4
                parsed.append((route_key, correlation_id, client_id, body))
    except BadRequest as error:
        return parsed, str(error)
    return parsed, ""


def split(stream: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({0, *(cut % (len(stream) + 1) for cut in cuts), len(stream)})
    return [stream[start:end] for start, end in pairwise(ends)]


FRAMES = st.builds(
    frame,
    st.integers(0, 100),
    st.integers(0, 20),
    st.integers(-(2**31), 2**31 - 1),
    st.none() | st.binary(max_size=20),
    st.binary(max_size=MAX_BYTES - MIN_FRAME_BYTES - 20),
)
TAILS = st.sampled_from(
    [
        b"",
        b"\0",
        b"\0\0\0",
        struct.pack(">i", MAX_BYTES) + bytes(MAX_BYTES - 1),
        struct.pack(">i", MAX_BYTES + 1) + bytes(MAX_BYTES + 1),
        struct.pack(">i", MIN_FRAME_BYTES - 1) + bytes(30),
        struct.pack(">i", -1),
    ]
)


@given(st.lists(FRAMES, max_size=6), TAILS, st.lists(st.integers(0, 10_000), max_size=12))
def test_any_split_of_stream_gives_same_frames_and_error(frames: list[bytes], tail: bytes, cuts: list[int]) -> None:
    stream = b"".join(frames) + tail
    one_by_one = FrameSplitter()
    expected = [parsed for each in frames for parsed in feed(one_by_one, each)[0]]
    assert len(expected) == len(frames)
    whole, pieces = FrameSplitter(), FrameSplitter()
    result = feed(whole, stream)
    assert result[0] == expected
    assert feed(pieces, *split(stream, cuts)) == result
    assert whole.is_in_frame is pieces.is_in_frame is (bool(tail) and not result[1])
    assert feed(FrameSplitter(), *(stream[at : at + 1] for at in range(len(stream)))) == result


@pytest.mark.parametrize("count", [1, 3])
def test_complete_frames_are_not_copied(count: int) -> None:
    stream = frame(12, 4, 7, b"id", b"body") * count
    for data, *_ in FrameSplitter().feed(stream, MAX_BYTES):
        assert data is stream


@pytest.mark.parametrize("client_id", [None, b"", b"wire", "Grüße".encode()])
def test_frame_has_route_key_correlation_id_client_id_and_body(client_id: bytes | None) -> None:
    stream = frame(12, 4, -7, client_id, b"body")
    assert feed(FrameSplitter(), stream) == ([(12 << 16 | 4, -7, client_id or b"", b"body")], "")


def test_client_id_longer_than_frame_has_body_behind_end() -> None:
    stream = (MIN_FRAME_BYTES).to_bytes(4, "big") + HEADER.pack(12, 4, 1, 5)
    [(_, _, _, _, body_start, end)] = FrameSplitter().feed(stream, MAX_BYTES)
    assert body_start == end + 5


@pytest.mark.parametrize("size", [-(2**31), -1, 0, MIN_FRAME_BYTES - 1, MAX_BYTES + 1, 2**31 - 1])
@pytest.mark.parametrize("rest", [0, 5, MAX_BYTES + 1])
def test_size_out_of_range_is_refused_after_earlier_frames(size: int, rest: int) -> None:
    good = frame(18, 0, 1, None, b"")
    frames, error = feed(FrameSplitter(), good + struct.pack(">i", size) + bytes(rest))
    assert len(frames) == 1
    expected = "expected at least 10" if size < MIN_FRAME_BYTES else "expected at most 60 (socket_request_max_bytes)"
    assert error == f"a frame of {size} bytes: {expected}"


@pytest.mark.parametrize("size", [MIN_FRAME_BYTES, MAX_BYTES])
def test_sizes_at_limits_are_frames(size: int) -> None:
    stream = size.to_bytes(4, "big") + HEADER.pack(18, 0, 1, -1) + bytes(size - MIN_FRAME_BYTES)
    assert feed(FrameSplitter(), stream) == ([(18 << 16, 1, b"", bytes(size - MIN_FRAME_BYTES))], "")
