"""Grants: what a client was allowed on its connection, so that its frequent requests are not decided again."""

from __future__ import annotations

from typing import Final

from ...security.resources import Operation, ResourceType

GRANTS_MAX: Final = 1000
"""So many are remembered for one connection. Then it begins anew."""

NAME_CHARS_MAX: Final = 255
"""A right to a resource with a longer name is not remembered: the name of a group may have 32,767 bytes."""

Grant = tuple[Operation, ResourceType, str]
"""An operation on the resource with a name, which was allowed without any other right of the client."""


class Grants:
    """What was allowed while the authorizer's rules had this version. Denials are not remembered."""

    __slots__ = ("allowed", "version")

    def __init__(self, version: int) -> None:
        self.version = version
        self.allowed: set[Grant] = set()
