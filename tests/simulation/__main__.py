"""``python -m simulation [SCENARIO] SEED [COUNT] [--only 1,2]``: repeats one seed, or runs several."""

from __future__ import annotations

import sys

from callboard.runtime.testing.__main__ import main

from .scenarios import SCENARIOS


def arguments(given: list[str]) -> list[str]:
    """Add the scenario. By default the seed selects it, as in the test suite."""
    if given and given[0] in SCENARIOS:
        name, *rest = given
    else:
        name, rest = "scenario_of_seed", given
    return [f"simulation.scenarios:{name}", *rest]


if __name__ == "__main__":
    sys.exit(main(arguments(sys.argv[1:])))
