"""Hundreds of random scripts have the same responses as the recorded ones of a real Kafka."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from harness import async_test

from .callboard_server import STEP_MS, open_server
from .comparing import compare
from .golden import Played, read_seeds
from .kinds import KINDS
from .script import DISCONNECT, WAIT
from .test_scenarios import our_settings

PLAYED = {kind: read_seeds(kind) for kind in KINDS}
BATCH_SIZE = 40
SEEDS_MIN = 940  # in all kinds together
KIND_MIN = 15
PASSIVATION_STRIDE = 10  # every tenth script
EARLY_IDLE_MS = STEP_MS // 2


def batches() -> list[tuple[str, int]]:
    return [(kind, first) for kind, played in PLAYED.items() for first in range(0, len(played), BATCH_SIZE)]


@pytest.mark.parametrize(("kind", "first"), batches())
def test_random_script_equals_recording(kind: str, first: int, tmp_path: Path) -> None:
    """One node per batch. A failure shows the seed and the steps up to the difference."""
    _play(kind, PLAYED[kind][first : first + BATCH_SIZE], tmp_path)


def _play(kind: str, batch: Sequence[Played], folder: Path) -> None:
    @async_test
    async def play() -> None:
        async with open_server(folder, our_settings(KINDS[kind].settings)) as server:
            for played in batch:
                await compare(server, f"{kind}, seed {played['seed']}", played.steps, played.responses)

    play()


@pytest.mark.parametrize("kind", KINDS)
def test_random_script_with_early_passivation_equals_recording(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients cannot observe that a group is passivated and activated."""
    monkeypatch.setattr("callboard.actors.group.active_group.IDLE_MS", EARLY_IDLE_MS)
    _play(kind, PLAYED[kind][::PASSIVATION_STRIDE], tmp_path)


def test_number_of_recorded_seeds() -> None:
    counts = {kind: len({played["seed"] for played in scripts}) for kind, scripts in PLAYED.items()}
    assert sum(counts.values()) >= SEEDS_MIN, counts
    assert min(counts.values()) >= KIND_MIN, counts


def test_recorded_seeds_contain_pending_requests_and_generations() -> None:
    """The recorded scripts have enough requests of each API, pending requests and rebalances."""
    all_played = [played for scripts in PLAYED.values() for played in scripts]
    requests = Counter(step[1] for played in all_played for step in played.steps if step[0] not in (WAIT, DISCONNECT))
    late = sum(_late(played) for played in all_played)
    generations = Counter(
        answer["generation_id"]
        for played in all_played
        for responses in played.responses
        for _, answer in responses
        if "generation_id" in answer
    )
    assert min(requests.values()) >= 20, requests
    assert late >= 1000, "too few responses to pending requests"
    assert generations[3] >= 100, generations


def _late(played: Played) -> int:
    """Count responses that arrived after a later step than that of their request."""
    return sum(number != step for step, responses in enumerate(played.responses) for number, _ in responses)
