"""``spark-submit submit_compact.py --data DIR``: ``callboard compact --spark`` as a Spark application.

Spark runs this file by its path, not as a module of a package, so its imports are absolute.
"""

from __future__ import annotations

import sys
from importlib import import_module


def main() -> None:
    sys.argv[:1] = ["callboard", "compact", "--spark"]
    import_module("callboard.runtime.cli.main").main()


if __name__ == "__main__":
    main()
