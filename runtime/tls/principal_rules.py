"""Rules that make the name of a principal from a distinguished name: Kafka's ``ssl.principal.mapping.rules`` (KIP-371).

``RULE:PATTERN/REPLACEMENT/[LU]`` or ``DEFAULT``, separated by commas. The first rule whose pattern matches the whole
name decides. ``DEFAULT`` takes the name as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ..common.errors import StartError

SETTING: Final = "ssl_principal_mapping_rules"
RULE: Final = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))"
    r"\s*(?:,|$)"
)
REFERENCE: Final = re.compile(r"\\(?P<escaped>.)|\$(?P<number>[0-9]+)", re.DOTALL)
CASES: Final[dict[str, Callable[[str], str]]] = {"L": str.lower, "U": str.upper, "": str}


class NoRuleMatches(Exception):
    """No rule matches the name, so the client is refused, as in Kafka."""


class Rule(NamedTuple):
    """``pattern``: None for DEFAULT. ``case``: "L", "U" or ""."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """The name of the principal; None if the pattern does not match the whole name.

        As in Kafka, each match in the name is replaced then. So a pattern should begin with ``^`` and end with ``$``.
        """
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        return CASES[self.case](self.pattern.sub(self._replacement_of, name))

    def _replacement_of(self, match: re.Match[str]) -> str:
        return REFERENCE.sub(lambda reference: _replaced(match, reference), self.replacement)


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Raises StartError for text that is no rule, and for a pattern that Python's ``re`` does not know."""
    rules, start = [], 0
    stripped = text.strip()
    while start < len(stripped):
        match = RULE.match(stripped, start)
        if match is None:
            raise StartError(
                f"bad {SETTING} '{stripped[start:]}': expected RULE:PATTERN/REPLACEMENT/, RULE:PATTERN/REPLACEMENT/L, "
                "RULE:PATTERN/REPLACEMENT/U or DEFAULT, with commas"
            )
        rules.append(_make_rule(match))
        start = match.end()
    return tuple(rules) or (Rule(),)


def _make_rule(match: re.Match[str]) -> Rule:
    if match["default"]:
        return Rule()
    try:
        return Rule(re.compile(match["pattern"]), match["replacement"], match["case"])
    except re.error as error:
        raise StartError(
            f"bad {SETTING} 'RULE:{match['pattern']}/': {error}; expected a regular expression of Python's"
        ) from error


def apply_rules(rules: Sequence[Rule], name: str) -> str:
    """The name of the principal. Raises NoRuleMatches."""
    for rule in rules:
        if (principal := rule.apply(name)) is not None:
            return principal
    raise NoRuleMatches(f"no rule of {SETTING} matches the name '{name}' of its certificate")


def _replaced(match: re.Match[str], reference: re.Match[str]) -> str:
    """What stands for a reference or an escaped character. ``$12`` with one group is ``$1`` and "2", as in Java."""
    if reference["escaped"] is not None:
        return reference["escaped"]
    digits, groups = reference["number"], match.re.groups
    used = next((end for end in range(len(digits), 0, -1) if int(digits[:end]) <= groups), 0)
    if not used:
        return reference[0]
    return (match[int(digits[:used])] or "") + digits[used:]
