"""A real server whose store gains and loses partitions while it serves: what clients see, and that nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from harness import (
    Client,
    NodeHarness,
    async_test,
    commit_values,
    fetch_values,
    heartbeat_values,
    join_and_sync,
    join_values,
    offsets,
    running_node,
    sync_values,
)
from log.toy_store import Toy, ToyOwnership, ToyStore
from transaction_api_helpers import TX, add_offsets, commit_offsets, end_transaction, init_producer_id

from callboard.actors.coordinator.partition_states import PartitionLife, PartitionState
from callboard.actors.javahash import offsets_partition
from callboard.runtime.node.environment import Environment

OFFSETS, TRANSACTIONS = 4, 3
LOADING, ELSEWHERE, OK = "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "NONE"

GROUP = "g"
HOME = offsets_partition(GROUP, OFFSETS)
OTHER = next(name for name in map(str, range(100)) if offsets_partition(name, OFFSETS) != HOME)
NEIGHBOUR = next(name for name in map(str, range(100)) if offsets_partition(name, OFFSETS) == HOME)
TX_HOME = OFFSETS + offsets_partition(TX, TRANSACTIONS)


class Served:
    """A node on a toy store, and a client of it."""

    def __init__(self, harness: NodeHarness, client: Client, toy: Toy) -> None:
        self.harness = harness
        self.client = client
        self._toy = toy

    @property
    def store(self) -> ToyStore:
        return self._toy.store

    @property
    def ownership(self) -> ToyOwnership:
        return self._toy.ownership

    def life(self, partition: int) -> PartitionLife:
        actors = self.harness.node.actors
        lives: list[PartitionLife] = [*actors.groups.partitions, *actors.transaction_table.partitions]
        return lives[partition]

    async def until(self, state: PartitionState, partition: int = HOME) -> None:
        """Wait until a partition is in a state."""
        while self.life(partition).state is not state:
            await asyncio.sleep(0.001)

    async def lose(self, partition: int = HOME) -> None:
        self.ownership.lose(partition)
        await self.until(PartitionState.CLOSED, partition)

    async def gain(self, partition: int = HOME) -> None:
        self.ownership.gain(partition)
        while self.life(partition).epoch != self.store.epochs[partition]:
            await asyncio.sleep(0.001)
        await self.until(PartitionState.ACTIVE, partition)

    async def commit(self, offset: int, group: str = GROUP) -> str:
        response: Any = await self.client.ask("offset_commit", 9, **commit_values(group, offset=offset))
        return str(response["topics"][0]["partitions"][0]["error_code"])

    async def fetch_error(self, group: str = GROUP) -> str:
        response: Any = await self.client.ask("offset_fetch", 9, **fetch_values(group))
        return str(response["groups"][0]["error_code"])


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Served]:
    toy = Toy()
    environment = Environment(store=toy.make)
    counts: dict[str, Any] = {
        "offsets_topic_num_partitions": OFFSETS,
        "transaction_state_log_num_partitions": TRANSACTIONS,
    }
    async with running_node(folder, environment=environment, **counts) as harness:
        yield Served(harness, await harness.connect(), toy)


async def answers(client: Client, group: str) -> dict[str, str]:
    """The error code of each request to a group."""
    member: dict[str, Any] = {"group_id": group, "generation_id": 1, "member_id": "m", "group_instance_id": None}
    joined: Any = await client.ask("join_group", **join_values(group))
    synced: Any = await client.ask("sync_group", **{**member, **SYNC})
    beaten: Any = await client.ask("heartbeat", **member)
    left: Any = await client.ask("leave_group", group_id=group, members=[])
    committed: Any = await client.ask("offset_commit", 9, **commit_values(group))
    fetched: Any = await client.ask("offset_fetch", 9, **fetch_values(group))
    deleted_offsets: Any = await client.ask("offset_delete", group_id=group, topics=[])
    describe: dict[str, Any] = {"groups": [group], "include_authorized_operations": False}
    described: Any = await client.ask("describe_groups", **describe)
    deleted: Any = await client.ask("delete_groups", groups_names=[group])
    return {
        "JoinGroup": joined["error_code"],
        "SyncGroup": synced["error_code"],
        "Heartbeat": beaten["error_code"],
        "LeaveGroup": left["error_code"],
        "OffsetCommit": committed["topics"][0]["partitions"][0]["error_code"],
        "OffsetFetch": fetched["groups"][0]["error_code"],
        "OffsetDelete": deleted_offsets["error_code"],
        "DescribeGroups": described["groups"][0]["error_code"],
        "DeleteGroups": deleted["results"][0]["error_code"],
    }


SYNC: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range", "assignments": []}


async def listed(client: Client) -> tuple[str, set[str]]:
    response: Any = await client.ask("list_groups", states_filter=[], types_filter=[])
    return response["error_code"], {group["group_id"] for group in response["groups"]}


@async_test
async def test_requests_to_a_lost_partition_get_not_coordinator_and_others_are_served(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        assert await served.commit(5) == await served.commit(7, OTHER) == OK
        await served.lose()
        assert set((await answers(served.client, GROUP)).values()) == {ELSEWHERE}
        assert await offsets(served.client, OTHER) == {("t", 0): 7}
        assert await listed(served.client) == (OK, {OTHER}), "the partition is left out"
        found: Any = await served.client.ask("find_coordinator", key_type=0, coordinator_keys=[GROUP])
        assert found["coordinators"][0]["error_code"] == OK, "it does not depend on the partition"


@async_test
async def test_requests_while_a_partition_is_loading_get_kafkas_answers(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        assert await served.commit(5) == await served.commit(7, OTHER) == OK
        await served.lose()
        served.store.loads.clear()
        served.ownership.gain(HOME)
        await served.until(PartitionState.LOADING)
        codes = await answers(served.client, GROUP)
        assert codes.pop("Heartbeat") == OK
        assert set(codes.values()) == {LOADING}
        assert await listed(served.client) == (LOADING, set()), "as a whole, without the groups of other partitions"
        assert await offsets(served.client, OTHER) == {("t", 0): 7}
        served.store.loads.set()
        await served.until(PartitionState.ACTIVE)
        assert await offsets(served.client, GROUP) == {("t", 0): 5}


@async_test
async def test_requests_to_a_partition_that_cannot_be_loaded_get_not_coordinator_until_it_is_gained_again(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as served:
        assert await served.commit(5) == OK
        await served.lose()
        served.store.failures[HOME] = "the disk is gone"
        served.ownership.gain(HOME)
        await served.until(PartitionState.FAILED)
        assert await served.commit(6) == await served.fetch_error() == ELSEWHERE
        assert served.harness.node.groups.partitions[HOME].failure == "the disk is gone"
        del served.store.failures[HOME]
        await served.gain()
        assert await offsets(served.client, GROUP) == {("t", 0): 5}


@async_test
async def test_parked_join_and_sync_get_not_coordinator_when_the_partition_is_lost(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        first, second = served.client, await served.harness.connect()
        member = await join_and_sync(first, GROUP)
        needed: Any = await second.ask("join_group", **join_values(GROUP))
        parked = asyncio.create_task(second.ask("join_group", **join_values(GROUP, needed["member_id"])))
        while served.harness.node.groups.listed[GROUP].state != "PreparingRebalance":
            await asyncio.sleep(0.001)
        await served.lose()
        assert (await parked)["error_code"] == ELSEWHERE
        assert (await first.ask("heartbeat", **heartbeat_values(GROUP, member)))["error_code"] == ELSEWHERE
        synced = await first.ask("sync_group", **sync_values(GROUP, member))
        assert synced["error_code"] == ELSEWHERE


@async_test
async def test_group_with_members_comes_back_with_its_generation_and_offsets(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        member = await join_and_sync(served.client, GROUP)
        await served.client.ask("offset_commit", 9, **commit_values(GROUP, member, offset=9))
        await served.lose()
        await served.gain()
        assert served.store.unloaded == [HOME]
        assert (await served.client.ask("heartbeat", **heartbeat_values(GROUP, member)))["error_code"] == OK
        assert await offsets(served.client, GROUP) == {("t", 0): 9}


@async_test
async def test_commit_in_flight_when_the_partition_is_lost_gets_not_coordinator(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        assert await served.commit(5) == OK
        served.store.appends.clear()
        commit = asyncio.create_task(served.commit(6))
        while not served.store._tasks:
            await asyncio.sleep(0.001)
        await served.lose()
        served.store.appends.set()
        assert await commit == ELSEWHERE
        await served.gain()
        assert await offsets(served.client, GROUP) == {("t", 0): 5}, "the store has refused the old epoch"
        assert await served.commit(7) == OK


@async_test
async def test_refused_append_gets_not_coordinator_and_unloads_the_partition(tmp_path: Path) -> None:
    """Another node has taken the partition, and this one learns it from the store."""
    async with serving(tmp_path) as served:
        assert await served.commit(5) == await served.commit(5, OTHER) == OK
        served.ownership.steal(HOME)
        assert await served.commit(6) == ELSEWHERE
        await served.until(PartitionState.CLOSED)
        assert await served.fetch_error(NEIGHBOUR) == ELSEWHERE
        assert await served.commit(6, OTHER) == OK
        await served.gain()
        assert await offsets(served.client, GROUP) == {("t", 0): 5}


@async_test
async def test_partition_gained_back_before_its_loss_was_noticed_is_loaded_again(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        assert await served.commit(5) == OK
        served.ownership.steal(HOME)
        await served.gain()
        assert await offsets(served.client, GROUP) == {("t", 0): 5}
        assert await served.commit(6) == OK
        assert served.store.unloaded == [HOME]


@async_test
async def test_fenced_store_unloads_all_partitions(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        assert await served.commit(5) == OK
        served.ownership.fence()
        for partition in range(OFFSETS + TRANSACTIONS):
            await served.until(PartitionState.CLOSED, partition)
        assert await served.commit(6) == await served.commit(6, OTHER) == ELSEWHERE
        assert await listed(served.client) == (OK, set())


@async_test
async def test_partition_lost_while_it_is_loading_is_closed_and_comes_back(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        assert await served.commit(5) == OK
        await served.lose()
        served.store.loads.clear()
        served.ownership.gain(HOME)
        await served.until(PartitionState.LOADING)
        await served.lose()
        served.store.loads.set()
        assert await served.fetch_error() == ELSEWHERE
        await served.gain()
        assert await offsets(served.client, GROUP) == {("t", 0): 5}


@async_test
async def test_transactional_id_of_a_lost_partition_gets_not_coordinator_and_comes_back(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        client = served.client
        producer = await init_producer_id(client)
        assert await add_offsets(client, producer) == OK
        assert await commit_offsets(client, producer, 5) == {("t", 0): OK}
        await served.lose(TX_HOME)
        refused: Any = await client.ask("end_txn", 3, transactional_id=TX, committed=True, **producer)
        assert refused["error_code"] == ELSEWHERE
        described: Any = await client.ask("describe_transactions", transactional_ids=[TX])
        assert described["transaction_states"][0]["error_code"] == ELSEWHERE
        values: dict[str, Any] = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
        transactions: Any = await client.ask("list_transactions", 1, **values)
        assert (transactions["error_code"], transactions["transaction_states"]) == (OK, [])
        await served.gain(TX_HOME)
        assert (await end_transaction(client, producer))["error_code"] == OK
        while await offsets(client, GROUP) != {("t", 0): 5}:
            await asyncio.sleep(0.01)


@async_test
async def test_marker_for_a_lost_partition_is_written_when_it_is_back(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        client = served.client
        producer = await init_producer_id(client)
        assert await add_offsets(client, producer) == OK
        assert await commit_offsets(client, producer, 5) == {("t", 0): OK}
        await served.lose(HOME)
        assert (await end_transaction(client, producer))["error_code"] == OK, "the decision is durable"
        await served.gain(HOME)
        assert await offsets(client, GROUP) == {}, "the offset is pending"
        while await offsets(client, GROUP) != {("t", 0): 5}:  # the next attempt follows after a second
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("seed", range(6))
@async_test
async def test_nothing_acknowledged_is_lost_while_partitions_come_and_go(tmp_path: Path, seed: int) -> None:
    """Commits to several groups while their partitions are lost, stolen, and gained; each commit has a new offset."""
    random, groups = Random(seed), [str(number) for number in range(6)]
    async with serving(tmp_path) as served:
        acknowledged = dict.fromkeys(groups, 0)
        is_done = False

        async def commit(group: str) -> None:
            client, offset = await served.harness.connect(), 0
            while not is_done:
                offset += 1
                values = commit_values(group, offset=offset)
                response: Any = await client.ask("offset_commit", 9, **values)
                if response["topics"][0]["partitions"][0]["error_code"] == OK:
                    acknowledged[group] = offset

        commits = [asyncio.create_task(commit(group)) for group in groups]
        owned = set(range(OFFSETS))
        for _ in range(60):
            await asyncio.sleep(random.random() * 0.01)
            partition = random.randrange(OFFSETS)
            if partition in owned:
                owned.discard(partition)
                random.choice((served.ownership.lose, served.ownership.steal))(partition)
            else:
                owned.add(partition)
                served.ownership.lose(partition)  # a stolen one, which this node may not have noticed yet
                served.ownership.gain(partition)
        for partition in range(OFFSETS):
            served.ownership.lose(partition)
            await served.gain(partition)
        is_done = True
        await asyncio.gather(*commits)
        for group in groups:
            committed = (await offsets(served.client, group)).get(("t", 0), 0)
            assert committed >= acknowledged[group] > 0, group
