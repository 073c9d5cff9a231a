"""``callboard bench [NAME ...]``: runs a bench by its name, or lists them.

A bench's module is loaded when it is called, so that the list answers at once. A bench is a module with
``main(argv) -> exit code`` and an entry here.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module

BENCHES = {
    "server": "heartbeats and durable commits a second through TCP, beside a bare server",
    "commit": "what durability costs: group commit beside one sync a commit, and beside none",
    "start": "until a coordinator is ready on an empty folder: a server's process, and embedded",
    "groups": "memory of a crowd of groups, asleep and awake",
    "members": "a group of many members joins, syncs and rebalances: seconds against members",
    "load": "one partition of the log is loaded, with numpy and without, beside a plain read of its file",
    "compact": "the log's compaction, in one process and in two, beside a copy of its files",
    "embed": "durable commits of members in process beside those over TCP; thousands of members on one loop",
    "concurrency": "one coordinator serialised in eight ways: actors, locks, loops; writes a report",
    "actors": "actors beside asyncio tasks with queues, pykka's threads and a bare deque",
    "timers": "deadlines on the timing wheel, beside a heap, ordered buckets and asyncio",
}

MODULES = {"load": "loading"}
"""Where a bench's module has another name: ``load`` is what makes load for others."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the bench that ``argv`` names with the arguments after it (``sys.argv`` when None); returns the exit code."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        _list()
        return 0
    name, *rest = arguments
    if name not in BENCHES:
        print(_unknown(name), file=sys.stderr)
        return 2
    code: int = import_module(f"callboard.bench.{MODULES.get(name, name)}").main(rest)
    return code


def _list() -> None:
    print("usage: callboard bench NAME [OPTIONS]   (NAME --help lists the options)\n")
    for name, purpose in BENCHES.items():
        print(f"  {name:<13}{purpose}")


def _unknown(name: str) -> str:
    near = get_close_matches(name, BENCHES, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(BENCHES)}"
    return f"no bench is called {name!r}; {hint}"


if __name__ == "__main__":
    raise SystemExit(main())
