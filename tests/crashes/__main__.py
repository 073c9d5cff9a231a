"""``python -m crashes SEED [COUNT]``: repeat one run and print its events; or do many and list the failures."""

from __future__ import annotations

import sys
import time

from .crash_run import CrashRun


def main() -> int:
    seed, count = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    failed = 0
    started_s = time.monotonic()
    for number in range(seed, seed + count):
        run = CrashRun(number)
        try:
            run.run()
        except BaseException as error:
            failed += 1
            print(f"seed {number}: {type(error).__name__}: {str(error)[:2000]}")
            if count == 1:
                print("\n".join(run.story))
                raise
    print(f"{count} runs, {failed} failed, {count / (time.monotonic() - started_s):.0f} runs/s")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
