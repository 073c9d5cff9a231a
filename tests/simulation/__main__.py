"""``python -m simulation [SCENARIO] SEED [COUNT] [--only 1,2]``: repeats one seed, or runs several."""

from __future__ import annotations

import sys

from callboard.runtime.testing.__main__ import main

from .scenarios import SCENARIOS


def arguments(command_arguments: list[str]) -> list[str]:
    """Add the scenario. By default the seed selects it, as in the test suite."""
    if command_arguments and command_arguments[0] in SCENARIOS:
        name, *other_arguments = command_arguments
    else:
        name, other_arguments = "scenario_of_seed", command_arguments
    return [f"simulation.scenarios:{name}", *other_arguments]


if __name__ == "__main__":
    sys.exit(main(arguments(sys.argv[1:])))
