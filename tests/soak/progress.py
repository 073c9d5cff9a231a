"""The progress of the long proofs: a small JSON file that is committed, so that a run resumes where the last one ended.

Each proof has a list of stretches of seeds, one for each commit it was run on::

    {"simulation": [{"commit": "1a2b3c4d5e6f", "first_seed": 0, "seeds_done": 5000, "failures": {"17": "..."}}]}
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path

COMMIT_CHARS = 12
FAILURE_CHARS_MAX = 300
NOT_RUN = tuple(f":(exclude,glob){pattern}" for pattern in ("**/*.md", "tests/soak/progress*"))
"""Of git: files that no proof runs."""


@dataclass
class Stretch:
    """Consecutive seeds that were run on one commit. ``failures``: seed -> text."""

    commit: str
    first_seed: int
    seeds_done: int = 0
    failures: dict[str, str] = field(default_factory=dict)


class Progress:
    """Reads and writes the file at ``path``; a missing file is an empty progress."""

    def __init__(self, path: Path) -> None:
        self._path = path
        content = json.loads(path.read_text()) if path.exists() else {}
        self.proofs = {name: [Stretch(**stretch) for stretch in stretches] for name, stretches in content.items()}

    def seeds_done(self, proof: str, commit: str = "") -> int:
        """``commit``: on this one only."""
        stretches = self.proofs.get(proof, ())
        return sum(stretch.seeds_done for stretch in stretches if commit in ("", stretch.commit))

    def failures(self, proof: str) -> dict[str, str]:
        stretches = self.proofs.get(proof, ())
        return {seed: text for stretch in stretches for seed, text in stretch.failures.items()}

    def add(self, proof: str, commit: str, seeds: range, failures: dict[int, str]) -> None:
        """Record ``seeds`` as done, which must follow the last ones; saves the file."""
        expected = self.seeds_done(proof)
        if seeds.start != expected:
            raise ValueError(f"{proof}: seeds from {seeds.start}, expected from {expected}")
        stretches = self.proofs.setdefault(proof, [])
        if not stretches or stretches[-1].commit != commit:
            stretches.append(Stretch(commit, seeds.start))
        stretches[-1].seeds_done += len(seeds)
        stretches[-1].failures |= {str(seed): text[:FAILURE_CHARS_MAX] for seed, text in failures.items()}
        self._save()

    def _save(self) -> None:
        content = {name: [asdict(stretch) for stretch in stretches] for name, stretches in self.proofs.items()}
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(content, indent=1) + "\n")
        new.replace(self._path)


def current_commit(root: Path) -> str:
    """The newest commit that changed anything but pages and progress, with ``-changed`` if there is such a change now.

    So what is measured goes on after its results were committed.
    """

    def git(*arguments: str) -> str:
        command = ["git", *arguments, "--", ".", *NOT_RUN]
        return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout

    commit = git("log", "-1", "--format=%H").strip()[:COMMIT_CHARS]
    return commit + ("-changed" if git("status", "--porcelain") else "")
