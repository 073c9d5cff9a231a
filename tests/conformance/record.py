"""Asks a real Kafka and writes down what it answers: ``python -m conformance.record`` in the folder of the tests.

    record [--broker HOST:PORT] scenarios [CHAPTER ...]    the scenarios, into golden/CHAPTER.json
    record [--broker HOST:PORT] seeds [KIND ...]           random scripts, into golden/seeds-KIND.json.xz

It starts a Kafka for each kind of settings (Java and Maven are needed), or takes one that runs with those settings.
Every script is played at three speeds (``kafka_server.SPEEDS``). A scenario that does not come out the same is an
error of the scenario, and nothing is written; a random script is dropped.
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

AT_ONCE = 24  # scripts that are played at the same time; more, and the broker answers too late to tell what is parked

WARM_UP: Script = [*pair(), leave("C", "$A1", "$B1"), commit("A"), fetch("A"), describe("A"), delete("A")]
WARM_UP_ROUNDS = 4
SLOW = Speed(1.0, 0.0, 1.0)
SEED_SPEEDS = (SPEEDS[0], SPEEDS[1], SPEEDS[2]._replace(pause_s=0.06))
"""One takes its steps so slowly that a script is dropped whose answers depend on how long they take."""


class Broker:
    """Where a Kafka answers."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._topics: dict[str, UUID] = prepare_broker(host, port)
        self.places = asyncio.Semaphore(AT_ONCE)

    def server(self, speed: Speed) -> KafkaServer:
        return KafkaServer(*self._address, self._topics, speed)

    async def warm_up(self) -> None:
        """A broker that has just started takes long for what it does for the first time."""
        for _ in range(WARM_UP_ROUNDS):
            await asyncio.gather(*(self.play("warm-up", WARM_UP, SLOW) for _ in range(AT_ONCE)))

    async def play_at_each_speed(self, name: str, script: Script) -> list[Responses]:
        """What came, once at each pace."""
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
    """A real Kafka with these settings, or the one that ``broker`` names."""
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


async def record(address: tuple[str, int], scripts: Mapping[str, Script]) -> dict[str, Responses]:
    """Each script's answers. Raises AssertionError where Kafka does not agree with itself."""
    broker = Broker(*address)
    await broker.warm_up()
    results = await asyncio.gather(*(broker.play_at_each_speed(name, script) for name, script in scripts.items()))
    recorded = dict(zip(scripts, results, strict=True))
    unsteady = [_difference(name, scripts[name], runs) for name, runs in recorded.items() if runs.count(runs[0]) != 3]
    assert not unsteady, "Kafka does not agree with itself:\n" + "\n".join(unsteady)
    return {name: runs[0] for name, runs in recorded.items()}


async def record_seed(broker: Broker, kind: Kind, seed: int) -> Played | None:
    """A random script that Kafka answers in the same way each time; None if it does not."""
    async with broker.places:
        server = broker.server(SEED_SPEEDS[0])
        try:
            script, came = await write(seed, Play(server), kind.author)
        finally:
            await server.leave()
    paces = [*SEED_SPEEDS[1:], *(SEED_SPEEDS * 2 if _leader_is_chance(came) else ())]
    for speed in paces:
        try:
            if await broker.play(f"seed {seed}", script, speed) != came:
                return None
        except KeyError:  # a member id that came the first time did not come
            return None
    return Played(seed=seed, steps=script, came=came)


def _leader_is_chance(came: Responses) -> bool:
    """Whether a group of two or more has got another leader: Kafka's choice is that of a hash map over random ids."""
    answers = [answer for answers in came for number, answer in answers if isinstance(number, int)]
    led = [answer for answer in answers if answer.get("leader")]
    return any(old["leader"] != new["leader"] and _is_of_several(new) for old, new in pairwise(led))


def _is_of_several(joined: Any) -> bool:
    """By the leader's answer, or by a follower's: the leader may have hung up."""
    return joined["leader"] != joined["member_id"] or len(joined["members"]) > 1


async def record_seeds(address: tuple[str, int], kinds: Mapping[str, Kind]) -> dict[str, list[Played]]:
    """What Kafka answers in the same way each time, by kind."""
    broker = Broker(*address)
    await broker.warm_up()
    drawn = [(name, seed) for name, kind in kinds.items() for seed in range(1, kind.seeds + 1)]
    played = await asyncio.gather(*(record_seed(broker, kinds[name], seed) for name, seed in drawn))
    kept: dict[str, list[Played]] = {name: [] for name in kinds}
    for (name, _), one in zip(drawn, played, strict=True):
        kept[name] += [one] if one is not None else []
    return kept


def seeds(names: list[str], broker: str | None) -> None:
    """Record kinds; those with the same settings on the same server."""
    left = {name: KINDS[name] for name in names or KINDS}
    while left:
        settings = next(iter(left.values())).settings
        together = {name: left.pop(name) for name in list(left) if left[name].settings == settings}
        with kafka(settings, broker) as address:
            kept = asyncio.run(record_seeds(address, together))
        for name, played in kept.items():
            write_seeds(name, VERSION, played)
            print(f"{name}: {len(played)} of {together[name].seeds} random scripts are kept")


def _difference(name: str, script: Script, runs: list[Responses]) -> str:
    number = next(number for number, each in enumerate(zip(*runs, strict=True)) if each.count(each[0]) != len(each))
    answers = "\n".join(f"    {json.dumps(run[number])}" for run in runs)
    return f"{name}, step {number}: {script[number]}\n{answers}"


def scenarios(names: list[str], broker: str | None) -> None:
    """Record chapters; those with the same settings on the same server."""
    left = {name: CHAPTERS[name] for name in names or CHAPTERS}
    while left:
        settings = next(iter(left.values())).settings
        together = {name: left.pop(name) for name in list(left) if left[name].settings == settings}
        with kafka(settings, broker) as address:
            scripts = {f"{name}/{each}": made for name in together for each, made in together[name].scenarios.items()}
            came = asyncio.run(record(address, scripts))
        for name, chapter in together.items():
            write_chapter(name, VERSION, {each: came[f"{name}/{each}"] for each in chapter.scenarios})
            print(f"{name}: {len(chapter.scenarios)} scenarios")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="record", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--broker", help="HOST:PORT of a Kafka that runs with the settings that are needed")
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
