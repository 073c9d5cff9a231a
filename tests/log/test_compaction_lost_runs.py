"""A compaction whose files are removed meanwhile: another run was first, or they are missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import pytest

from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.compaction import swap
from callboard.runtime.log.compaction.swap import CompactionSettings, compact

SETTINGS = CompactionSettings(0, "test")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Sequence[int]]], object]:
    """Compact a partition one of whose files is gone at each attempt. ``manifests`` returns those after an attempt."""

    def fail(*_arguments: Any) -> NoReturn:
        raise FileNotFoundError("segment")

    def compact_with(manifests: Callable[[], Sequence[int]]) -> object:
        monkeypatch.setattr(swap, "make_plan", fail)
        monkeypatch.setattr(swap, "generations", lambda *_arguments: manifests())
        return compact(Disk(), tmp_path, SETTINGS)

    return compact_with


def test_run_that_others_overtake_each_time_does_nothing(run: Callable[[Callable[[], Sequence[int]]], object]) -> None:
    numbers = count(1)
    assert run(lambda: [next(numbers)]) is None


def test_file_that_no_other_run_has_removed_is_an_error(run: Callable[[Callable[[], Sequence[int]]], object]) -> None:
    with pytest.raises(FileNotFoundError, match="segment"):
        run(lambda: [1])
