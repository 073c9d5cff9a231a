"""``make soak``: progress is saved after each chunk, resumed, kept per commit, and lists failures."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from peers.waiting import wait_until

from .__main__ import PROGRESS_FILE, main
from .progress import Progress, current_commit
from .proofs import PROOFS, ROOT, Proof
from .runner import soak

LONG_S = 600


def fail_on_seed_5(seed: int) -> str | None:
    return "bad" if seed == 5 else None


def log_a_warning(seed: int) -> None:
    logging.getLogger("callboard").warning("seed %d", seed)


def run_a_program(seed: int) -> None:
    """The second seed takes long. Its program writes its process id."""
    if seed:
        program = f"import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep({LONG_S})"
        subprocess.run([sys.executable, "-c", program], check=False)


TOY = {"toy": Proof(fail_on_seed_5, 12, 4, "run {seed}")}


def test_soak_runs_all_seeds_and_lists_the_failed_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(tmp_path / "progress.json")
    assert soak(TOY, progress, "c1", 60, processes=1) == 1
    assert progress.seeds_done("toy") == 12
    assert progress.failures("toy") == {"5": "bad"}
    assert "run 5" in capsys.readouterr().out


def test_warnings_of_a_proof_do_not_hide_its_failures(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    soak({"toy": Proof(log_a_warning, 1, 1, "run {seed}")}, Progress(tmp_path / "progress.json"), "c1", 60, processes=1)
    assert capfd.readouterr() == ("toy: 1 of 1 seeds\n", "")


def test_soak_without_time_resumes_after_the_last_chunk(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    Progress(path).add("toy", "c1", range(4), {})
    progress = Progress(path)
    soak(TOY, progress, "c2", 60, processes=1)
    first, second = Progress(path).proofs["toy"]
    assert (first.commit, first.first_seed, first.seeds_done) == ("c1", 0, 4)
    assert (second.commit, second.first_seed, second.seeds_done) == ("c2", 4, 8)
    assert second.failures == {"5": "bad"}


def test_run_that_is_ended_ends_its_programs_and_resumes_with_the_seed_that_was_interrupted(tmp_path: Path) -> None:
    program = """
import signal
from pathlib import Path
from soak.progress import Progress
from soak.proofs import Proof
from soak.runner import soak
from soak.test_soak import run_a_program
if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    soak({"toy": Proof(run_a_program, 2, 1, "")}, Progress(Path("progress.json")), "c1", 600, processes=1)
"""
    (tmp_path / "run.py").write_text(program)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    with subprocess.Popen([sys.executable, "run.py"], cwd=tmp_path, env=environment, stderr=subprocess.PIPE) as running:
        wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), bool, "the program")
        running.send_signal(signal.SIGTERM)
        running.communicate()
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: is_running(pid), lambda runs: not runs, "the end of the program")
    assert Progress(tmp_path / "progress.json").seeds_done("toy") == 1


def is_running(pid: int) -> bool:
    """A process whose parent has not asked for its end is not running."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_measured_proof_begins_anew_on_another_commit(tmp_path: Path) -> None:
    proofs = {"toy": TOY["toy"]._replace(seeds=4, chunk=2, is_measured=True)}
    progress = Progress(tmp_path / "progress.json")
    progress.add("toy", "c1", range(3), {})
    soak(proofs, progress, "c1", 60)
    soak(proofs, progress, "c2", 60)
    assert (progress.seeds_done("toy", "c1"), progress.seeds_done("toy", "c2")) == (4, 4)


def test_measured_proof_goes_on_when_its_results_are_committed(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=tester", "-c", "user.email=tester@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    def commit_file(name: str) -> None:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
        git("add", ".")
        git("commit", "-m", name)

    git("init")
    commit_file("runtime/code.py")
    measured = current_commit(tmp_path)
    for name in ("tests/soak/progress_bars.json", "docs/page.md", "CHANGELOG.md"):
        commit_file(name)
        (tmp_path / name).write_text("written by the next run")
    assert current_commit(tmp_path) == measured
    (tmp_path / "runtime" / "code.py").write_text("other code")
    assert current_commit(tmp_path) == f"{measured}-changed"
    git("commit", "--all", "-m", "other code")
    assert not current_commit(tmp_path).startswith(measured)


def test_run_may_be_limited_to_some_seeds_of_each_proof(tmp_path: Path) -> None:
    proofs = {"one": TOY["toy"]._replace(is_measured=True), "two": TOY["toy"]._replace(chunk=1, is_measured=True)}
    progress = Progress(tmp_path / "progress.json")
    soak(proofs, progress, "c1", 60, most_seeds=3)
    assert [progress.seeds_done(name) for name in proofs] == [3, 3]


def test_progress_with_a_gap_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="toy: seeds from 8, expected from 0"):
        Progress(tmp_path / "progress.json").add("toy", "c1", range(8, 12), {})


def test_unknown_proof_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["rain"])
    assert "'rain'; expected one of simulation" in capsys.readouterr().err


def test_committed_progress_names_existing_proofs_and_no_failures() -> None:
    progress = Progress(PROGRESS_FILE)
    assert set(progress.proofs) <= set(PROOFS)
    assert {name: failures for name in PROOFS if (failures := progress.failures(name))} == {}


def test_page_states_the_committed_progress_of_growing_resources() -> None:
    text = " ".join((ROOT / "docs" / "simulation.md").read_text().split())
    done = Progress(PROGRESS_FILE).seeds_done("growing")
    assert f"So far {done:,} of {PROOFS['growing'].seeds:,} seeds of members whose resource grows have run," in text


@pytest.mark.parametrize("name", ["simulation", "power-cuts", "hostile-bytes"])
def test_first_seed_of_a_proof_passes(name: str) -> None:
    assert PROOFS[name].run(0) is None


def test_docs_list_each_proof() -> None:
    text = (ROOT / "docs" / "contributing.md").read_text()
    table = text.partition("| proofs | what they run |\n")[2].partition("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines()[1:]]
    assert {name for cell in cells for name in re.findall(r"`([\w.-]+)`", cell)} == set(PROOFS)
