"""Changes of client quotas, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness import Client
from peers.wire import Plain

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ANONYMOUS: Mapping[str, str | None] = {USER: "ANONYMOUS"}


def alteration(entity: Mapping[str, str | None], **values: float | None) -> Plain:
    names: Plain = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
    operations: Plain = [
        {"key": key, "value": 0.0 if value is None else float(value), "remove": value is None}
        for key, value in values.items()
    ]
    return {"entity": names, "ops": operations}


async def alter(client: Client, *entries: Plain, validate_only: bool = False) -> list[tuple[str, str | None]]:
    answer: Any = await client.ask("alter_client_quotas", entries=list(entries), validate_only=validate_only)
    return [(entry["error_code"], entry["error_message"]) for entry in answer["entries"]]
