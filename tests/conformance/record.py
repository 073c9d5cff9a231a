"""Records the responses of a real Kafka: ``python -m conformance.record`` in the folder of the tests.

    record [--broker HOST:PORT] scenarios [CHAPTER ...]    the scenarios, into golden/CHAPTER.json
    record [--broker HOST:PORT] seeds [KIND ...]           random scripts, into golden/seeds-KIND.json.xz

It starts one Kafka for each combination of settings, which needs Java and Maven, or uses a running broker that has
these settings. Every script is played at three speeds (``kafka_server.SPEEDS``). If the responses of a scenario
differ, that is an error of the scenario, and nothing is written. If those of a random script differ, it is dropped.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

from real_kafka.kafka import TEST_SETTINGS, VERSION, RealKafka

from .golden import Played, Responses, write_chapter, write_seeds
from .kafka_server import CAREFUL_SPEEDS, SPEEDS, KafkaServer, Speed, prepare_broker
from .kinds import KINDS, Kind
from .playing import Play, play
from .random_scripts import write
from .scenarios import CHAPTERS, Settings
from .script import Script
from .steps import commit, delete, describe, fetch, leave, pair

PARALLEL_SCRIPTS = 24  # scripts played in parallel; with more, late responses cannot be told from pending ones

WARM_UP: Script = [*pair(), leave("C", "$A1", "$B1"), commit("A"), fetch("A"), describe("A"), delete("A")]
WARM_UP_ROUNDS = 4
SLOW = Speed(1.0, 0.0, 1.0)
SEED_SPEEDS = (SPEEDS[0], SPEEDS[1], SPEEDS[2]._replace(pause_s=0.06))
"""The last one has long pauses, so that scripts whose responses depend on the duration of steps are dropped."""


class Broker:
    """A running Kafka broker, with the topics of the scripts."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._topics: dict[str, UUID] = prepare_broker(host, port)
        self.places = asyncio.Semaphore(PARALLEL_SCRIPTS)

    def server(self, speed: Speed) -> KafkaServer:
        return KafkaServer(*self._address, self._topics, speed)

    async def warm_up(self) -> None:
        """Send each request before the recording: a new broker handles the first ones slowly."""
        for _ in range(WARM_UP_ROUNDS):
            await asyncio.gather(*(self.play("warm-up", WARM_UP, SLOW) for _ in range(PARALLEL_SCRIPTS)))

    async def play_at_each_speed(self, name: str, script: Script) -> list[Responses]:
        """Return the responses of one run at each speed."""
        return list(await asyncio.gather(*(self.play(name, script, speed) for speed in CAREFUL_SPEEDS)))

    async def play(self, name: str, script: Script, speed: Speed) -> Responses:
        async with self.places:
            try:
                return await play(self.server(speed), script)
            except Exception as error:
                error.add_note(f"in {name}")
                raise


@contextmanager
def kafka(settings: Settings, broker: str | None) -> Iterator[tuple[str, int]]:
    """The address of a new Kafka with these settings, or that of ``broker``."""
    if broker is not None:
        host, _, port = broker.rpartition(":")
        yield host, int(port)
        return
    with tempfile.TemporaryDirectory() as folder:
        server = RealKafka(Path(folder), {**TEST_SETTINGS, **settings})
        server.start()
        try:
            yield server.host, server.port
        finally:
            server.stop()


async def record(
    address: tuple[str, int], scripts: Mapping[str, Script], parallel_scripts: int
) -> dict[str, Responses]:
    """Return the responses by script. Raises AssertionError if they differ between the runs of a script."""
    broker = Broker(*address)
    await broker.warm_up()
    broker.places = asyncio.Semaphore(parallel_scripts)
    results = await asyncio.gather(*(broker.play_at_each_speed(name, script) for name, script in scripts.items()))
    recorded = dict(zip(scripts, results, strict=True))
    differences = [
        _difference(name, scripts[name], runs) for name, runs in recorded.items() if runs.count(runs[0]) != 3
    ]
    assert not differences, "Kafka's responses differ between runs:\n" + "\n".join(differences)
    return {name: runs[0] for name, runs in recorded.items()}


