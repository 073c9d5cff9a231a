"""The description of the HTTP API: it has each route and nothing else, and each answer is as it says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from http_api_helpers import DESCRIPTION, OPERATIONS, REASON, Api, make_groups, run
from jsonschema import Draft202012Validator
from starlette.routing import Route

from callboard import Coordinator
from callboard.runtime.embed.port import port_of
from callboard.runtime.web import changing as changing_module
from callboard.runtime.web.application import API, make_routes
from callboard.runtime.web.backend import Backend
from callboard.runtime.web.group_list import LIMIT_MAX, SORTS, STATES
from callboard.runtime.web.server_api import make_server_api
from callboard.runtime.web.snapshots import Snapshots


def routes() -> list[Route]:
    backend = Backend(port_of(Coordinator()))
    snapshots = Snapshots(backend)
    changing = changing_module.Changing(backend, snapshots)
    return make_routes(backend, snapshots, changing, make_server_api(backend, changing))


def validator(schema: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator({**schema, "components": DESCRIPTION["components"]})


def operation_of(method: str, path: str) -> dict[str, Any]:
    """The operation of a request, by its path as it was sent."""
    [template] = [
        known
        for wanted, known in OPERATIONS
        if wanted == method and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", known), path.removeprefix(API))
    ]
    operation: dict[str, Any] = OPERATIONS[method, template]
    return operation


def test_description_has_each_route_and_no_other() -> None:
    served = {(method, route.path.removeprefix(API)) for route in routes() for method in route.methods or ()}
    assert {row for row in served if row[0] != "HEAD"} == set(OPERATIONS)


def test_parameters_of_paths_are_described() -> None:
    for (_, path), operation in OPERATIONS.items():
        described = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
        assert described == set(re.findall(r"\{(\w+)\}", path))


def test_schemas_are_schemas() -> None:
    for schema in DESCRIPTION["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_parameters_of_the_list_are_those_of_the_code() -> None:
    parameters = {each["name"]: each for each in OPERATIONS["GET", "/groups"]["parameters"]}
    assert set(parameters["sort"]["schema"]["enum"]) == set(SORTS)
    assert parameters["limit"]["schema"]["maximum"] == LIMIT_MAX
    assert f"commas: {', '.join(STATES)}." in parameters["state"]["description"]
    reason = DESCRIPTION["components"]["schemas"]["Reason"]["properties"]["reason"]
    assert reason["maxLength"] == changing_module.REASON_CHARACTERS_MAX


def test_answers_are_as_described(tmp_path: Path) -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        await make_groups(coordinator)
        await coordinator.delete_topic("mails")
        async with coordinator.member("images", resources={"jobs": 3}):
            for path in ("groups?limit=1", "groups", "groups/images", "groups/images/members", "groups/images/offsets"):
                await api.request("GET", path)
            for path in ("explain", "rebalances?limit=5"):
                await api.request("GET", f"groups/images/{path}")
            await api.request("PATCH", "settings", REASON | {"values": {"group_max_session_timeout_ms": 1_700_000}})
            for path in (
                "topics/jobs/groups",
                "lag?group=images&group=mails",
                "settings",
                "openapi.json",
                "actors",
                "log",
                "audit",
            ):
                await api.request("GET", path)
            await api.request("POST", "groups/images/evict", REASON)
        await api.request("POST", "log/compact", REASON | {"dry_run": True})
        reset = REASON | {"targets": [{"topic": "jobs", "to": "earliest"}], "dry_run": True}
        await api.request("POST", "groups/images/reset", reset)
        done = await api.request("POST", "groups/images/reset", reset | {"dry_run": False})
        for path in ("groups/images/resets", f"changes/{done.json()['change']}"):
            await api.request("GET", path)
        await api.request("POST", f"changes/{done.json()['change']}/undo", REASON)
        offsets = REASON | {"partitions": [{"topic": "jobs", "partition": 0}]}
        await api.request("DELETE", "groups/images/offsets", offsets)
        await api.request("DELETE", "groups/mails", REASON)
        assert all(response.status_code == 200 for response in api.responses)
        for path in ("groups?sort=x", "groups/none", "topics/none/groups"):
            await api.request("GET", path)
        for response in api.responses:
            check_answer(response)
        asked = {id(operation_of(each.request.method, each.request.url.path)) for each in api.responses}
        streams = {id(OPERATIONS["GET", "/events"])}  # it has no end, see test_http_events.py
        assert asked | streams == set(map(id, OPERATIONS.values()))

    run(check, data=tmp_path)


def check_answer(response: Any) -> None:
    operation = operation_of(response.request.method, response.request.url.path)
    described = operation["responses"]["200" if response.status_code == 200 else "default"]
    media_type = response.headers["content-type"].partition(";")[0]
    validator(described["content"][media_type]["schema"]).validate(response.json())
    if response.request.method != "GET":
        body = operation["requestBody"]["content"]["application/json"]["schema"]
        validator(body).validate(json.loads(response.request.content))


def test_schema_notices_a_missing_field_and_one_too_many() -> None:
    schema = validator({"$ref": "#/components/schemas/Changed"})
    assert schema.is_valid({"group": "a"})
    assert not schema.is_valid({})
    assert not schema.is_valid({"group": "a", "other": 1})


def test_description_is_served() -> None:
    async def check(coordinator: Coordinator, api: Api) -> None:
        assert await api.json("openapi.json") == DESCRIPTION

    run(check)
