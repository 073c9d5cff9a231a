"""Crash runs on a disk that loses unsynced writes: acknowledged records survive each of them.

``CALLBOARD_CRASH_RUNS`` sets the number of runs, ``CALLBOARD_CRASH_SEED`` the first seed. A failure prints the command
that repeats its run and prints its events. ``make soak`` runs 200,000 of them.
"""

from __future__ import annotations

import os

import pytest

from .crash_run import CrashRun
from .migrations import MigrationRun
from .mutations import MUTATIONS, replay_of_unsynced_journal

RUNS = int(os.environ.get("CALLBOARD_CRASH_RUNS", "100"))
FIRST_SEED = int(os.environ.get("CALLBOARD_CRASH_SEED", "0"))
MIGRATION_RUNS = 20
CHUNKS = 10
MUTANT_SEEDS_MAX = 3000
FOUND_BY = {
    "a manifest's name is not synced before the old files go": 426,
    "published names are not synced before the old files go": 40,
    "a start takes unsynced files for synced": 14,
    "torn tails are not cut": 588,
}
"""The first seed that finds a rare mistake. It is tried before all others, which would take long."""

SEEDS = [range(FIRST_SEED + chunk, FIRST_SEED + RUNS, CHUNKS) for chunk in range(min(CHUNKS, RUNS))]


TEST_BUGS = (TypeError, AttributeError, NameError)
EVENTS = (
    *("power loss", "killed", "closed", "sync='interval'", "sync='none'", "KAFKA_STORAGE_ERROR"),
    *("COORDINATOR_NOT_AVAILABLE", "MESSAGE_TOO_LARGE", "room again", "Fault(", "truncate", " won", "replaced=1"),
)


def failure(seed: int, run: type[CrashRun] = CrashRun) -> str | None:
    """The error of a run and the command that repeats it; None if it passes."""
    try:
        run(seed).run()
    except TEST_BUGS:
        raise
    except Exception as error:
        command = f"python -m crashes {seed}" if run is CrashRun else f"{run.__name__}({seed}).run()"
        return f"{type(error).__name__}: {error}\nrepeat it: PYTHONPATH=tests {command}"
    return None


@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"from {seeds.start}")
def test_acknowledged_records_survive_crashes(seeds: range) -> None:
    failures = [message for seed in seeds if (message := failure(seed))]
    assert not failures, "\n\n".join(failures[:5])


def test_groups_that_change_their_protocol_survive_crashes_and_compaction() -> None:
    failures = [message for seed in range(MIGRATION_RUNS) if (message := failure(seed, MigrationRun))]
    assert not failures, "\n\n".join(failures[:5])


@pytest.mark.parametrize("name", MUTATIONS)
def test_planted_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few seeds are enough for most of them."""
    MUTATIONS[name](monkeypatch)
    assert any(failure(seed) for seed in (FOUND_BY.get(name, 0), *range(MUTANT_SEEDS_MAX)))


@pytest.mark.parametrize("seed", [10093, 18594])
def test_power_loss_while_a_round_of_a_killed_process_is_replayed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The start syncs the journal first. Otherwise damage is reported."""
    assert failure(seed) is None
    replay_of_unsynced_journal(monkeypatch)
    assert "must not cause damage" in (failure(seed) or "")


def story(seed: int) -> list[str]:
    run = CrashRun(seed)
    run.run()
    return run.story


def test_same_seed_gives_same_story() -> None:
    """So a failure can be repeated."""
    assert [story(seed) for seed in range(8)] == [story(seed) for seed in range(8)]


def test_seeds_cover_all_events() -> None:
    missing = list(EVENTS)
    for seed in range(200):
        text = "\n".join(story(seed)) if missing else ""
        missing = [word for word in missing if word not in text]
    assert missing == []
