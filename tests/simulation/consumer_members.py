"""Members of the consumer protocol (KIP-848) in virtual time, with all faults."""

from __future__ import annotations

from typing import Any

from callboard.runtime.testing.simulation.chaos import Chaos
from callboard.runtime.testing.simulation.scenario import Sim

from .worker_groups import MemberGroup

SESSION_MS = 6000


def consumer_settings(**changes: Any) -> dict[str, Any]:
    """Settings of a coordinator whose consumer groups have short sessions, so that members expire in a short run."""
    return {
        "group_consumer_session_timeout_ms": SESSION_MS,
        "group_consumer_min_session_timeout_ms": 1,
        "group_consumer_heartbeat_interval_ms": 1200,
        "group_consumer_min_heartbeat_interval_ms": 1,
        **changes,
    }


async def consumer_members(sim: Sim) -> None:
    """Two to four members join, leave, die, freeze and lose answers; shards are added."""
    await sim.begin(
        **consumer_settings(group_consumer_assignment_interval_ms=sim.random.choice((0, 0, 1000))),
    )
    parts = [sim.random.randint(1, 6)]

    def grow() -> None:
        parts[0] = min(parts[0] + 1, 8)

    member_group = MemberGroup(
        sim,
        {"jobs": lambda: parts[0]},
        is_static=sim.random.random() < 0.3,
        assignor=sim.random.choice((None, "uniform", "range")),
        rebalance_timeouts_ms=sim.random.choice(((8000,), (20_000,), (8000, 20_000))),
        protocol="consumer",
    )
    member_group.join()
    member_group.join()
    await Chaos(sim, {**member_group.actions(), "parts are added": grow}).run(18)
    await sim.calm()
    await member_group.settle()
