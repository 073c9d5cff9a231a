"""docs/http.md has each path and parameter of the API and no others, and its code runs."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from doc_pages import DOCS, dead_links, sections
from http_api_helpers import DESCRIPTION, OPERATIONS, Api
from jsonschema import Draft202012Validator

from callboard.runtime.web.application import API

PAGE = DOCS / "http.md"
TEXT = PAGE.read_text()


def test_paths_are_those_of_the_api() -> None:
    documented = re.findall(r"^\| `(GET|PATCH|POST|DELETE) (/[^`]*)` \|", TEXT, re.MULTILINE)
    assert sorted(documented) == sorted((method, API + path) for method, path in OPERATIONS)


def test_parameters_are_those_of_the_list() -> None:
    table = TEXT.partition("| parameter | which groups |")[2].partition("\n\n")[0]
    documented = {name for line in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    assert documented == {each["name"] for each in OPERATIONS["GET", "/groups"]["parameters"]}


def test_fields_of_bodies_are_those_of_the_api() -> None:
    table = TEXT.partition("| path | what | body beside `reason` |")[2].partition("\n\n")[0]
    documented = set(re.findall(r"`(\w+)`:", table))
    assert documented == {"members", "instances", "partitions", "targets", "dry_run", "values"}


def test_service_of_the_page_answers() -> None:
    [block] = [block for found in sections(PAGE).values() for block in found]
    names: dict[str, Any] = {}
    exec(compile(block.code, str(PAGE), "exec"), names)

    async def check() -> None:
        async with names["coordinator"] as coordinator:
            await coordinator.reset("test", {("jobs", 0): 0})
            api = Api(names["service"], "http://service/callboard/api/v1/")
            assert [row["group"] for row in await api.items("groups?sort=-lag&limit=10")] == ["test"]
            await api.change("DELETE", "groups/test")
            error = await api.request("GET", "groups/test")
            assert error.json() == json_blocks()[-1]

    asyncio.run(check())


def test_progress_of_the_page_is_as_described() -> None:
    schema = {"$ref": "#/components/schemas/ResetProgress", "components": DESCRIPTION["components"]}
    Draft202012Validator(schema).validate(json_blocks()[0])


def json_blocks() -> list[Any]:
    return [json.loads(block.partition("```")[0]) for block in TEXT.split("```json\n")[1:]]


def test_links_lead_somewhere() -> None:
    assert dead_links(PAGE) == []
