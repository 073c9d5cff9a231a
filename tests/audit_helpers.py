"""The audit trail, for tests."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import DEADLINE_S

from callboard.runtime.disk.group_commit import GroupCommit
from callboard.runtime.security.audit_file import FILE_NAME


def audit_lines(folder: Path) -> list[dict[str, Any]]:
    """``folder``: the data folder of the server."""
    return [json.loads(line) for line in (folder / FILE_NAME).read_bytes().splitlines()]


class HeldWrites:
    """Files are not written until ``release``, so that later changes share a write. ``submitted``: changes so far."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *files: type[Any]) -> None:
        """``files``: classes that implement ``group_commit.ReplacedFile``."""
        self.submitted = 0
        self._may_write = threading.Event()
        submit = GroupCommit.submit

        def count_and_submit(commit: GroupCommit[Any], *arguments: Any) -> None:
            self.submitted += 1
            submit(commit, *arguments)

        monkeypatch.setattr(GroupCommit, "submit", count_and_submit)
        for each in files:
            monkeypatch.setattr(each, "write", self._held(each.write))

    def release(self) -> None:
        self._may_write.set()

    async def wait_for(self, submitted: int) -> None:
        while self.submitted < submitted:
            await asyncio.sleep(0.001)

    def _held(self, write: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        def write_later(file: Any, draft: Any) -> None:
            self._may_write.wait(DEADLINE_S)
            write(file, draft)

        return write_later
