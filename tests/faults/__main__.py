"""``python -m faults KIND [--cycles N]``: real servers, one fault after the other; prints the outage of each.

``python -m faults report`` summarizes what ``make soak`` has measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .campaign import Outage
from .kinds import KINDS
from .measured import faults_of, load, summary

REPORT = "report"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("kind", choices=[*KINDS, REPORT])
    parser.add_argument("--cycles", type=int, default=5)
    options = parser.parse_args(arguments)
    if options.kind == REPORT:
        print("\n".join(summary(kind, outages) for kind, outages in load().items()))
        return 0

    def tell(number: int, outage: Outage) -> None:
        print(f"{options.kind} {number}: {outage.seconds:.2f} s, load average {outage.load}", flush=True)

    outages, violations = faults_of(options.kind, options.cycles, tell)
    print(summary(options.kind, outages))
    print("\n".join(violations) or "nothing acknowledged was lost, and nothing old was read")
    return min(len(violations), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
