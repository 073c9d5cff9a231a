"""The register: which nodes there are, and which session owns each partition. Pure.

A version of the register is immutable. Whoever creates the next version has changed it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..log.partition_counts import PartitionCounts
from .documents import NO_FIELDS, decode_document, encode_document

NOBODY = ""
WATCHED = 3
"""Sessions that each session watches. If so many neighbours die at once, the next one is noticed a TTL later."""


class Endpoint(NamedTuple):
    host: str
    port: int


class NodeEntry(NamedTuple):
    """A node. ``node_id`` belongs to its name for ever. ``endpoints``: the advertised address, by listener name.

    ``is_draining``: it gives its partitions away, and gets none while there is another node.
    """

    name: str
    node_id: int
    endpoints: Mapping[str, Endpoint]
    version: str = ""
    is_draining: bool = False


class Register(NamedTuple):
    """``nodes`` by session. ``owners`` (sessions, or NOBODY) and ``epochs`` by partition. ``node_ids`` by name.

    ``session_timeout_ms``: a session that shows no sign of life for this long is declared dead. It never changes,
    because leases are right only if all nodes have the same. ``damage``: why no node may serve, "" if they may.
    ``accepted_losses``: how often an operator has decided that they may again. ``unknown``: fields of a newer version.
    """

    version: int
    token: str
    cluster_id: str
    counts: PartitionCounts
    nodes: Mapping[str, NodeEntry]
    owners: tuple[str, ...]
    epochs: tuple[int, ...]
    node_ids: Mapping[str, int]
    session_timeout_ms: int
    damage: str = ""
    accepted_losses: int = 0
    unknown: Mapping[str, Any] = NO_FIELDS

    def owned(self, session: str) -> dict[int, int]:
        """The epochs of the partitions that a session owns, by partition."""
        return {partition: self.epochs[partition] for partition, owner in enumerate(self.owners) if owner == session}

    def watched_by(self, session: str) -> list[str]:
        """The sessions whose signs of life this one looks at: those that follow it in the order of their names.

        So each session is watched by a few others, whatever the size of the cluster.
        """
        names = sorted(self.nodes)
        place = bisect_right(names, session)
        return [name for name in names[place:] + names[:place] if name != session][:WATCHED]

    def without_owner(self) -> list[int]:
        """The partitions that no session of the register owns."""
        return [partition for partition, owner in enumerate(self.owners) if owner not in self.nodes]

    def with_node(
        self,
        session: str,
        name: str,
        endpoints: Mapping[str, Endpoint],
        version: str,
        replaced: Collection[str] = (),
    ) -> Register:
        """With one more session, which owns nothing yet unless some partition has no owner.

        ``replaced``: sessions that have ended, which it replaces.
        """
        node_ids = dict(self.node_ids)
        node_id = node_ids.setdefault(name, max(node_ids.values(), default=0) + 1)
        others = {other: node for other, node in self.nodes.items() if other not in replaced}
        nodes = {**others, session: NodeEntry(name, node_id, endpoints, version)}
        return self._replace(nodes=nodes, node_ids=node_ids).with_owners_of_all()

    def with_draining(self, session: str, is_draining: bool) -> Register:
        """With another value of ``NodeEntry.is_draining``. The node itself gives its partitions away."""
        node = self.nodes[session]._replace(is_draining=is_draining)
        return self._replace(nodes={**self.nodes, session: node})

    def taking(self) -> list[str]:
        """The sessions that share the partitions, sorted: those that do not drain, or all if all do."""
        taking = [session for session, node in self.nodes.items() if not node.is_draining]
        return sorted(taking or self.nodes)

    def without_nodes(self, sessions: Iterable[str]) -> Register:
        """Without these sessions. The others own their partitions."""
        gone = set(sessions)
        nodes = {session: node for session, node in self.nodes.items() if session not in gone}
        return self._replace(nodes=nodes).with_owners_of_all()

    def with_owners_of_all(self) -> Register:
        """Partitions whose owner is not there get one, if there is any node."""
        wanted = planned_owners(self)
        return self.given({partition: wanted[partition] for partition in self.without_owner()})

    def damaged(self, reason: str) -> Register | None:
        """As a version that no node may serve with. None if this one is."""
        return None if self.damage else self._replace(damage=reason)

    def accepted(self) -> Register | None:
        """As a version that nodes may serve with again. None if they may already."""
        return self._replace(damage="", accepted_losses=self.accepted_losses + 1) if self.damage else None

    def given(self, owners: Mapping[int, str]) -> Register:
        """Partitions with other owners, or the same in a new period of ownership: each epoch is one higher."""
        new_owners, epochs = list(self.owners), list(self.epochs)
        for partition, owner in owners.items():
            if owner != NOBODY or new_owners[partition] != NOBODY:
                new_owners[partition] = owner
                epochs[partition] += 1
        return self._replace(owners=tuple(new_owners), epochs=tuple(epochs))

    def numbered(self, version: int, token: str) -> Register:
        return self._replace(version=version, token=token)

    def encode(self) -> bytes:
        fields = self._asdict()
        unknown = fields.pop("unknown")
        return encode_document(fields | {"counts": list(self.counts)}, unknown)


def empty_register(counts: PartitionCounts, token: str, cluster_id: str, session_timeout_ms: int) -> Register:
    partitions = sum(counts)
    owners, epochs = (NOBODY,) * partitions, (0,) * partitions
    return Register(0, token, cluster_id, counts, {}, owners, epochs, {}, session_timeout_ms)


def decode_register(data: bytes) -> Register:
    """Raises FormatUnknown."""
    fields = decode_document("the register", data)
    return Register(
        fields.pop("version"),
        fields.pop("token"),
        fields.pop("cluster_id"),
        PartitionCounts(*fields.pop("counts")),
        {session: _decode_node(node) for session, node in fields.pop("nodes").items()},
        tuple(fields.pop("owners")),
        tuple(fields.pop("epochs")),
        fields.pop("node_ids"),
        fields.pop("session_timeout_ms"),
        fields.pop("damage", ""),
        fields.pop("accepted_losses", 0),
        fields,
    )


def _decode_node(fields: Sequence[Any]) -> NodeEntry:
    name, node_id, endpoints, *others = fields
    return NodeEntry(name, node_id, {listener: Endpoint(*address) for listener, address in endpoints.items()}, *others)


def planned_owners(register: Register) -> list[str]:
    """The owner that each partition should have: every node computes the same from the same register.

    Each topic is divided evenly, and as few partitions as possible move.
    """
    sessions = register.taking()
    offsets = register.counts.offsets
    totals: Counter[str] = Counter()
    planned: list[str] = []
    for owners in (register.owners[:offsets], register.owners[offsets:]):
        part = _divide(sessions, owners, totals)
        totals.update(part)
        planned += part
    return planned


def expected_partitions(register: Register, session: str, silent: Collection[str]) -> list[int]:
    """What a session does not own, but should, or will if the silent ones are dead."""
    planned = planned_owners(register.without_nodes(silent))
    pairs = enumerate(zip(planned, register.owners, strict=True))
    return [partition for partition, (next_owner, owner) in pairs if owner != session == next_owner]


def _divide(sessions: Sequence[str], owners: Sequence[str], totals: Counter[str]) -> list[str]:
    """``totals``: what each session has already, elsewhere. Those with less get the partitions that remain."""
    if not sessions:
        return [NOBODY] * len(owners)
    least, extra = divmod(len(owners), len(sessions))
    has = Counter(owners)
    by_need = sorted(sessions, key=lambda session: (totals[session], -has[session], session))
    room = {session: least + (place < extra) for place, session in enumerate(by_need)}
    planned = [NOBODY] * len(owners)
    for partition, owner in enumerate(owners):
        if room.get(owner, 0) > 0:
            planned[partition] = owner
            room[owner] -= 1
    free = iter([session for session in sessions for _ in range(room[session])])
    return [owner or next(free) for owner in planned]
