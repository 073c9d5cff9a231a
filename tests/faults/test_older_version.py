"""The proof of an upgrade says what it lacks. Installing a version takes too long for a test."""

from __future__ import annotations

import pytest

from . import older_version


def test_commit_that_is_not_there_is_an_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(older_version, "COMMIT", "0" * 40)
    assert (older_version.missing_older_version() or "").startswith("this repository has no commit 000000000000: ")
