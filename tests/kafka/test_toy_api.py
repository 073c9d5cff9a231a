"""An API without a group is added by one file and one row: the recipe in docs/contributing.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from authorizers import DenyingAuthorizer, Rule
from harness import Client, async_test, running_node

from callboard.runtime.kafka import api
from callboard.runtime.kafka.api import Api
from callboard.runtime.kafka.authorization.checks import DESCRIBE_TOPIC
from callboard.runtime.security.resources import Operation, ResourceType

FILE = Path(__file__).parent / "toy_apis" / "offset_for_leader_epoch.py"
ROW = Api(23, "offset_for_leader_epoch", 2, 4, items=(DESCRIBE_TOPIC,))
VERSIONS = range(ROW.min_version, ROW.max_version + 1)


@pytest.fixture
def _toy_api(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the file into the folder of the API modules, and the row into their table."""
    monkeypatch.setattr(api, "__path__", [*api.__path__, str(FILE.parent)])
    monkeypatch.setattr(api, "APIS", (*api.APIS, ROW))


async def ask(client: Client, version: int, *names: str) -> list[tuple[str, str, int]]:
    """Ask for the end of partition 0 of each topic; return names, errors and offsets."""
    partition = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    topics = [{"topic": name, "partitions": [partition]} for name in names]
    answer: Any = await client.ask(ROW.name, version, replica_id=-1, topics=topics)
    return [
        (topic["topic"], each["error_code"], each["end_offset"])
        for topic in answer["topics"]
        for each in topic["partitions"]
    ]


@pytest.mark.usefixtures("_toy_api")
@async_test
async def test_toy_api_is_served_and_advertised(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        for version in VERSIONS:
            shown = await ask(client, version, "t", "missing")
            assert shown == [("t", "NONE", 0), ("missing", "UNKNOWN_TOPIC_OR_PARTITION", -1)]
        advertised: Any = await client.ask("api_versions", 0)
        assert {"api_key": 23, "min_version": 2, "max_version": 4} in advertised["api_keys"]


@pytest.mark.usefixtures("_toy_api")
@async_test
async def test_toy_api_denies_items_by_check_of_its_row(tmp_path: Path) -> None:
    authorizer = DenyingAuthorizer(Rule(Operation.DESCRIBE, ResourceType.TOPIC, "u"))
    async with running_node(tmp_path, authorizer=authorizer) as harness:
        client = await harness.connect()
        for version in VERSIONS:
            shown = await ask(client, version, "t", "u")
            assert shown == [("t", "NONE", 0), ("u", "TOPIC_AUTHORIZATION_FAILED", -1)]


def test_recipe_names_the_files_of_the_toy_api() -> None:
    """The new file and the table, and no other file of the product."""
    page = (Path(__file__).parents[2] / "docs" / "contributing.md").read_text()
    _, _, rest = page.partition("## Add an API without a group\n")
    recipe = rest.partition("\n## ")[0]
    steps = [line for line in recipe.splitlines() if line.startswith(("1. ", "2. ", "3. "))]
    assert [step.split("`")[1] for step in steps] == ["runtime/kafka/api/NAME.py", "runtime/kafka/api/__init__.py"]
