"""Bulk lookup of keys: "known" is always correct, "unknown" may be wrong."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

np = pytest.importorskip("numpy")

from callboard.runtime.log.reading import known_keys  # noqa: E402
from callboard.runtime.log.reading.known_keys import KnownKeys  # noqa: E402

keys = st.binary(max_size=20) | st.binary(min_size=90, max_size=110) | st.sampled_from((b"same-beginning-1", b"same-b"))


def ask(known: KnownKeys, asked: Sequence[bytes]) -> list[int]:
    """The keys that are not known; new ones are added, as during loading."""
    data = b"??" + b"".join(asked)
    sizes = np.array([len(key) for key in asked], dtype=np.int64)
    at = 2 + np.cumsum(sizes) - sizes
    actual: list[int] = known.find_unknown(data, at, sizes).tolist()
    return actual


@given(chunks=st.lists(st.lists(keys, min_size=1, max_size=30), max_size=6), bits=st.sampled_from((1, 4, 16)))
def test_known_key_is_never_reported_wrongly(chunks: list[list[bytes]], bits: int) -> None:
    """This includes a table so small that nearly all keys collide."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_keys, "INITIAL_TABLE_BITS", bits)
        known, seen = KnownKeys(), set[bytes]()
    for chunk in chunks:
        find_unknown = ask(known, chunk)
        assert find_unknown == sorted(set(find_unknown))
        assert all(key in seen for index, key in enumerate(chunk) if index not in find_unknown)
        new = {key: index for index, key in enumerate(chunk) if key not in seen}
        assert set(new.values()) <= set(find_unknown)
        known.add(sorted(new.values(), reverse=True))
        seen |= set(chunk)


def test_added_keys_are_known() -> None:
    """Nearly all of them, and the table grows."""
    keys = [b"\0\1\0\x09group-%03d\0\x05topic\0\0\0%c" % (n // 20, n % 20) for n in range(20_000)]
    known = KnownKeys()
    assert len(ask(known, keys)) == len(keys)
    known.add(range(len(keys)))
    assert len(ask(known, keys)) < len(keys) / 10
    assert len(ask(known, [b"\0\1\0\x09other-" + key[10:] for key in keys])) == len(keys)
