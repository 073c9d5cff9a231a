"""Looking up many keys at once: a yes is always right, a no may be out of caution."""

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
    """Which of the keys are not known; those that are new are learned, as loading does."""
    data = b"??" + b"".join(asked)
    sizes = np.array([len(key) for key in asked], dtype=np.int64)
    at = 2 + np.cumsum(sizes) - sizes
    found: list[int] = known.find_unknown(data, at, sizes).tolist()
    return found


@given(chunks=st.lists(st.lists(keys, min_size=1, max_size=30), max_size=6), bits=st.sampled_from((1, 4, 16)))
def test_a_yes_is_always_right(chunks: list[list[bytes]], bits: int) -> None:
    """Also where the table is so small that nearly all keys want the same place."""
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


def test_what_was_learned_is_known() -> None:
    """Nearly all of it, or it would be of no use; and the table grows with it."""
    made = [b"\0\1\0\x09group-%03d\0\x05topic\0\0\0%c" % (n // 20, n % 20) for n in range(20_000)]
    known = KnownKeys()
    assert len(ask(known, made)) == len(made)
    known.add(range(len(made)))
    assert len(ask(known, made)) < len(made) / 10
    assert len(ask(known, [b"\0\1\0\x09other-" + key[10:] for key in made])) == len(made)
