"""``python -m faults KIND [--cycles N]``: real servers, one fault after the other; prints the outage of each.

``python -m faults report`` says for each bar what ``make soak`` has measured, and whether it is met. Exit code 1 if one
is missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .bars import QUIET_LOAD_PER_PROCESSOR
from .campaign import Outage
from .faulting import faults_of
from .kinds import KINDS, missing_store
from .measured import load
from .report import PAGE, judgements, missed, table, write

REPORT = "report"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("kind", choices=[*KINDS, REPORT])
    parser.add_argument("--cycles", type=int, default=5)
    parser.add_argument(
        "--commit", action="append", default=[], help="report the runs of this commit; may be repeated; default newest"
    )
    parser.add_argument(
        "--quiet-load",
        type=float,
        default=QUIET_LOAD_PER_PROCESSOR,
        help="the greatest load average of a quiet machine, for each processor (default %(default)s)",
    )
    parser.add_argument("--write", action="store_true", help=f"put the report into {PAGE.name}, too")
    options = parser.parse_args(arguments)
    if (reason := missing_store(options.kind)) is not None:
        parser.error(reason)
    return _report(options) if options.kind == REPORT else _run(options.kind, options.cycles)


def _report(options: argparse.Namespace) -> int:
    judged = judgements(load(), options.commit, options.quiet_load)
    print(table(judged))
    print("\n".join(missed(judged)) or "no bar is missed")
    if options.write:
        write(table(judged))
    return min(len(missed(judged)), 1)


def _run(kind: str, cycles: int) -> int:
    def tell(number: int, outage: Outage) -> None:
        print(f"{kind} {number}: {outage.seconds:.2f} s, load average {outage.load}", flush=True)

    _, violations = faults_of(kind, cycles, tell)
    print("\n".join(violations) or "nothing acknowledged was lost, and nothing old was read")
    return min(len(violations), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
