"""Principals: in whose name a request is sent."""

from __future__ import annotations

from typing import Final, NamedTuple


class Principal(NamedTuple):
    """As Kafka's KafkaPrincipal. ``type`` is "User" for all of Kafka's own ways to authenticate.

    ``name``: the name that was authenticated, such as a user or a certificate's distinguished name.
    """

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


USER: Final = "User"

ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""The principal of connections without authentication, as in Kafka."""

IN_PROCESS: Final = Principal(USER, "callboard")
"""The principal of requests from within the coordinator's process, which are not authorized."""
