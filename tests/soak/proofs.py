"""The long proofs, as a table: what one seed runs, how many seeds are wanted, and how to repeat one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from cluster.exhaustive.cases import CASES as SEARCH_CASES
from cluster.model.proof import CASES
from cluster.named_bucket import missing_named_bucket
from cluster.object_server import missing_object_server
from cluster.postgres_server import missing_postgres
from cluster.rare_mistakes import RARE
from consumer_group.search import CASES as GROUP_CASES
from faults.cut_network import missing_namespaces
from faults.measured import Run, add_runs, load_average
from faults.older_version import missing_older_version

from . import pythons
from .progress import current_commit

ROOT = Path(__file__).resolve().parents[2]
OUTPUT_TAIL_CHARS = 2000
KILL_ROUNDS = "CALLBOARD_KILL_ROUNDS=20"
WHEEL_STEPS = "CALLBOARD_WHEEL_STEPS=5000000"
FUZZ_FRAMES = "CALLBOARD_FUZZ_FRAMES=100000"
TLS_FUZZ_CASES = "CALLBOARD_TLS_FUZZ_CASES=1000"
SASL_FUZZ_CASES = "CALLBOARD_SASL_FUZZ_CASES=1000"
LONG_TOKENS = ("CALLBOARD_TOKEN_LIFETIME_S=15", "CALLBOARD_TOKENS_RUN_S=300")
FAULTS = 10  # of a seed
MANY_RESETS = "CALLBOARD_RESETS=20"
RESET_CLIENTS = (
    "confluent-consumer",
    "aiokafka",
    "confluent-range",
    "confluent-cooperative",
    "kafka-python-range",
    "kafka-python-cooperative",
    "java-range",
    "java-cooperative",
    "java-consumer",
)
MANY_EXAMPLES = "CALLBOARD_EXAMPLE_FACTOR=20"
PROPERTY_TESTS = ("tests/log", "tests/kafka/test_nothing_hangs.py")


def no_obstacle() -> str | None:
    """The proof runs on all machines."""
    return None


class Proof(NamedTuple):
    """``run``: runs one seed and returns the failure's text, or None. ``chunk``: seeds between saves of progress.

    ``obstacle``: why this machine cannot run it, or None. ``is_measured``: it notes times, so it runs one seed at a
    time, and begins anew on each commit.
    """

    run: Callable[[int], str | None]
    seeds: int
    chunk: int
    repeat: str
    obstacle: Callable[[], str | None] = no_obstacle
    is_measured: bool = False


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


def run_cluster(seed: int) -> str | None:
    """Some nodes of a cluster on a simulated store, with pauses, deaths and lost answers."""
    from cluster.simulated_cluster import simulate
    from cluster.violation import Violation

    try:
        simulate(seed)
    except Violation as violation:
        return str(violation)
    return None


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


def run_tls_fuzz(seed: int) -> str | None:
    """1,000 handshakes and connections with damaged TLS, so that little is lost by an interruption."""
    return run_pytest("tests/tls/test_tls_fuzz.py", f"CALLBOARD_TLS_FUZZ_SEED={seed}", TLS_FUZZ_CASES)


def run_sasl_fuzz(seed: int) -> str | None:
    """1,000 clients whose authentication is damaged."""
    return run_pytest("tests/kafka/test_sasl_fuzz.py", f"CALLBOARD_SASL_FUZZ_SEED={seed}", SASL_FUZZ_CASES)


def run_tokens(seed: int) -> str | None:
    """Five minutes of real clients with tokens of 15 seconds. The seed is not used."""
    return run_pytest("tests/peers/test_short_tokens.py", *LONG_TOKENS)


def run_resets(seed: int) -> str | None:
    """Twenty resets of a running group with two consumers of one kind, which commit automatically."""
    return run_pytest(
        f"tests/peers/test_evict_and_reset.py::test_no_member_undoes_a_reset[{RESET_CLIENTS[seed]}]", MANY_RESETS
    )


def run_leases(seed: int) -> str | None:
    """Members that are cut off from their coordinator: ten seeds for each of two assignors."""
    return run_pytest("tests/member/test_member_lease.py", f"CALLBOARD_LEASE_SEED={seed}")


def run_long_tests(seed: int) -> str | None:
    """The tests that ``make test`` leaves out. The seed is not used."""
    return run_pytest("tests", "PYTEST_ADDOPTS=-m long")


def run_properties(seed: int) -> str | None:
    """The property tests of the log, and that no request waits for ever, with twenty times as many examples."""
    options = f"PYTEST_ADDOPTS=-m hypothesis --hypothesis-seed={seed}"
    failures = (run_pytest(path, options, MANY_EXAMPLES) for path in PROPERTY_TESTS)
    return next(filter(None, failures), None)


def run_cluster_model(seed: int) -> str | None:
    """One search of the model of the cluster's protocol: a scope to its end, or a planted mistake."""
    from cluster.model.proof import run_case

    return run_case(seed)


