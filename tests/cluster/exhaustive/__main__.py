"""``python -m cluster.exhaustive [SCOPE ...]``: search scopes, by default all; with ``--states N``, N states of each.

``--plants [MISTAKE ...]`` plants mistakes and prints the shortest traces to what they break. ``--case N`` is one case
of ``make soak``.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

from .cases import PLANTS, run_case, search_plant, search_scope
from .scopes import SCOPES
from .search import Result


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m cluster.exhaustive", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--states", type=int, default=0)
    parser.add_argument("--plants", action="store_true")
    parser.add_argument("--case", type=int)
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    if options.case is not None:
        failure = run_case(options.case)
        print(failure or "as expected")
        return 0 if failure is None else 1
    known = PLANTS if options.plants else SCOPES
    names = options.names or list(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"unknown name {unknown[0]!r}; expected one of {', '.join(known)}")
    for name in names:
        _print(name, partial(search_plant, name) if options.plants else partial(search_scope, name, options.states))
    return 0


def _print(name: str, search: Callable[[], Result]) -> None:
    started_s = time.process_time()
    result = search()
    seconds = time.process_time() - started_s
    extent = "complete" if result.is_complete else "stopped"
    print(
        f"{name}: {result.states:,} states, {result.steps:,} steps, depth {result.depth}, {extent}; "
        f"calm from {result.calm:,}; inputs executed {result.executed:,}; {seconds:.1f} s of CPU",
        flush=True,
    )
    if result.violation:
        print(f"  {result.violation}", *result.trace, sep="\n  ", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
