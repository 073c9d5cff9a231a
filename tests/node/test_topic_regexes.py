"""Regular expressions of consumer groups. The expected texts and matches are those of RE2J, which Kafka 4.3.1 uses."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any

import pytest

from callboard.runtime.node import topic_regexes
from callboard.runtime.node.topic_regexes import TOO_LARGE, TopicRegexes

INVALID = {
    "missing closing )": ["t(", "(", "(?:", "(?:a"],
    "regexp/syntax: internal error": ["t)", ")"],
    "missing closing ]": ["[a", "[", "[]", "[^]", r"[\]"],
    "invalid character class range": ["[z-a]", "[[:foo:]]", r"\pX", r"\p{Foo}", r"\p", r"\p{IsGreek}"],
    "missing argument to repetition operator": ["*", "+a", "?", "a|*", "(*)"],
    "invalid nested repetition operator": ["a**", "a*+", "a+?+", "a{2}{3}", "x{3}+"],
    "invalid repeat count": ["a{1001}", "a{2,1}", "a{0,1001}", "a{100000}"],
    "invalid escape sequence": [r"\1", r"(a)\1", r"\Z", r"\8", r"\x", r"\xg", r"\x{110000}", r"\u0041", r"[a-\d]"],
    "trailing backslash at end of expression": ["\\", "a\\"],
    "invalid or unsupported Perl syntax": ["(?=a)", "(?!a)", "(?>a)", "(?P=n)", "(?x)a", "(?i", "(?"],
    "invalid named capture": ["(?<=a)", "(?<!a)", "(?P<a"],
    "duplicate capture group name": ["(?P<n>a)(?P<n>b)", "((?<n>a)|[^](?P<m>]x(?P<n>b))", r"\\(?P<n>\Qa\E(?<n>b))"],
}
NAMES = ("a", "b", "ab", "aab", "orders", "orders-eu", "orders-us", "a.b", "A", "1", "")
MATCHES = {
    "orders": "orders",
    "orders.*": "orders orders-eu orders-us",
    "^orders-(eu|us)$": "orders-eu orders-us",
    "(^orders-.*)": "orders-eu orders-us",
    "a": "a",  # the whole name
    "a|b": "a b",
    "a{,2}": "",
    "a*b": "b ab aab",
    "(?i)a": "a A",
    r"a\.b": "a.b",
    r"\Qa.b\E": "a.b",
    "[[:digit:]]": "1",
    r"\pL": "a b A",
    "(?P<n>a)b": "ab",
    "(?P<n>a)(?P<m>b)": "ab",
    r"(?P<n>[(?P<n>ab]+)": "a b ab aab",
    r"(?P<n>\(?P<n>|\Q(?P<n>\E|[[:alpha:](?P<n>]b)": "ab",
    r"\A.\z": "a b A 1",
    "é": "",
}


@pytest.fixture
def regexes() -> Iterator[TopicRegexes]:
    topic_regexes.compile_regex.cache_clear()
    yield TopicRegexes()
    topic_regexes.compile_regex.cache_clear()


@pytest.mark.parametrize(
    ("description", "regex"), [(text, regex) for text, regexes in INVALID.items() for regex in regexes]
)
def test_invalid_expressions_have_kafkas_texts(regexes: TopicRegexes, description: str, regex: str) -> None:
    assert regexes.problem(regex) == f"is not a valid regular expression: {description}."
    assert regexes.find([regex], NAMES) == {regex: ()}


def test_expressions_match_whole_names(regexes: TopicRegexes) -> None:
    assert [regexes.problem(regex) for regex in MATCHES] == [None] * len(MATCHES)
    found = regexes.find(MATCHES, NAMES)
    assert {regex: " ".join(names) for regex, names in found.items()} == {
        regex: " ".join(sorted(text.split())) for regex, text in MATCHES.items()
    }


@pytest.mark.parametrize("regex", ["a" * 100_000, r"\pL{500}", "(.{0,200}){5}x"])
def test_expressions_that_need_much_memory_are_refused(regexes: TopicRegexes, regex: str) -> None:
    assert regexes.problem(regex) == f"is not a valid regular expression: {TOO_LARGE}."


def test_without_the_library(regexes: TopicRegexes, monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without_re2(name: str, *arguments: Any) -> Any:
        if name == "re2":
            raise ImportError("No module named 're2'")
        return original(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without_re2)
    assert regexes.problem("a") == (
        "cannot be used: to match topics the coordinator needs the package google-re2 (callboard[regex])."
    )
    assert regexes.find(["a"], NAMES) == {"a": ()}