def run_python(version: str, seed: int) -> str | None:
    """All tests once with this version of Python. The seed is not used."""
    python = pythons.interpreter(version)
    assert python is not None, "soak asks for obstacles first"
    result = pythons.run(pythons.make_command(version, python), ROOT)
    return None if result.returncode == 0 else (result.stdout + result.stderr)[-OUTPUT_TAIL_CHARS:]


def python_obstacle(version: str) -> str | None:
    found = pythons.interpreter(version)
    return None if found else f"found no interpreter python{version} on PATH or in ~/.pyenv/versions"


def python_proof(version: str) -> Proof:
    repeat = f"make test-real-time test-others PYTHON=python{version} VENV=.venv-{version}"
    return Proof(partial(run_python, version), 1, 1, repeat, partial(python_obstacle, version))


def run_consumer_group(seed: int) -> str | None:
    """One search of the rules of consumer groups, for a million states."""
    from consumer_group.search import run_case

    return run_case(seed)


def run_cluster_search(seed: int) -> str | None:
    """One search of the cluster's code: a scope, or a planted mistake."""
    from cluster.exhaustive.cases import run_case

    return run_case(seed)


def run_cluster_mistakes(seed: int) -> str | None:
    """One mistake that few seeds find, planted."""
    from cluster.rare_mistakes import run_case

    return run_case(seed)


def run_failover(seed: int) -> str | None:
    """Standbys that are promoted: synchronous, and without the newest commits."""
    failure = run_pytest("tests/faults/test_failover.py")
    note_runs({"failover": [0.0]}, violations=int(failure is not None))
    return failure


def run_faults(kind: str, seed: int) -> str | None:
    """Faults of a cluster of real servers. The outages are noted, see ``python -m faults report``."""
    from faults.faulting import faults_of
    from faults.kinds import store_of

    store = store_of(kind)
    try:
        outages, violations = faults_of(kind, FAULTS)
    except AssertionError as error:
        return repr(error)
    loads = [outage.load for outage in outages]
    note_runs({kind: [outage.seconds for outage in outages]}, loads, len(violations), store)
    return "; ".join(violations) or None


def run_bench(part: str, options: Sequence[str], seed: int) -> str | None:
    """One benchmark of a cluster. The values are noted, see ``python -m faults report``."""
    from faults.bench_postgres import measured

    from callboard.bench.harness import BenchError

    try:
        values = measured(part, *options)
    except (BenchError, AssertionError) as error:
        return repr(error)
    note_runs({name: [value] for name, value in values.items()})
    return None


def note_runs(
    values: Mapping[str, Sequence[float]], loads: Sequence[float] = (), violations: int = 0, store: str = ""
) -> None:
    """Note what was measured, by the names of the runs. ``loads``: by default the load average of now."""
    commit, processors = current_commit(ROOT), os.cpu_count() or 1
    add_runs(
        [
            Run(name, commit, each, loads or [load_average()] * len(each), processors, violations, store)
            for name, each in values.items()
        ]
    )


