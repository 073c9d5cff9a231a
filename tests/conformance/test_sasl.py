"""Each script of ``sasl_scripts`` gets the answers of a real Kafka."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import async_test, running_node
from sasl_helpers import running_sasl_node

from .sasl_scripts import GOLDEN, SCRIPTS, WITHOUT_SASL, Script, as_json, play

RECORDED: dict[str, dict[str, Any]] = json.loads(GOLDEN.read_text())


def differences(expected: dict[str, Any], played: dict[str, Any]) -> dict[str, Any]:
    assert expected.keys() == played.keys()
    return {name: (expected[name], played[name]) for name in expected if expected[name] != played[name]}


async def play_all(port: int, scripts: Mapping[str, Script]) -> dict[str, Any]:
    """In another thread, one after the other."""
    address = "127.0.0.1", port
    return {name: as_json(await asyncio.to_thread(play, address, script)) for name, script in scripts.items()}


@async_test
async def test_answers_before_authentication_are_those_of_kafka(tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path) as harness:
        played = await play_all(harness.port, SCRIPTS)
    assert differences(RECORDED["sasl"], played) == {}


@async_test
async def test_answers_of_a_listener_without_sasl_are_those_of_kafka(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        played = await play_all(harness.port, WITHOUT_SASL)
    assert differences(RECORDED["without sasl"], played) == {}
