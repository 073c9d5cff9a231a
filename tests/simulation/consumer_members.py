"""Members of the consumer protocol (KIP-848) in virtual time, with all faults."""

from __future__ import annotations

from typing import Any

from callboard.runtime.member.shards import Shard
from callboard.runtime.testing.simulation.chaos import Chaos
from callboard.runtime.testing.simulation.scenario import Sim

from .racers import LateConsumers
from .worker_groups import GROUP, MemberGroup

SESSION_MS = 6000
LONG_SESSION_MS = 20_000
LATE_S = 4.0  # less than a session: so long a member says everything after a lost answer
LOSS = 0.1
CHURN_PAUSE_S = 1.5


def consumer_settings(**changes: Any) -> dict[str, Any]:
    """Settings of a coordinator whose consumer groups have short sessions, so that members expire in a short run."""
    return {
        "group_consumer_session_timeout_ms": SESSION_MS,
        "group_consumer_min_session_timeout_ms": 1,
        "group_consumer_heartbeat_interval_ms": 1200,
        "group_consumer_min_heartbeat_interval_ms": 1,
        **changes,
    }


class ConsumerGroupMembers(MemberGroup):
    """Their work on some of the shards ends only after some heartbeats, unless the shard is lost."""

    async def _end_work(self, shard: Shard) -> None:
        if self.sim.random.random() < 0.3:
            end_s = self.sim.now_s + 4 * self.sim.random.random()
            while self.sim.now_s < end_s and not shard.is_lost:
                await self.sim.sleep(0.1)


def member_group_of(sim: Sim, parts: list[int], is_static: bool) -> MemberGroup:
    """``parts``: the number of shards, which may change."""
    group = ConsumerGroupMembers(
        sim,
        {"jobs": lambda: parts[0]},
        is_static=is_static,
        assignor=sim.random.choice((None, "uniform", "range")),
        rebalance_timeouts_ms=sim.random.choice(((8000,), (20_000,), (8000, 20_000))),
        protocol="consumer",
    )
    group.join()
    group.join()
    return group


async def consumer_members(sim: Sim) -> None:
    """Two to four members join, leave, die, freeze and lose answers; shards are added."""
    await sim.begin(
        **consumer_settings(group_consumer_assignment_interval_ms=sim.random.choice((0, 0, 1000))),
    )
    parts = [sim.random.randint(1, 6)]

    def grow() -> None:
        parts[0] = min(parts[0] + 1, 8)

    member_group = member_group_of(sim, parts, is_static=sim.random.random() < 0.3)
    LateConsumers(sim, "late", GROUP)
    await Chaos(sim, {**member_group.actions(), "parts are added": grow}).run(18)
    await sim.calm()
    await member_group.settle()


async def lowered_session_timeout(sim: Sim) -> None:
    """The session timeout is lowered while members work, lose answers and are cut off."""
    await sim.begin(**consumer_settings(group_consumer_session_timeout_ms=LONG_SESSION_MS))
    member_group = member_group_of(sim, [3], is_static=False)
    action_names = ("join", "cut off", "cut off again", "hang up", "freeze")
    actions = {**member_group.actions(), "cut off again": Chaos(sim).cut_off}
    await sim.sleep(5 + 5 * sim.random.random())
    sim.network.loss = LOSS
    session_ms = sim.random.randint(SESSION_MS // 2, SESSION_MS)
    assert sim.coordinator.current is not None
    sim.coordinator.current.set_of_group(GROUP, {"consumer.session.timeout.ms": str(session_ms)})
    await Chaos(sim, actions).run(20, action_names, pause_s=4.0)
    await sim.calm()
    await member_group.settle()


async def consumer_churn(sim: Sim) -> None:
    """Members join and leave all the time, on a network that is late and loses answers; appends are refused."""
    await sim.begin(**consumer_settings())
    sim.network.late_s = LATE_S
    member_group = member_group_of(sim, [sim.random.randint(2, 4)], is_static=False)

    def lose() -> None:
        sim.network.loss = LOSS

    def read_nothing() -> None:
        """Until sessions have ended, whose next heartbeats are there."""
        sim.network.overload(SESSION_MS / 1000 + sim.random.random())

    actions = {**member_group.actions(), "losses": lose, "nothing is read": read_nothing}
    await Chaos(sim, actions).run(20, (*actions, "appends refused", "overload", "crash"), pause_s=CHURN_PAUSE_S)
    await sim.calm()
    await member_group.settle()
