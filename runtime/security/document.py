"""The stored users, ACLs and quotas as one document. Pure.

A section is a JSON object: a module that reads a section defines its content. Sections that this version does not know
are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

USERS: Final = "users"
ACLS: Final = "acls"
QUOTAS: Final = "quotas"

SECRET_BYTES: Final = 32

Section = Mapping[str, Any]
"""A JSON object. It is never changed in place."""

EMPTY: Final[Section] = {}


class SecurityDocument(NamedTuple):
    """``secret``: what only the servers know; empty before it is needed. ``number``: of the changes so far."""

    secret: bytes = b""
    number: int = 0
    sections: Mapping[str, Section] = {}

    def __repr__(self) -> str:
        return f"SecurityDocument(number={self.number}, sections={sorted(self.sections)})"  # no secrets in log lines

    def section(self, name: str) -> Section:
        return self.sections.get(name, EMPTY)

    def with_section(self, name: str, section: Section) -> SecurityDocument:
        return self._replace(number=self.number + 1, sections={**self.sections, name: section})

    def fields(self) -> dict[str, Any]:
        """The document as a JSON object."""
        return {"number": self.number, "secret": self.secret.hex(), "sections": dict(self.sections)}


def document_of(fields: Mapping[str, Any]) -> SecurityDocument:
    """The opposite of ``fields``. Raises ValueError, KeyError or TypeError if it is damaged."""
    number, sections = fields["number"], fields["sections"]
    if type(number) is not int or number < 0:
        raise ValueError(f"number {number!r}: expected how many changes were made")
    if not isinstance(sections, dict) or not all(isinstance(section, dict) for section in sections.values()):
        raise ValueError("sections: expected objects by name")
    return SecurityDocument(bytes.fromhex(fields["secret"]), number, sections)