async def record_seed(broker: Broker, kind: Kind, seed: int) -> Played | None:
    """Return a random script with its responses; None if they differ between runs."""
    async with broker.places:
        server = broker.server(SEED_SPEEDS[0])
        try:
            script, responses = await write(seed, Play(server), kind.author)
        finally:
            await server.leave()
    speeds = [*SEED_SPEEDS[1:], *(SEED_SPEEDS * 2 if _leader_is_random(responses) else ())]
    for speed in speeds:
        try:
            if await broker.play(f"seed {seed}", script, speed) != responses:
                return None
        except KeyError:  # a response lacks a member id that the first run had
            return None
    return Played(seed=seed, steps=script, responses=responses)


def _leader_is_random(responses: Responses) -> bool:
    """Whether a group of several members has changed its leader: Kafka takes the first key of a hash map."""
    flat = [response for after_step in responses for number, response in after_step if isinstance(number, int)]
    joins = [response for response in flat if response.get("leader")]
    return any(old["leader"] != new["leader"] and _has_several_members(new) for old, new in pairwise(joins))


def _has_several_members(response: Any) -> bool:
    """Whether the group has several members, by the response of the leader or, if it disconnected, of a follower."""
    return response["leader"] != response["member_id"] or len(response["members"]) > 1


async def record_seeds(address: tuple[str, int], kinds: Mapping[str, Kind]) -> dict[str, list[Played]]:
    """Return the random scripts whose responses are the same in all runs, by kind."""
    broker = Broker(*address)
    await broker.warm_up()
    seeds = [(name, seed) for name, kind in kinds.items() for seed in range(1, kind.seeds + 1)]
    results = await asyncio.gather(*(record_seed(broker, kinds[name], seed) for name, seed in seeds))
    recorded: dict[str, list[Played]] = {name: [] for name in kinds}
    for (name, _), result in zip(seeds, results, strict=True):
        recorded[name] += [result] if result is not None else []
    return recorded


def seeds(names: list[str], broker: str | None) -> None:
    """Record random scripts; kinds with the same settings share a server."""
    remaining = {name: KINDS[name] for name in names or KINDS}
    while remaining:
        settings = next(iter(remaining.values())).settings
        kinds = {name: remaining.pop(name) for name in list(remaining) if remaining[name].settings == settings}
        with kafka(settings, broker) as address:
            recorded = asyncio.run(record_seeds(address, kinds))
        for name, played in recorded.items():
            write_seeds(name, VERSION, played)
            print(f"{name}: {len(played)} of {kinds[name].seeds} random scripts recorded")


def _difference(name: str, script: Script, runs: list[Responses]) -> str:
    number = next(
        number
        for number, responses in enumerate(zip(*runs, strict=True))
        if responses.count(responses[0]) != len(responses)
    )
    lines = "\n".join(f"    {json.dumps(run[number])}" for run in runs)
    return f"{name}, step {number}: {script[number]}\n{lines}"


def scenarios(names: list[str], broker: str | None) -> None:
    """Record scenarios; chapters with the same settings share a server."""
    remaining = {name: CHAPTERS[name] for name in names or CHAPTERS}
    while remaining:
        settings = next(iter(remaining.values())).settings
        chapters = {name: remaining.pop(name) for name in list(remaining) if remaining[name].settings == settings}
        with kafka(settings, broker) as address:
            scripts = {
                f"{name}/{scenario}": script
                for name in chapters
                for scenario, script in chapters[name].scenarios.items()
            }
            is_alone = any(chapter.changes_cluster for chapter in chapters.values())
            recorded = asyncio.run(record(address, scripts, 1 if is_alone else PARALLEL_SCRIPTS))
        for name, chapter in chapters.items():
            write_chapter(name, VERSION, {scenario: recorded[f"{name}/{scenario}"] for scenario in chapter.scenarios})
            print(f"{name}: {len(chapter.scenarios)} scenarios")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="record", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--broker", help="HOST:PORT of a running Kafka with the required settings")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("scenarios").add_argument("chapters", nargs="*", choices=[[], *CHAPTERS])
    commands.add_parser("seeds").add_argument("kinds", nargs="*", choices=[[], *KINDS])
    options = parser.parse_args(arguments)
    if options.command == "seeds":
        seeds(options.kinds, options.broker)
    else:
        scenarios(options.chapters, options.broker)


if __name__ == "__main__":
    main(sys.argv[1:])
