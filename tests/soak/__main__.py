"""``python -m soak [PROOF ...] [--minutes N]``: run the long proofs on all processors, for ``make soak``.

Progress is saved after each chunk of seeds, so a run can be interrupted at any time and resumes there. Failed seeds are
printed with the command that repeats them, and bars that what was measured misses. Exit code 1 if there are any.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from faults.measured import load
from faults.report import judgements, missed

from .progress import Progress, current_commit
from .proofs import PROOFS, ROOT
from .runner import soak

PROGRESS_FILE = Path(__file__).with_name("progress.json")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("proofs", nargs="*", metavar="PROOF", help=f"by default all: {', '.join(PROOFS)}")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="end after so many minutes")
    parser.add_argument("--seeds", type=int, help="run so many seeds of each proof at most")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.proofs if name not in PROOFS]
    if unknown:
        parser.error(f"unknown proof {unknown[0]!r}; expected one of {', '.join(PROOFS)}")
    selected = {name: PROOFS[name] for name in options.proofs or PROOFS}
    progress = Progress(PROGRESS_FILE)
    try:
        failed = soak(selected, progress, current_commit(ROOT), options.minutes * 60, most_seeds=options.seeds)
    except KeyboardInterrupt:
        print("interrupted; the next run resumes here")
        return 130
    for name in selected:
        for seed, text in progress.failures(name).items():
            print(f"{name}: seed {seed} failed: {text[:300]}\n  {PROOFS[name].repeat.format(seed=seed)}")
    lines = missed([each for each in judgements(load()) if each.bar.proof in selected])
    print("".join(f"{line}\n" for line in lines), end="")
    return min(failed + len(lines), 1)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the programs of the proofs end, too
    sys.exit(main(sys.argv[1:]))
