"""DescribeCommits: when each offset of a group was committed, and how many commits there were."""

from __future__ import annotations

from actor_system.requests import GROUP, commit
from actor_system.simulation import CoordinatorSimulation

from callboard.actors.errors import ErrorCode
from callboard.actors.messages import Commit, CommitsDescribed, DescribeCommits, OffsetCommit
from callboard.actors.steps import SHORT_WORK_ITEMS

DESCRIBE = DescribeCommits(GROUP)


def test_each_offset_has_the_time_of_its_last_commit() -> None:
    simulation = CoordinatorSimulation()
    first_ms = simulation.clock.wall_ms()
    offsets = tuple(Commit("t", partition, 5, -1, "") for partition in range(2))
    simulation.post(OffsetCommit(GROUP, "", None, -1, offsets))
    simulation.advance(1000)
    simulation.post(OffsetCommit(GROUP, "", None, -1, offsets[:1]))
    expected = (("t", ((0, first_ms + 1000), (1, first_ms))),)
    assert simulation.post(DESCRIBE).value == CommitsDescribed(ErrorCode.NONE, 2, expected, first_ms + 1000)


def test_refused_commits_do_not_count() -> None:
    simulation = CoordinatorSimulation()
    [member] = simulation.form_group({})
    simulation.post(commit(9, member_id=member.member_id, generation_id=member.generation_id + 1))
    assert simulation.post(DESCRIBE).value[:3] == (ErrorCode.NONE, 0, ())
    simulation.post(commit(9, member_id=member.member_id, generation_id=member.generation_id))
    assert simulation.post(DESCRIBE).value.commits == 1


def test_many_offsets_are_described_in_steps() -> None:
    simulation = CoordinatorSimulation()
    count = 2 * SHORT_WORK_ITEMS
    simulation.post(OffsetCommit(GROUP, "", None, -1, tuple(Commit("t", each, 5, -1, "") for each in range(count))))
    [(topic, dates)] = simulation.post(DESCRIBE).value.topics
    assert (topic, [partition for partition, _ in dates]) == ("t", list(range(count)))


def test_group_that_does_not_exist() -> None:
    assert CoordinatorSimulation().post(DESCRIBE).value == CommitsDescribed(ErrorCode.GROUP_ID_NOT_FOUND)
