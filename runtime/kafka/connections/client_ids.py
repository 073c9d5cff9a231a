"""Client ids as the log and the audit trail show them."""

from __future__ import annotations

from typing import Final

from ..peer_gate import Purpose

SHOWN_CHARS_MAX: Final = 100
PURPOSES: Final = frozenset(Purpose)


def shown_client_id(client_id: str) -> str:
    """A client id without the proof of a node, and without the end of one that is long: it may have 32,767 bytes."""
    if client_id.partition("/")[0] in PURPOSES:
        client_id = client_id.rpartition("/")[0]
    return client_id if len(client_id) <= SHOWN_CHARS_MAX else f"{client_id[:SHOWN_CHARS_MAX]}..."