def faults_proof(kind: str, faults: int, obstacle: Callable[[], str | None] = missing_postgres) -> Proof:
    """``faults``: how many are wanted."""
    repeat = f"PYTHONPATH=tests python -m faults {kind} --cycles {FAULTS}"
    return Proof(partial(run_faults, kind), faults // FAULTS, 1, repeat, obstacle, is_measured=True)


def bench_proof(part: str, runs: int, *options: str, obstacle: Callable[[], str | None] = missing_postgres) -> Proof:
    repeat = f"PYTHONPATH=tests python -m faults.bench_postgres {' '.join([part, *options])}"
    return Proof(partial(run_bench, part, options), runs, 1, repeat, obstacle, is_measured=True)


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
    "cluster": Proof(run_cluster, 20_000, 200, "PYTHONPATH=tests python -m cluster {seed}"),
    "power-cuts": Proof(run_power_cuts, 200_000, 200, "PYTHONPATH=tests python -m crashes {seed}"),
    "hostile-bytes": Proof(run_hostile_bytes, 100_000, 200, "PYTHONPATH=tests python -m crashes.hostile_run {seed}"),
    "kills": Proof(run_kills, 50, 1, f"{KILL_ROUNDS} CALLBOARD_TEST_SEED={{seed}} pytest tests/node/test_crash.py"),
    "wheel": Proof(run_wheel, 100, 1, f"{WHEEL_STEPS} CALLBOARD_WHEEL_SEED={{seed}} pytest tests/timer/test_wheel.py"),
    "fuzz": Proof(run_fuzz, 100, 1, f"{FUZZ_FRAMES} CALLBOARD_FUZZ_SEED={{seed}} pytest tests/kafka/test_fuzz.py"),
    "tls-fuzz": Proof(
        run_tls_fuzz, 10_000, 1, f"{TLS_FUZZ_CASES} CALLBOARD_TLS_FUZZ_SEED={{seed}} pytest tests/tls/test_tls_fuzz.py"
    ),
    "sasl-fuzz": Proof(
        *(run_sasl_fuzz, 10_000, 1),
        f"{SASL_FUZZ_CASES} CALLBOARD_SASL_FUZZ_SEED={{seed}} pytest tests/kafka/test_sasl_fuzz.py",
    ),
    "tokens": Proof(run_tokens, 1, 1, f"{' '.join(LONG_TOKENS)} pytest tests/peers/test_short_tokens.py"),
    "resets": Proof(
        *(run_resets, len(RESET_CLIENTS), 1),
        f"{MANY_RESETS} pytest tests/peers/test_evict_and_reset.py  # the kind of client is number {{seed}}",
    ),
    "leases": Proof(run_leases, 500, 1, "CALLBOARD_LEASE_SEED={seed} pytest tests/member/test_member_lease.py"),
    "long-tests": Proof(run_long_tests, 1, 1, "pytest tests -m long"),
    "properties": Proof(
        *(run_properties, 100, 1),
        f"{MANY_EXAMPLES} pytest {' '.join(PROPERTY_TESTS)} -m hypothesis --hypothesis-seed={{seed}}",
    ),
    "cluster-kill": faults_proof("kill", 100),
    "cluster-stop": faults_proof("stop", 100),
    "cluster-cut": faults_proof("cut", 50, lambda: missing_postgres() or missing_namespaces()),
    "cluster-crash": faults_proof("crash", 20),
    "cluster-drain": faults_proof("drain", 100),
    "cluster-kill-on-s3": faults_proof("kill-on-s3", 100, missing_object_server),
    "cluster-kill-on-bucket": faults_proof("kill-on-bucket", 100, missing_named_bucket),
    "cluster-upgrade": faults_proof("upgrade", 10, lambda: missing_postgres() or missing_older_version()),
    "cluster-commits": bench_proof("commits", 3, "--seconds", "2"),
    "cluster-takeover": bench_proof("takeover", 3),
    "cluster-idle": bench_proof("idle", 3),
    "cluster-workers": bench_proof("workers", 3, obstacle=no_obstacle),
    "cluster-failover": Proof(
        run_failover, 5, 1, "pytest tests/faults/test_failover.py", missing_postgres, is_measured=True
    ),
    "cluster-model": Proof(run_cluster_model, len(CASES), 1, "PYTHONPATH=tests python -m cluster.model --case {seed}"),
    "consumer-group": Proof(
        run_consumer_group, len(GROUP_CASES), 1, "PYTHONPATH=tests python -m consumer_group.search --case {seed}"
    ),
    **{f"python-{version}": python_proof(version) for version in pythons.VERSIONS},
    "cluster-search": Proof(
        run_cluster_search, len(SEARCH_CASES), 1, "PYTHONPATH=tests python -m cluster.exhaustive --case {seed}"
    ),
    "cluster-mistakes": Proof(run_cluster_mistakes, len(RARE), 1, "PYTHONPATH=tests python -m cluster --rare {seed}"),
}
