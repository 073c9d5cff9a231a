"""The promises that every state keeps, if all sessions stopped in it for ever."""

from __future__ import annotations

from .burials import seal_starts
from .mistakes import Mistake
from .scopes import Cluster
from .state import State, cell_at, is_round, read_tail


def broken_promise(cluster: Cluster, state: State) -> str:
    """A newcomer seals whom the register has, loads each partition, and finds all that was acknowledged."""
    for partition, manifest in enumerate(state.manifests):
        content = manifest.content
        if manifest.tail:
            session = manifest.tail - 1
            rounds, end, is_sealed = read_tail(state.wals[session], state.floors[session])
            content |= rounds
            if not is_sealed and not _can_be_sealed_at(cluster, state, session, end):
                return (
                    f"I4: partition {partition} is refused for ever: round {end} of session {session} is missing,"
                    " and no seal can come there"
                )
        lost = state.answered & cluster.masks[partition] & ~content
        if lost:
            return f"I1: an acknowledged commit of partition {partition} is lost"
    return ""


def _can_be_sealed_at(cluster: Cluster, state: State, session: int, end: int) -> bool:
    """Wherever a sealer begins, the seal comes where a reader finds the first gap."""
    if not state.register.has(session):
        return cluster.mistake is Mistake.NO_SEAL
    wal = state.wals[session]
    for start in seal_starts(cluster, state.floors[session], wal):
        number = start
        while is_round(cell_at(wal, number)):
            number += 1
        if number != end:
            return False
    return True
