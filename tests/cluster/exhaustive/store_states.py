"""The contents that the store can have, and what each operation does to them."""

from __future__ import annotations

from typing import Any

from callboard.runtime.cluster.keys import REGISTER, floor_prefix, manifest_key, manifest_prefix, number_of, round_key
from callboard.runtime.cluster.manifest import Manifest, decode_manifest
from callboard.runtime.cluster.register import decode_register
from callboard.runtime.cluster.tails import following
from callboard.runtime.cluster.wal import WalDamaged, decode_round
from callboard.runtime.log.format.batch import read_batches
from callboard.runtime.log.journal_frames import frame_batches, frame_content

from .node_run import KEY, PARTITION, Operation

EMPTY = 0


class StoreStates:
    """``contents`` by state. Effects and checks of a state are computed once."""

    def __init__(self) -> None:
        self.contents: list[dict[str, bytes]] = [{}]
        self._states: dict[frozenset[tuple[str, bytes]], int] = {frozenset(): EMPTY}
        self._effects: dict[tuple[int, Operation], tuple[int, Any]] = {}
        self._recovered: dict[int, int | str] = {}
        self._epochs: dict[int, int] = {}

    def land(self, state: int, operation: Operation) -> tuple[int, Any]:
        """The state after an operation, and its result."""
        effect = self._effects.get((state, operation))
        if effect is None:
            values = dict(self.contents[state])
            result = _apply(values, *operation)
            effect = self._effects[state, operation] = self._state(values), result
        return effect

    def _state(self, values: dict[str, bytes]) -> int:
        state = self._states.setdefault(frozenset(values.items()), len(self.contents))
        if state == len(self.contents):
            self.contents.append(values)
        return state

    def recovered(self, state: int) -> int | str:
        """The number that a new owner would load if all nodes stopped now; else what is wrong."""
        if state not in self._recovered:
            self._recovered[state] = _check(self.contents[state])
        return self._recovered[state]

    def epoch(self, state: int) -> int:
        """That of the partition in the newest register."""
        if state not in self._epochs:
            values = self.contents[state]
            self._epochs[state] = decode_register(values[_newest(values, REGISTER)]).epochs[PARTITION]
        return self._epochs[state]


def _apply(values: dict[str, bytes], kind: str, arguments: tuple[Any, ...]) -> Any:
    if kind == "create":
        key, value = arguments
        return values.setdefault(key, value) is value
    if kind == "put":
        values[arguments[0]] = arguments[1]
    elif kind == "delete":
        for key in arguments:
            values.pop(key, None)
    elif kind == "get":
        return tuple(map(values.get, arguments))
    elif kind == "list":
        return tuple(sorted(key for key in values if key.startswith(arguments[0])))
    return None


def _newest(values: dict[str, bytes], prefix: str) -> str:
    return max(key for key in values if key.startswith(prefix))


def _check(values: dict[str, bytes]) -> int | str:
    for prefix in (REGISTER, manifest_prefix(PARTITION)):
        versions = sorted(number_of(key) for key in values if key.startswith(prefix))
        if versions and versions != list(range(versions[0], versions[-1] + 1)):
            return f"versions of {prefix} are missing: {versions}"
    if manifest_key(PARTITION, 0) not in values and not any(key.startswith("man/") for key in values):
        return 0  # nobody has created the cluster yet
    key = _newest(values, manifest_prefix(PARTITION))
    manifest = decode_manifest(PARTITION, number_of(key), values[key])
    batches = []
    for segment in manifest.segments:
        if segment.key not in values:
            return f"{key} names {segment.key}, which is missing"
        batches.append(values[segment.key])
    try:
        batches += _tail(values, manifest)
    except WalDamaged as error:
        return str(error)
    records = [record for data in batches for batch in read_batches(data) for record in batch.records()]
    numbers = [int(value or 0) for _, _, key, value in records if key == KEY]
    return numbers[-1] if numbers else 0


def _tail(values: dict[str, bytes], manifest: Manifest) -> list[bytes]:
    """What the WAL has that the manifest goes on in: all up to the seal, or to where a seal would be put now."""
    if manifest.tail is None:
        return []
    session = manifest.tail.session
    number = max((number_of(key) for key in values if key.startswith(floor_prefix(session))), default=0)
    found = []
    while (data := values.get(round_key(session, number))) is not None and not (stored := decode_round(data)).is_seal:
        found += [bytes(batch) for at, batch in frame_batches(frame_content(stored.content)) if at == PARTITION]
        number += 1
    later = [key for key in values if key.startswith(f"wal/{session}/") and number_of(key) > number]
    if data is None and later:
        raise WalDamaged(f"round {number} of session {session} is missing, and {later[0]} is there")
    return list(following(found, manifest))
