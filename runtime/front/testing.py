"""``callboard.testing``: a coordinator for tests, its clock, its faults and its timeline. docs/testing.md is the guide.

    with Coordinator.in_thread(topics={"jobs": 3}) as coordinator:     # or: async with Coordinator(...) as coordinator
        coordinator.clock.advance(45)

With pytest no import is needed: the fixtures are ``coordinator``, ``kafka_bootstrap`` and ``clock``. The names below
are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from callboard.runtime.testing.assignor_check import AssignorCheckFailed as AssignorCheckFailed
    from callboard.runtime.testing.assignor_check import check_assignor as check_assignor
    from callboard.runtime.testing.plugin.faults import Fault as Fault
    from callboard.runtime.testing.plugin.faults import Faults as Faults
    from callboard.runtime.testing.plugin.harness_coordinator import HarnessCoordinator as Coordinator
    from callboard.runtime.testing.plugin.harness_coordinator import HarnessThread as ThreadCoordinator
    from callboard.runtime.testing.plugin.timeline import Event as Event
    from callboard.runtime.testing.plugin.timeline import Timeline as Timeline
    from callboard.runtime.testing.plugin.virtual_time import BlockingTime as BlockingTime
    from callboard.runtime.testing.plugin.virtual_time import VirtualTime as VirtualTime
    from callboard.runtime.testing.simulation.chaos import Chaos as Chaos
    from callboard.runtime.testing.simulation.scenario import Sim as Sim
    from callboard.runtime.testing.simulation.simulate import SimulationFailed as SimulationFailed
    from callboard.runtime.testing.simulation.simulate import simulate as simulate

_HOMES = {
    "AssignorCheckFailed": ("callboard.runtime.testing.assignor_check", "AssignorCheckFailed"),
    "BlockingTime": ("callboard.runtime.testing.plugin.virtual_time", "BlockingTime"),
    "Chaos": ("callboard.runtime.testing.simulation.chaos", "Chaos"),
    "Coordinator": ("callboard.runtime.testing.plugin.harness_coordinator", "HarnessCoordinator"),
    "Event": ("callboard.runtime.testing.plugin.timeline", "Event"),
    "Fault": ("callboard.runtime.testing.plugin.faults", "Fault"),
    "Faults": ("callboard.runtime.testing.plugin.faults", "Faults"),
    "Sim": ("callboard.runtime.testing.simulation.scenario", "Sim"),
    "SimulationFailed": ("callboard.runtime.testing.simulation.simulate", "SimulationFailed"),
    "ThreadCoordinator": ("callboard.runtime.testing.plugin.harness_coordinator", "HarnessThread"),
    "Timeline": ("callboard.runtime.testing.plugin.timeline", "Timeline"),
    "VirtualTime": ("callboard.runtime.testing.plugin.virtual_time", "VirtualTime"),
    "check_assignor": ("callboard.runtime.testing.assignor_check", "check_assignor"),
    "simulate": ("callboard.runtime.testing.simulation.simulate", "simulate"),
}
"""The module of each public name, and its name there."""

__all__ = [
    "AssignorCheckFailed",
    "BlockingTime",
    "Chaos",
    "Coordinator",
    "Event",
    "Fault",
    "Faults",
    "Sim",
    "SimulationFailed",
    "ThreadCoordinator",
    "Timeline",
    "VirtualTime",
    "check_assignor",
    "simulate",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it offers {', '.join(__all__)}")
    module, name_in_module = _HOMES[name]
    value = globals()[name] = getattr(import_module(module), name_in_module)
    return value


def __dir__() -> list[str]:
    return sorted((*__all__, "__doc__"))
