"""The long proofs, as a table: what one seed runs, how many seeds are wanted, and how to repeat one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from cluster.model.proof import CASES

ROOT = Path(__file__).resolve().parents[2]
OUTPUT_TAIL_CHARS = 2000
KILL_ROUNDS = "CALLBOARD_KILL_ROUNDS=20"
WHEEL_STEPS = "CALLBOARD_WHEEL_STEPS=5000000"
FUZZ_FRAMES = "CALLBOARD_FUZZ_FRAMES=100000"
MANY_EXAMPLES = "CALLBOARD_EXAMPLE_FACTOR=20"


class Proof(NamedTuple):
    """``run``: runs one seed and returns the failure's text, or None. ``chunk``: seeds between saves of progress."""

    run: Callable[[int], str | None]
    seeds: int
    chunk: int
    repeat: str


def run_simulation(seed: int) -> str | None:
    """One run of the whole coordinator in virtual time, with a network, disks and members that fail."""
    from simulation.scenarios import scenario_of_seed

    from callboard.runtime.testing.simulation.simulate import run_seed

    failure = run_seed(scenario_of_seed, seed).failure
    return None if failure is None else f"{type(failure).__name__}: {failure}"


def run_growing(seed: int) -> str | None:
    """Members of a group whose resource gets more shards, with all faults."""
    from simulation.scenarios import growing_resource

    from callboard.runtime.testing.simulation.simulate import run_seed

    failure = run_seed(growing_resource, seed).failure
    return None if failure is None else f"{type(failure).__name__}: {failure}"


def run_power_cuts(seed: int) -> str | None:
    """One log on a simulated disk, with faults and power cuts."""
    from crashes.crash_run import CrashRun

    try:
        CrashRun(seed).run()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def run_hostile_bytes(seed: int) -> str | None:
    """One log whose clients send bytes with the format of the log, until a power cut."""
    from crashes.hostile_run import failure

    return failure(seed)


def run_kills(seed: int) -> str | None:
    """A real server under load, ended by ``kill -9`` again and again."""
    return run_pytest("tests/node/test_crash.py", f"CALLBOARD_TEST_SEED={seed}", KILL_ROUNDS)


def run_wheel(seed: int) -> str | None:
    """Five million random steps of timing wheels of all sizes, compared with a sorted list."""
    return run_pytest("tests/timer/test_wheel.py", f"CALLBOARD_WHEEL_SEED={seed}", WHEEL_STEPS)


def run_fuzz(seed: int) -> str | None:
    """100,000 damaged frames for a server."""
    return run_pytest("tests/kafka/test_fuzz.py", f"CALLBOARD_FUZZ_SEED={seed}", FUZZ_FRAMES)


def run_leases(seed: int) -> str | None:
    """Members that are cut off from their coordinator: ten seeds for each of two assignors."""
    return run_pytest("tests/member/test_member_lease.py", f"CALLBOARD_LEASE_SEED={seed}")


def run_properties(seed: int) -> str | None:
    """The property tests of the log, with twenty times as many examples."""
    return run_pytest("tests/log", f"PYTEST_ADDOPTS=-m hypothesis --hypothesis-seed={seed}", MANY_EXAMPLES)


def run_cluster_model(seed: int) -> str | None:
    """One search of the model of the cluster's protocol: a scope to its end, or a planted mistake."""
    from cluster.model.proof import run_case

    return run_case(seed)


def run_pytest(path: str, *variables: str) -> str | None:
    """Run a test file. ``variables``: NAME=VALUE for its environment."""
    environment = dict(variable.split("=", 1) for variable in variables)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", path]
    result = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    return None if result.returncode == 0 else (result.stdout + result.stderr)[-OUTPUT_TAIL_CHARS:]


PROOFS: Mapping[str, Proof] = {
    "simulation": Proof(run_simulation, 1_000_000, 500, "PYTHONPATH=tests python -m simulation {seed}"),
    "growing": Proof(run_growing, 250_000, 200, "PYTHONPATH=tests python -m simulation growing_resource {seed}"),
    "power-cuts": Proof(run_power_cuts, 200_000, 200, "PYTHONPATH=tests python -m crashes {seed}"),
    "hostile-bytes": Proof(run_hostile_bytes, 100_000, 200, "PYTHONPATH=tests python -m crashes.hostile_run {seed}"),
    "kills": Proof(run_kills, 50, 1, f"{KILL_ROUNDS} CALLBOARD_TEST_SEED={{seed}} pytest tests/node/test_crash.py"),
    "wheel": Proof(run_wheel, 100, 1, f"{WHEEL_STEPS} CALLBOARD_WHEEL_SEED={{seed}} pytest tests/timer/test_wheel.py"),
    "fuzz": Proof(run_fuzz, 100, 1, f"{FUZZ_FRAMES} CALLBOARD_FUZZ_SEED={{seed}} pytest tests/kafka/test_fuzz.py"),
    "leases": Proof(run_leases, 500, 1, "CALLBOARD_LEASE_SEED={seed} pytest tests/member/test_member_lease.py"),
    "properties": Proof(
        run_properties, 100, 1, f"{MANY_EXAMPLES} pytest tests/log -m hypothesis --hypothesis-seed={{seed}}"
    ),
    "cluster-model": Proof(run_cluster_model, len(CASES), 1, "PYTHONPATH=tests python -m cluster.model --case {seed}"),
}
