"""In a cluster each node answers about each group, over HTTP: two nodes, with the store in a folder."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaProducer
from audit_helpers import audit_lines
from confluent_kafka import Consumer
from harness import async_test
from http_api_helpers import REASON, Api
from page_helpers import rows

import callboard.web
from callboard import Coordinator
from callboard.actors.javahash import offsets_partition
from callboard.runtime.cluster.register import Register
from callboard.runtime.kafka.api import api_versions
from callboard.runtime.security.audit_file import FILE_NAME

DEADLINE_S = 60.0
COUNTS: Any = {"offsets_topic_num_partitions": 4, "transaction_state_log_num_partitions": 2}
GROUPS = tuple(f"group-{number}" for number in range(6))


class Served(NamedTuple):
    coordinator: Coordinator
    api: Api

    @property
    def register(self) -> Register:
        cluster: Any = self.coordinator.node.environment.cluster
        register: Register = cluster.ownership.register
        return register

    @property
    def node_id(self) -> int:
        return self.coordinator.node.services.cluster.node_id

    def owner_of(self, group: str) -> int:
        """The id of the node that owns a group."""
        register = self.register
        return register.nodes[register.owners[offsets_partition(group, register.counts.offsets)]].node_id

    def changes(self, group: str) -> list[dict[str, Any]]:
        """What the audit trail of this node says about a group."""
        lines = audit_lines(self.coordinator.node.data.folder.path)
        return [line for line in lines if line.get("resource") == f"Group:{group}"]


@asynccontextmanager
async def two_nodes(folder: Path, **options: Any) -> AsyncIterator[tuple[Served, Served]]:
    store = folder / "store"
    store.mkdir()
    settings = {**COUNTS, **options}
    async with (
        asyncio.timeout(DEADLINE_S),
        Coordinator(folder / "a", cluster=store.as_uri(), node_name="a", topics={"jobs": 2}, **settings) as first,
        Coordinator(folder / "b", cluster=store.as_uri(), node_name="b", topics={"jobs": 2}, **settings) as second,
    ):
        nodes = (
            Served(first, Api(callboard.web.app(first))),
            Served(second, Api(callboard.web.app(second))),
        )
        while not all(is_settled(node.register) for node in nodes):
            await asyncio.sleep(0.02)
        for group in GROUPS:
            await first.reset(group, {("jobs", 0): 0, ("jobs", 1): 0})
        yield nodes


def is_settled(register: Register) -> bool:
    """Whether both nodes have half of the partitions: they do not move any more."""
    counts = Counter(register.owners)
    return len(counts) == 2 and len(set(counts.values())) == 1


@async_test
async def test_both_nodes_answer_about_all_groups(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, group_initial_rebalance_delay_ms=0) as (first, second):
        assert {first.owner_of(group) for group in GROUPS} == {first.node_id, second.node_id}
        for group in GROUPS:
            async with second.coordinator.member(group, resources={"jobs": 2}) as member:
                await anext(aiter(member.assignments()))
                answers = [
                    [
                        await node.api.json(f"groups/{group}"),
                        await node.api.items(f"groups/{group}/members"),
                        [(row["partition"], row["offset"]) for row in await node.api.items(f"groups/{group}/offsets")],
                        (await node.api.json(f"groups/{group}/explain"))["rebalances"],
                    ]
                    for node in (first, second)
                ]
                assert answers[0] == answers[1]
                described, members, offsets, rebalances = answers[0]
                assert (described["state"], len(members), offsets) == ("Stable", 1, [(0, 0), (1, 0)])
                assert rebalances[0]["cause"] == "new_member"
        for node in (first, second):
            assert (await node.api.request("GET", "groups/unknown")).status_code == 404
            assert (await node.api.request("GET", "groups/unknown/explain")).status_code == 404


async def states(node: Served) -> dict[str, tuple[Any, ...]]:
    return {row["group"]: (row["state"], row["members"], row["lag"]) for row in await node.api.items("groups")}


@async_test
async def test_list_has_the_groups_of_all_nodes(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, group_initial_rebalance_delay_ms=0, offsets_retention_minutes=60) as nodes:
        for node in nodes:
            while len(found := await states(node)) < len(GROUPS):
                await asyncio.sleep(0.05)
            lags = {lag for _, _, lag in found.values()}
            assert None not in lags, "the leader of the topic was asked, wherever it is"
            assert {state for state, _, _ in found.values()} == {"Empty"}
            page = await node.api.json("groups?limit=2&sort=-group")
            assert [row["group"] for row in page["items"]] == ["group-5", "group-4"]
            following = await node.api.json(f"groups?limit=2&sort=-group&after={page['after']}")
            assert [row["group"] for row in following["items"]] == ["group-3", "group-2"]
            assert (page["incomplete"], following["incomplete"]) == ([], [])
            assert len(await node.api.items("topics/jobs/groups")) == len(GROUPS)
        async with nodes[0].coordinator.member(GROUPS[0], resources={"jobs": 2}) as member:
            await anext(aiter(member.assignments()))
            for node in nodes:
                while (await states(node))[GROUPS[0]][:2] != ("Stable", 1):
                    await asyncio.sleep(0.05)
            last = [(await node.api.items("groups"))[0]["last_rebalance"] for node in nodes]
            assert last[0] == last[1] and last[0]["cause"] == "new_member"
            assert "The log of a cluster is in its store" in await nodes[0].api.page("log")
        await nodes[0].coordinator.evict_and_reset(GROUPS[0], {("jobs", 0): 0})
        for node in nodes:
            guarded = await node.api.eventually("groups?guarded=true", bool)
            assert [row["group"] for row in guarded] == [GROUPS[0]]
            assert None not in [row["expires_at"] for row in await node.api.items("groups")]
        for node in nodes:
            other = next(group for group in GROUPS[1:] if node.owner_of(group) != node.node_id)
            await node.api.change("DELETE", f"groups/{other}")
            assert other not in await states(node), "a change is in the next page"


@async_test
async def test_changes_on_another_node_name_both_nodes_in_the_audit_trail(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, audit="file", group_initial_rebalance_delay_ms=0) as (first, second):
        group = next(group for group in GROUPS if first.owner_of(group) == second.node_id)
        asked = f"groups/{group}"
        async with second.coordinator.member(group, resources={"jobs": 2}) as member:
            await anext(aiter(member.assignments()))
            evicted = await first.api.change("POST", f"{asked}/evict")
            assert len(evicted["removed"]) == 1
        targets = [{"topic": "jobs", "partition": 0, "to": 7}]
        for to in ("latest", {"time": "2026-01-31T08:00:00Z"}):  # known to the leader of the topic only
            at_end = [{"topic": "jobs", "partition": 0, "to": to}]
            for node in (first, second):
                plan = await node.api.change("POST", f"{asked}/reset", targets=at_end, dry_run=True)
                assert plan["partitions"][0]["after"] >= 10**12, "where a topic of a cluster begins"
        plan = await first.api.change("POST", f"{asked}/reset", targets=targets, dry_run=True)
        done = await first.api.change("POST", f"{asked}/reset", targets=targets)
        assert plan["partitions"] == done["partitions"]
        assert [(row["before"], row["after"]) for row in done["partitions"]] == [(0, 7)]
        assert (await second.coordinator.offsets(group))["jobs", 0].offset == 7
        await first.api.change("DELETE", f"{asked}/offsets", partitions=[{"topic": "jobs", "partition": 1}])
        await first.api.change("DELETE", asked)
        assert (await first.api.request("DELETE", asked, REASON)).status_code == 404
        while len(lines := second.changes(group)) < 4:  # they are written by a thread
            await asyncio.sleep(0.02)
        assert [line["operation"] for line in lines] == [
            "remove members",
            "reset",
            "delete offsets",
            "delete",
        ]
        for line in lines:
            assert (line["asked_on"], line["done_on"]) == (first.node_id, second.node_id)
            assert (line["principal"], line["listener"], line["reason"]) == (
                "User:ANONYMOUS",
                "web",
                REASON["reason"],
            )
        assert lines[1]["api"] == "POST /api/v1/groups/{group}/reset"
        assert not (tmp_path / "a" / FILE_NAME).exists(), "it has changed nothing itself"


@async_test
async def test_groups_of_a_node_that_dies_are_never_missing_without_its_id(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (first, second):
        moving, dead_id = next(group for group in GROUPS if first.owner_of(group) == second.node_id), second.node_id
        while len(await states(first)) < len(GROUPS):
            await asyncio.sleep(0.05)
        await second.coordinator._embedded.kill("killed")
        named: set[int] = set()
        while not named or len(await states(first)) < len(GROUPS):
            page = await first.api.json("groups")
            assert page["incomplete"] or len(page["items"]) == len(GROUPS)
            named.update(page["incomplete"])
            response = await first.api.request("GET", f"groups/{moving}")
            if response.status_code != 200:
                problem = response.json()
                assert (problem["status"], problem["error"]) == (503, "COORDINATOR_NOT_AVAILABLE")
                assert "ask again in some seconds" in problem["detail"]
            await asyncio.sleep(0.05)
        assert named <= {dead_id, first.node_id}
        assert (await first.api.json(f"groups/{moving}"))["state"] == "Empty"
        assert first.owner_of(moving) == first.node_id


@async_test
async def test_node_of_an_older_version_is_named(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api_versions, "OWN_PREFIX", "nobody")
        async with two_nodes(tmp_path) as (first, second):
            group = next(group for group in GROUPS if first.owner_of(group) == second.node_id)
            response = await first.api.request("GET", f"groups/{group}")
            assert response.status_code == 501
            text = f"node {second.node_id} has an older version of Callboard, which does not answer other nodes"
            assert text in response.json()["detail"]
            assert (await first.api.json("groups"))["incomplete"] == [second.node_id]
            html = await first.api.page("")
            assert f"Groups are missing: node {second.node_id} of the cluster does not answer." in html


@async_test
async def test_lag_and_missing_topics_are_explained_by_each_node(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, group_initial_rebalance_delay_ms=0) as (first, second):
        for group in GROUPS:
            async with second.coordinator.member(group, resources={"jobs": 2}) as member:
                await anext(aiter(member.assignments()))
            async with AIOKafkaProducer(bootstrap_servers=first.coordinator.bootstrap) as producer:
                await producer.send_and_wait("jobs", b"a job", partition=0)
            for node in (first, second):
                found = (await node.api.json(f"groups/{group}/explain"))["now"]["offsets"]["lag"]
                explained = await node.coordinator.explain(group)
                assert explained.now is not None and explained.now.offsets is not None
                assert found == explained.now.offsets.lag  # from 0; the records of a cluster begin far behind
                assert found % 1_000_000 == GROUPS.index(group) + 1


@async_test
async def test_reset_is_watched_listed_and_undone_by_a_node_that_was_not_asked_for_it(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, group_initial_rebalance_delay_ms=0) as (first, second):
        for group in (of_node(first, first), of_node(second, first)):
            targets = [{"topic": "jobs", "partition": 0, "to": None}]
            done = await first.api.change("POST", f"groups/{group}/reset", targets=targets)
            change = f"changes/{done['change']}"
            assert (await second.api.json(change))["sentence"] == "the group had no members"
            assert (await second.coordinator.reset_progress(done["change"])).group == group
            assert [row["change"] for row in await second.api.items(f"groups/{group}/resets")] == [done["change"]]
            undone = await second.api.change("POST", f"{change}/undo")
            assert undone["partitions"][0]["after"] == 0
            ids = [undone["change"], done["change"]]
            for node in (first, second):
                assert [row["change"] for row in await node.api.items(f"groups/{group}/resets")] == ids
                refused = await node.api.request("POST", f"{change}/undo", REASON)
                assert f"it was undone by change {undone['change']} already" in refused.json()["detail"]
        for node in (first, second):
            unknown = await node.api.request("GET", "changes/none")
            assert (unknown.status_code, "there is no record of it" in unknown.json()["detail"]) == (404, True)


@async_test
async def test_each_node_shows_the_software_and_the_principal_of_members(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, group_initial_rebalance_delay_ms=0) as (first, second):
        group = of_node(second, first)
        consumer = Consumer({"bootstrap.servers": first.coordinator.bootstrap, "group.id": group})
        consumer.subscribe(["jobs"])
        try:
            while not consumer.assignment():
                await asyncio.to_thread(consumer.poll, 0.05)
            for node in (first, second):
                [_, row] = rows(await node.api.page(f"groups/{group}?tab=members"))
                assert row.startswith("rdkafka 127.0.0.1 - confluent-kafka-python "), row
                assert " User:ANONYMOUS 2 jobs 0-1 rdkafka-" in row
        finally:
            await asyncio.to_thread(consumer.close)


def of_node(owner: Served, any_node: Served) -> str:
    return next(group for group in GROUPS if any_node.owner_of(group) == owner.node_id)
