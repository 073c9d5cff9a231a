"""Matches topic names with the regular expressions of consumer groups, by RE2.

Kafka uses RE2J, which has the same syntax. Both take a time that is proportional to the length of a name. Python's own
``re`` is not used, because a client could stop the server by an expression that backtracks. RE2 is the package
``google-re2`` (``pip install 'callboard[regex]'``). It is imported at the first expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any

MAX_PROGRAM_BYTES = 256 * 1024
"""The memory of one compiled expression. It bounds the time to match a name: some 20 ms for one of 249 characters."""

CACHED_REGEXES = 256

RE2J_DESCRIPTIONS: Mapping[str, str] = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "unexpected )": "regexp/syntax: internal error",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "trailing \\": "trailing backslash at end of expression",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}
"""By RE2's. The others are the same in both."""

TOO_LARGE = "it is too long, or repeats too much"
DUPLICATE_NAME = "duplicate capture group name"

_NAMED_GROUPS = re.compile(
    r"""\\Q .*? (?: \\E | \Z)  # quoted text
    | \\ .  # an escaped character
    | \[ \^? \]? (?: \\ . | \[ : \^? [a-z]+ : \] | [^\]\\] )*+ \]  # a class
    | \( \? P? < ([^>]*) >""",
    re.DOTALL | re.VERBOSE,
)
"""In a valid expression. RE2 allows a name twice, RE2J does not."""

_LOOK_BEHINDS = ("invalid perl operator: (?<=", "invalid perl operator: (?<!")  # for RE2J they are named groups


class TopicRegexes:
    """``TopicMatcher`` of the groups of a node."""

    def problem(self, regex: str) -> str | None:
        """Why a regular expression cannot be used, to follow it in a sentence; None if it can be used."""
        try:
            compile_regex(regex)
        except ImportError:
            return "cannot be used: to match topics the coordinator needs the package google-re2 (callboard[regex])."
        except InvalidRegex as error:
            return f"is not a valid regular expression: {error}."
        return None

    def find(self, regexes: Collection[str], names: Collection[str]) -> dict[str, tuple[str, ...]]:
        """By expression, the names that it matches as a whole, sorted. Invalid expressions match nothing.

        It blocks, mostly without holding the interpreter's lock, and may be called in any thread.
        """
        ordered = sorted(names)
        return {regex: _find(regex, ordered) for regex in regexes}


class InvalidRegex(Exception):
    """The text is that of RE2J."""


def _find(regex: str, names: Collection[str]) -> tuple[str, ...]:
    """Records of another coordinator may have expressions that cannot be used here."""
    try:
        match = compile_regex(regex)
    except (ImportError, InvalidRegex):
        return ()
    return tuple(name for name in names if match(name))


@lru_cache(CACHED_REGEXES)
def compile_regex(regex: str) -> Callable[[str], Any]:
    """The result is true for a name that matches. Raises InvalidRegex, or ImportError without the library."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_PROGRAM_BYTES
    try:
        re2.compile(regex, options)
    except re2.error as error:
        raise InvalidRegex(_describe(error.args[0].decode(errors="replace"))) from None
    names = [found[1] for found in _NAMED_GROUPS.finditer(regex) if found[1]]
    if len(set(names)) < len(names):
        raise InvalidRegex(DUPLICATE_NAME)
    regex_set = re2.Set.FullMatchSet(options)  # of one: it matches without captures, at a quarter of the cost
    try:
        regex_set.Add(regex)
        regex_set.Compile()
    except re2.error:
        raise InvalidRegex(TOO_LARGE) from None
    match: Callable[[str], Any] = regex_set.Match
    return match


def _describe(message: str) -> str:
    """RE2J's words for a message of RE2, which is a code and, mostly, the part of the expression that it is about."""
    if message.startswith("pattern too large"):
        return TOO_LARGE
    if message.startswith(_LOOK_BEHINDS):
        return RE2J_DESCRIPTIONS["invalid named capture group"]
    code, _, _ = message.partition(":")
    return RE2J_DESCRIPTIONS.get(code, code)
