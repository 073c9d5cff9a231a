"""The responses of one connection that are not written yet."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from callboard.runtime.common.shared_bytes import SharedBytes
from callboard.runtime.kafka.connections.output import WRITE_BYTES, Output

PARTS = st.lists(st.binary(max_size=20), max_size=8)


def test_new_output_is_not_blocked() -> None:
    output = Output()
    assert (output.is_blocked, output.unsent_bytes) == (False, 0)


def test_paused_output_counts_the_bytes_of_the_transport() -> None:
    output = Output()
    output.is_paused = True
    output.add(b"abc")
    assert (output.is_blocked, output.unsent_bytes) == (True, WRITE_BYTES + 3)


@given(st.lists(PARTS, max_size=4), st.integers(1, 30))
def test_output_is_taken_in_order_and_at_most_the_maximum_at_once(payloads: list[list[bytes]], max_bytes: int) -> None:
    output = Output()
    for parts in payloads:
        output.add(SharedBytes(parts) if len(parts) % 2 else b"".join(parts))
    expected = b"".join(part for parts in payloads for part in parts)
    taken = []
    while output.waiting_bytes:
        taken.append(output.take(max_bytes))
        assert output.waiting_bytes == len(expected) - sum(map(len, taken))
    assert b"".join(taken) == expected
    assert all(len(data) == max_bytes for data in taken[:-1])


@given(PARTS, st.integers(0, 200))
def test_take_all_returns_the_rest(parts: list[bytes], first_bytes: int) -> None:
    output, whole = Output(), SharedBytes(parts)
    output.add(whole)
    assert output.take(first_bytes) + output.take_all() == bytes(whole) == whole
    assert output.waiting_bytes == 0


def test_shared_bytes_keep_their_parts() -> None:
    part = bytes(1000)
    whole = b"head" + SharedBytes([part, b"x"])
    assert isinstance(whole, SharedBytes)
    assert (len(whole), bytes(whole)) == (1005, b"head" + part + b"x")
    assert whole.parts[1] is part
    assert whole != b"head"
