"""What all tests share: the picture of the import name."""

from __future__ import annotations

import links
import pytest


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # once for a run, not in every worker
        links.draw()
