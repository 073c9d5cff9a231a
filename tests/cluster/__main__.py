"""``python -m cluster SEED [COUNT]``: repeats one seed of the simulated cluster and prints it, or runs several.

``python -m cluster --mistakes [NAME ...]``: how many seeds the planted mistakes need until they are found.
``--rare NUMBER`` is one case of ``make soak PROOFS=cluster-mistakes``.
"""

from __future__ import annotations

import sys

from .rare_mistakes import run_case
from .seeds_to_detection import print_table
from .simulated_cluster import simulate
from .violation import Violation


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--mistakes"]:
        return print_table(arguments[1:])
    if arguments[:1] == ["--rare"]:
        failure = run_case(int(arguments[1]))
        print(failure or "as expected")
        return 0 if failure is None else 1
    first, count = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 1
    failed = 0
    for seed in range(first, first + count):
        try:
            cluster = simulate(seed)
        except Violation as violation:
            print(violation)
            failed += 1
        else:
            if count == 1:
                print(*cluster.log, sep="\n")
    print(f"{count - failed} of {count} seeds passed")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
