"""Coordinator(security=..., users=...): clients of the listener authenticate, members in the program need not."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest
from harness import async_test

from callboard import Coordinator
from callboard.runtime.client.connection import Connection, LoginRefused, connect_to
from callboard.runtime.client.security import load_security
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk
from callboard.runtime.embed.listener_security import with_users
from callboard.runtime.node.environment import Environment
from callboard.runtime.security.credentials import ScramMechanism
from callboard.runtime.security.document import USERS
from callboard.runtime.security.store import FILE_NAME
from callboard.runtime.settings.address import Address

SCRAM = {"security.protocol": "SASL_PLAINTEXT", "sasl.enabled.mechanisms": "SCRAM-SHA-512"}
USERS_GIVEN = {"alice": "hunter2"}


async def connect(bootstrap: str, password: str = "hunter2") -> Connection:
    host, _, port = bootstrap.rpartition(":")
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.username": "alice", "sasl.password": password}
    return await connect_to(Address(host, int(port)), "c", load_security(login, {}))


@async_test
async def test_clients_authenticate_and_members_in_the_program_need_not() -> None:
    async with Coordinator(listen="127.0.0.1:0", security=SCRAM, users=USERS_GIVEN) as coordinator:
        connection = await connect(coordinator.bootstrap)
        found = await connection.ask("find_coordinator", {"key": "g", "key_type": 0})
        assert f"{found.host}:{found.port}" == coordinator.bootstrap
        connection.close()
        with pytest.raises(LoginRefused):
            await connect(coordinator.bootstrap, "wrong")
        async with coordinator.member("g", resources={"jobs": 1}) as member:
            async for assignment in member.assignments():
                if assignment.shards:
                    break


@async_test
async def test_password_is_stored_once_and_changes_with_the_argument(tmp_path: Path) -> None:
    stored = []
    for password in ("hunter2", "hunter2", "hunter3"):
        users = {"alice": password}
        async with Coordinator(tmp_path, "127.0.0.1:0", security=SCRAM, users=users) as coordinator:
            (await connect(coordinator.bootstrap, password)).close()
            stored.append(coordinator.node.services.security.get(USERS))
    assert stored[0] == stored[1] != stored[2]
    assert "hunter" not in (tmp_path / FILE_NAME).read_text()


def test_in_a_thread() -> None:
    with Coordinator.in_thread(listen="127.0.0.1:0", security=SCRAM, users=USERS_GIVEN) as coordinator:

        async def log_in() -> None:
            (await connect(coordinator.bootstrap)).close()

        asyncio.run(log_in())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"security": "SSL"}, "bad security 'SSL': expected settings by name"),
        ({"security": {"security.protocol": "X"}}, "bad security.protocol 'X': expected one of PLAINTEXT, SSL"),
        ({"security": {"sasl.enabled.mechanisms": "PLAIN"}}, "is given, but no listener has SASL"),
        (
            {"security": {**SCRAM, "group_max_size": 1}},
            "security has 'group_max_size', which is no setting of a listener",
        ),
        ({"security": {**SCRAM, "sasl.x": "1"}}, "unknown setting 'sasl.x'"),
        ({"users": ["alice"]}, "bad users: expected passwords by name"),
        ({"users": {"alice": ""}}, "bad user 'alice': expected a name and a password"),
        ({"security": [("sasl.password", "x")]}, "bad security of type list: expected settings by name"),
        ({"security": {1: "x"}}, "bad name 1 of a setting in security: expected a text"),
        ({"users": {"ålice": "x"}}, "bad user 'ålice': expected printable ASCII characters"),
        ({"users": {"": "x"}}, "bad user '': expected a name and a password"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(StartError, match=text):
        Coordinator(listen="127.0.0.1:0", **arguments)


@pytest.mark.parametrize(
    ("security", "text"),
    [
        ({**SCRAM, "sasl.enabled.mechanisms": "PLAIN"}, "has the mechanism PLAIN without TLS"),
        ({**SCRAM, "sasl.enabled.mechanisms": "GSSAPI"}, "bad value 'GSSAPI' for setting 'sasl_enabled_mechanisms'"),
        ({**SCRAM, "sasl.enabled.mechanisms": ","}, "expected one or more of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({**SCRAM, "connections.max.reauth.ms": "-1"}, "expected a whole number from 0 to"),
    ],
)
@async_test
async def test_settings_that_cannot_work_are_refused_at_the_start(security: dict[str, str], text: str) -> None:
    with pytest.raises(StartError, match=text):
        await Coordinator(listen="127.0.0.1:0", security=security).start()


@async_test
async def test_coordinator_does_not_start_if_its_users_cannot_be_stored(tmp_path: Path) -> None:
    class ReadOnly(Disk):
        def open(self, path: Path, flags: int) -> int:
            if path.name.startswith(FILE_NAME) and path.name != FILE_NAME:
                raise OSError(errno.EROFS, "read-only")
            return super().open(path, flags)

    coordinator = Coordinator(
        tmp_path, "127.0.0.1:0", security=SCRAM, users=USERS_GIVEN, environment=Environment(disk=ReadOnly())
    )
    with pytest.raises(OSError, match="read-only"):
        await coordinator.start()
    assert not coordinator.health().is_ready


def test_each_step_hashes_one_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hash takes milliseconds, and the program has other work on its event loop."""
    hashed = 0
    salted_password = ScramMechanism.salted_password

    def count_and_hash(*arguments: Any) -> bytes:
        nonlocal hashed
        hashed += 1
        return salted_password(*arguments)

    monkeypatch.setattr(ScramMechanism, "salted_password", count_and_hash)
    steps = with_users({"alice": "hunter2", "bob": "hunter3"}, {})
    assert [hashed for _ in steps] == [1, 2, 3, 4]
