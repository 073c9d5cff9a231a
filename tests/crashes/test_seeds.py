"""Thousands of lives on a disk that loses what was not synced: what was acknowledged is there after each of them.

``CALLBOARD_CRASH_RUNS`` says how many runs there are, ``CALLBOARD_CRASH_SEED`` which seed comes first. A failure prints
the command that repeats its run with everything that happened in it.
"""

from __future__ import annotations

import os

import pytest

from .life import CrashRun
from .mutations import MUTATIONS

RUNS = int(os.environ.get("CALLBOARD_CRASH_RUNS", "3000"))
FIRST_SEED = int(os.environ.get("CALLBOARD_CRASH_SEED", "0"))
CHUNKS = 30
SEEDS = [range(FIRST_SEED + chunk, FIRST_SEED + RUNS, CHUNKS) for chunk in range(min(CHUNKS, RUNS))]


BUGS_OF_THE_TEST = (TypeError, AttributeError, NameError)
WORDS = (
    *("the power goes", "killed", "closed", "sync='interval'", "sync='none'", "KAFKA_STORAGE_ERROR"),
    *("COORDINATOR_NOT_AVAILABLE", "MESSAGE_TOO_LARGE", "room again", "Fault(", "truncate", " won", "replaced=1"),
)


def failure(seed: int) -> str | None:
    """What went wrong in a run, and how to see it again; None when all is well."""
    try:
        CrashRun(seed).run()
    except BUGS_OF_THE_TEST:
        raise
    except Exception as error:
        return f"{type(error).__name__}: {error}\nrepeat it: PYTHONPATH=tests python -m crashes {seed}"
    return None


@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"from {seeds.start}")
def test_acknowledged_records_survive_crashes(seeds: range) -> None:
    failures = [told for seed in seeds if (told := failure(seed))]
    assert not failures, "\n\n".join(failures[:5])


@pytest.mark.parametrize("name", MUTATIONS)
def test_planted_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the seeds of a normal run; otherwise the test above proves less than it says."""
    MUTATIONS[name](monkeypatch)
    assert any(failure(seed) for seed in range(RUNS))


def story(seed: int) -> list[str]:
    run = CrashRun(seed)
    run.run()
    return run.story


def test_same_seed_gives_same_story() -> None:
    """Otherwise nobody could look at a failure again."""
    assert [story(seed) for seed in range(20)] == [story(seed) for seed in range(20)]


def test_seeds_cover_all_events() -> None:
    everything = "\n".join(line for seed in range(200) for line in story(seed))
    assert [word for word in WORDS if word not in everything] == []
