"""A process learns which partitions its node may own soon, before it owns them. In virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator

import pytest

from callboard.runtime.cluster.register import planned_owners
from callboard.runtime.cluster.session_environment import SessionEnvironment

from .scale import Scale, Size


class Expectant(Scale):
    """``expected``: by all nodes since the last ``clear``."""

    def __init__(self) -> None:
        super().__init__(Size(nodes=3, partitions=50))
        self.expected: set[int] = set()

    def _environment(self) -> SessionEnvironment:
        return super()._environment()._replace(expect=self._expect)

    def _expect(self, partitions: Collection[int]) -> None:
        self.expected.update(partitions)


@pytest.fixture
def scale() -> Iterator[Expectant]:
    """Two nodes that share the partitions."""
    scale = Expectant()

    async def share() -> None:
        for name in ("n0", "n1"):
            scale.start_node(name)
        await scale.until(scale.is_balanced)
        scale.expected.clear()

    scale.loop.run_until_complete(share())
    yield scale
    scale.loop.end()


def test_partitions_of_a_silent_node_are_expected_before_it_is_declared_dead(scale: Expectant) -> None:
    async def kill() -> None:
        node, process = scale.nodes["n0"]
        partitions = set(node.values)
        await asyncio.sleep(10)
        assert not scale.expected
        process.kill()
        await scale.until(lambda: bool(scale.expected))
        register = scale.register()
        assert register is not None
        assert len(register.nodes) == 2
        assert scale.expected == partitions

    scale.loop.run_until_complete(kill())


def test_node_that_joins_expects_its_part_before_it_gets_it(scale: Expectant) -> None:
    async def join() -> None:
        scale.start_node("n2")
        await scale.until(lambda: bool(scale.expected))
        register = scale.register()
        assert register is not None
        [session] = [session for session, node in register.nodes.items() if node.name == "n2"]
        assert not register.owned(session)
        planned = planned_owners(register)
        assert scale.expected == {partition for partition, owner in enumerate(planned) if owner == session}

    scale.loop.run_until_complete(join())
