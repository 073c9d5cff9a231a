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


def lookup_and_add(table: KnownKeys, requested_keys: Sequence[bytes]) -> list[int]:
    """The keys that are not known; new ones are added, as during loading."""
    data = b"??" + b"".join(requested_keys)
    sizes = np.array([len(key) for key in requested_keys], dtype=np.int64)
    at = 2 + np.cumsum(sizes) - sizes
    actual: list[int] = table.find_unknown(data, at, sizes).tolist()
    return actual


@given(chunks=st.lists(st.lists(keys, min_size=1, max_size=30), max_size=6), bits=st.sampled_from((1, 4, 16)))
def test_known_key_is_never_reported_wrongly(chunks: list[list[bytes]], bits: int) -> None:
    """This includes a table so small that nearly all keys collide."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_keys, "INITIAL_TABLE_BITS", bits)
        table, added = KnownKeys(), set[bytes]()
    for chunk in chunks:
        find_unknown = lookup_and_add(table, chunk)
        assert find_unknown == sorted(set(find_unknown))
        assert all(key in added for index, key in enumerate(chunk) if index not in find_unknown)
        new_keys = {key: index for index, key in enumerate(chunk) if key not in added}
        assert set(new_keys.values()) <= set(find_unknown)
        table.add(sorted(new_keys.values(), reverse=True))
        added |= set(chunk)


def test_added_keys_are_known() -> None:
    """Nearly all added keys are found, also after the table has grown."""
    keys = [b"\0\1\0\x09group-%03d\0\x05topic\0\0\0%c" % (number // 20, number % 20) for number in range(20_000)]
    table = KnownKeys()
    assert len(lookup_and_add(table, keys)) == len(keys)
    table.add(range(len(keys)))
    assert len(lookup_and_add(table, keys)) < len(keys) / 10
    assert len(lookup_and_add(table, [b"\0\1\0\x09other-" + key[10:] for key in keys])) == len(keys)
