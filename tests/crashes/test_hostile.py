"""Power losses while clients send bytes with the format of the log: these never become records (``hostile_run``)."""

from __future__ import annotations

import pytest

from .hostile_run import failure
from .mutations import MUTATIONS_WITH_HOSTILE_BYTES

SEEDS = range(100)
MUTANT_SEEDS = range(300)


def test_power_cut_with_hostile_payloads_creates_no_forged_records() -> None:
    assert [message for seed in SEEDS if (message := failure(seed))] == []


@pytest.mark.parametrize("name", MUTATIONS_WITH_HOSTILE_BYTES)
def test_planted_mistake_is_found_with_hostile_payloads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS_WITH_HOSTILE_BYTES[name](monkeypatch)
    assert any(failure(seed) for seed in MUTANT_SEEDS)
