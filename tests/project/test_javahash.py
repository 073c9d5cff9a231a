"""Java's hash of a string, and the partitions and buckets that Kafka computes from it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.javahash import (
    CACHED_CHARS_MAX,
    cached_java_hash,
    first_in_hash_map,
    hash_map_index,
    java_hash,
    offsets_partition,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("Aa", 2112),
        ("BB", 2112),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("\N{GRINNING FACE}", 1772899),  # two UTF-16 units
        ("\ud83d", 0xD83D),  # half of it
        ("\uffff", 0xFFFF),
    ],
)
def test_java_hash_of_known_strings(text: str, expected: int) -> None:
    assert java_hash(text) == expected


@given(st.text(), st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]))
def test_java_hash_equals_recurrence(text: str, unit: str) -> None:
    """hash(text + unit) = 31 * hash(text) + unit, in 32 bits with a sign."""
    expected = (31 * java_hash(text) + ord(unit)) % 2**32
    assert java_hash(text + unit) % 2**32 == expected
    assert -(2**31) <= java_hash(text + unit) < 2**31


def test_offsets_partition_of_known_groups() -> None:
    """Math.abs of the smallest int is negative in Java; Kafka maps it to 0."""
    assert offsets_partition("polygenelubricants", 7) == 0
    assert offsets_partition("hello", 50) == 22
    assert offsets_partition("my-group", 50) == 1906497762 % 50
    assert offsets_partition("", 50) == 0


@given(st.text(), st.integers(1, 1000))
def test_offsets_partition_is_in_range(text: str, partitions: int) -> None:
    assert 0 <= offsets_partition(text, partitions) < partitions


def test_hash_map_index_of_known_assignors() -> None:
    names = {"uniform": 1, "sticky": 8, "range": 9, "roundrobin": 10, "cooperative-sticky": 15}
    assert {name: hash_map_index(name) for name in names} == names


def test_first_in_hash_map_of_small_map() -> None:
    names = ["cooperative-sticky", "roundrobin", "range", "sticky", "uniform"]
    assert first_in_hash_map(names, 5) == "uniform"
    assert first_in_hash_map(names[:3], 3) == "range"
    assert first_in_hash_map(["BB", "Aa"], 2) == "BB", "in one bucket the first that came"


def test_first_in_hash_map_of_larger_map() -> None:
    """12 entries fill 16 buckets; the 13th doubles them, and the order changes."""
    names = ["range", "roundrobin"]
    by_size = {entries: first_in_hash_map(names, entries) for entries in (12, 13, 25, 1000)}
    for entries, capacity in ((12, 16), (13, 32), (25, 64), (1000, 2048)):
        assert by_size[entries] == min(names, key=lambda name: hash_map_index(name, capacity)), entries


@pytest.mark.parametrize("length", [255, 256, 257, 511, 512, 513, 32_767])
def test_java_hash_of_long_string_equals_recurrence(length: int) -> None:
    text = "".join(chr(0x20 + number * 7 % 0xD000) for number in range(length))
    value = 0
    for character in text:
        value = (31 * value + ord(character)) % 2**32
    assert java_hash(text) % 2**32 == value


@given(st.text(max_size=CACHED_CHARS_MAX + 8))
def test_a_cached_hash_is_the_same(text: str) -> None:
    assert cached_java_hash(text) == cached_java_hash(text) == java_hash(text)
