"""Requests that change users of SCRAM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness import async_test
from sasl_helpers import log_in, running_sasl_node

from callboard.runtime.kafka.api import alter_user_scram_credentials
from callboard.runtime.security.credentials import credential_of


@async_test
async def test_long_salts_and_salted_passwords_are_refused_unhashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hash of a request of 100 MB would hold up all clients."""
    hashed: list[int] = []

    def make_and_note(mechanism: Any, salted_password: bytes, salt: bytes, iterations: int) -> Any:
        hashed.append(max(len(salted_password), len(salt)))
        return credential_of(mechanism, salted_password, salt, iterations)

    monkeypatch.setattr(alter_user_scram_credentials, "credential_of", make_and_note)
    async with running_sasl_node(tmp_path) as harness:
        client = await harness.connect()
        await log_in(client)
        fitting = {
            "name": "bob",
            "mechanism": 1,
            "iterations": 4096,
            "salt": bytes(1024),
            "salted_password": bytes(1024),
        }
        upsertions = [fitting, *({**fitting, "name": name, name: bytes(1025)} for name in ("salt", "salted_password"))]
        answer: Any = await client.ask("alter_user_scram_credentials", 0, deletions=[], upsertions=upsertions)
        text = "The salt and the salted password may have at most 1024 bytes"
        assert [(result["user"], result["error_code"], result["error_message"]) for result in answer["results"]] == [
            ("bob", "NONE", None),
            ("salt", "UNACCEPTABLE_CREDENTIAL", text),
            ("salted_password", "UNACCEPTABLE_CREDENTIAL", text),
        ]
    assert hashed == [1024]
