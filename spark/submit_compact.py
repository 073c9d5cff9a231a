"""``spark-submit submit_compact.py --data DIR``: ``callboard compact --spark`` for those who start jobs that way.

It is run by its path and so belongs to no package: its imports are those of a user.
"""

from __future__ import annotations

import sys
from importlib import import_module


def main() -> None:
    sys.argv[:1] = ["callboard", "compact", "--spark"]
    import_module("callboard.runtime.cli.main").main()


if __name__ == "__main__":
    main()
