"""A short form of ``python -m cluster.scale``: twelve nodes, 60 partitions, a virtual minute."""

from __future__ import annotations

from .scale import Size, run

SIZE = Size(nodes=12, partitions=60, minutes=1)
TAKEOVER_TTLS = 2
RESTART_GAP_S = 1.0


def test_many_nodes() -> None:
    scale = run(SIZE)
    _start, idle, kills, many, restarts, _ = scale.stages
    for stage in scale.stages[:4]:
        assert stage.most - stage.least <= 1, stage.name
    assert idle.changes == 0
    assert idle.moved == 0
    assert max((*kills.times_s, *many.times_s)) <= TAKEOVER_TTLS * SIZE.ttl_s
    assert max(restarts.times_s) <= RESTART_GAP_S
    assert len(scale.served()) == sum(scale.counts)
    assert set(scale.served().values()) == {1}
