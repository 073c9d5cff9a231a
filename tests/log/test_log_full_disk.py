"""A real file system without room: a server on a tmpfs of a few MiB that the test fills.

Mounting needs a privilege, or a user namespace with it. Without both the test is skipped; ``test_log_failures.py``
tests the same with a disk in memory.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from peers.peer import client_environment
from project_paths import TESTS_FOLDER

SIZE = "4m"
TIMEOUT_S = 240
MOUNT = f'mount -t tmpfs -o size={SIZE} tmpfs "$0"'


def in_namespace(folder: Path, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a shell command in its own mount namespace, where a tmpfs is mounted on the folder ``$0``."""
    return subprocess.run(
        ["unshare", "-Urm", "sh", "-c", command, str(folder), *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=client_environment(),
        check=False,
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    if shutil.which("unshare") is None:
        pytest.skip("this machine has no `unshare`, so no small disk can be mounted")
    mount_attempt = in_namespace(tmp_path, MOUNT)
    if mount_attempt.returncode:
        pytest.skip(f"mounting a small disk is not permitted: {mount_attempt.stderr.strip()}")
    return tmp_path


def test_server_on_full_disk_refuses_commits_and_resumes(small_disk: Path) -> None:
    command = f'{MOUNT} && exec "$@"'
    program = TESTS_FOLDER.joinpath("full_disk_program.py")
    process = in_namespace(small_disk, command, sys.executable, str(program), str(small_disk))
    assert process.returncode == 0, f"{process.stdout}\n{process.stderr}"
    result: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    assert (result["before"], result["full"], result["heartbeat"]) == ("NONE", "COORDINATOR_NOT_AVAILABLE", "NONE")
    assert result["read"] and result["after_kill"]
    assert result["exit_code"] == 0
    assert "the log has room again" in result["log"][-1]
    assert result["start"] == {"read": True, "full": "COORDINATOR_NOT_AVAILABLE", "exit_code": 0}
